// gather (route gather, published GatherSelectionKvCache): keeps the selection of the last step, leaves rows that are
// still wanted where they lie and reads the others from the host store. Once per layer and step; no pool, no plan.
//
// The selection of (cache slot s, query q) is topk rows: row (s * status_queries + q) * topk + place of `selection`.
// Its status row says which position lies at each place (-1: none), entry topk how many places are in use. Bounds of
// query q of batch row b: visible V and final A as in plan.h. One step of one (row, query):
//   1. The list is compacted to ids in [0, V], in order, wherever negative ones stand; n of them remain. One that is >=
//      max_blocks * block_size is dropped too and sets kBadPosition.
//   2. An id <= A found in the status row stays at its place ("hit"), unless its place is >= n: such a row is moved. A
//      place serves one entry: a repeated id is read again.
//   3. Every other id, in list order, goes to the lowest free place: moved from its old place (no host read), or read
//      from the host store; from the window ring where it is > A or >= spilled_len. A position the ring no longer
//      holds (only those above seq_len - 1 - window_rows lie there) or without a store block: the row is zeroed, its
//      place names no position (-1), status kRowNotDurable.
//   4. Status places >= n become -1, entry topk becomes n.
// locations of list entry i: {kSelection, its selection row}, {kNone, 0} where it was dropped or its row is zeroed
// (entries are counted from the uncompacted list). A request whose status word is not kOk is treated like any other;
// after a failed fetch its selections may hold anything until they are reset. Inactive rows write nothing.
//
// A hit trusts the row of the last step. So a position <= A must not have been written since the status row that names
// it was last stepped. The published step keeps this (what it writes is newer than A, and every query takes part in
// it); who leaves out steps, or queries of steps, in which rows are written again resets the slot first.
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
  int32_t status_queries = 1;       // queries a slot has room for, >= q_len
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
inline constexpr int32_t kGatherScratch = 10;

// Pieces: one per (batch row < num_rows, query).
const device::OpType& gather_ref();
const device::OpType& gather_cpu();

// Forgets the selections of some cache slots, of all their queries: their places become -1, the numbers in use 0. A
// number that is no cache slot is left out.
struct GatherResetParams {
  int32_t num_cache_slots = 0, status_queries = 1, topk = 0;
  int32_t* place_status = nullptr;
  const int32_t* slots = nullptr;      // [num_cache_slots], distinct
  const int32_t* num_slots = nullptr;  // [1]
};
// Pieces: one per slot named.
const device::OpType& gather_reset();

}  // namespace tidepool::ops
