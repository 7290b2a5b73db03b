// gather (route gather, published GatherSelectionKvCache): keeps the selection of the last step, leaves rows that are
// still wanted where they lie and reads the others from the host store. Once per layer and step; no pool, no plan.
//
// The selection of (cache slot s, query q) is topk rows: row (s * q_len + q) * topk + place of `selection`. Its status
// row says which position lies at each place (-1: none), entry topk how many places are valid. Bounds of query q of
// batch row b: visible V and final A as in plan.h. One step of one (row, query):
//   1. The list is compacted to ids in [0, V], in order, wherever negative ones stand; n of them remain. An id >=
//      max_blocks * block_size is dropped too and sets kBadPosition.
//   2. An id <= A found in the status row stays at its place ("hit"), unless its place is >= n: such a row is moved.
//   3. Every other id, in list order, goes to the lowest free place: moved from its old place (no host read), or read
//      from the host store; from the window ring where it is > A or >= spilled_len. A position the ring no longer
//      holds (only those above seq_len - 1 - window_rows lie there) or without a store block: the row is zeroed,
//      status kRowNotDurable.
//   4. Status places >= n become -1, entry topk becomes n.
// Ids of one list are distinct (unchecked). locations of list entry i: {kSelection, its selection row}, {kNone, 0}
// where the entry has no row (entries are counted from the uncompacted list). A request whose status word is not kOk is
// treated like any other. Inactive rows write nothing.
//
// Asynchronous: the event completes when the fetched rows have arrived.
#pragma once

#include "tidepool/op.h"
#include "tidepool/ops/plan_format.h"
#include "tidepool/ops/row_store.h"
#include "tidepool/row_table.h"

namespace tidepool::ops {

struct GatherParams {
  DecodeBatch batch;
  int32_t num_cache_slots = 0;
  int32_t topk = 0;
  const int32_t* topk_indices = nullptr;  // [max_rows, q_len, topk]
  int32_t window_rows = 0;                // >= q_len
  RowPlanes window;                       // row cache_slot * window_rows + position % window_rows
  // Host side
  RowStore* store = nullptr;
  int32_t group = 0, layer_in_group = 0;
  const int32_t* block_table = nullptr;  // [num_cache_slots, max_blocks] logical block -> store block
  int32_t max_blocks = 0;
  int32_t block_size = 0;         // tokens
  device::Event* done = nullptr;  // the event given to push_async
  // Kept from step to step:
  int32_t* place_status = nullptr;  // [num_cache_slots, status_queries, topk + 1]
  int32_t status_queries = 1;       // queries a slot has room for, >= q_len: row (s * status_queries + q)
  RowPlanes selection;              // [num_cache_slots * status_queries * topk] rows
  // Written:
  RowLocation* locations = nullptr;  // [max_rows, q_len, topk]
  RowCopy* copies = nullptr;         // workspace [max_rows * q_len * topk]
  int32_t* scratch = nullptr;        // workspace [max_rows * q_len, kGatherScratch * topk]
  int32_t* status = nullptr;         // [num_cache_slots]
  int64_t* fetched_rows = nullptr;   // [num_cache_slots] rows read from the host store; added to
  // [num_cache_slots, 4] as plan.h counts: hits, misses (ids <= A that did not stay or move), window, misses >=
  // spilled_len; added to. Null: not counted (layers that share lists with one that counts).
  int64_t* counts = nullptr;
};
inline constexpr int32_t kGatherScratch = 4;

// Pieces: one per (batch row < num_rows, query).
const device::OpType& gather_ref();
const device::OpType& gather_cpu();

// Forgets the selections of some cache slots: their status rows become -1, their counts 0.
struct GatherResetParams {
  int32_t num_cache_slots = 0, status_queries = 1, topk = 0;
  int32_t* place_status = nullptr;
  const int32_t* slots = nullptr;      // [num_cache_slots], distinct
  const int32_t* num_slots = nullptr;  // [1]
};
const device::OpType& gather_reset();

}  // namespace tidepool::ops
