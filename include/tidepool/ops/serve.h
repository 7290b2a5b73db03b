// serve (route select): makes the selected rows of one layer readable for attention, once per layer and step.
//
// Row r = (b * q_len + q) * topk + i of the selection buffer gets the row of plan entry r: kHit from the pool, kMiss
// from the host store (from the window ring while position >= spilled_len[b]), kWindow from the window ring; every
// other entry is zeroed. locations[r] = {kSelection, r} for a row that exists, {kNone, 0} otherwise. Zeroed with a
// status word: a position the window ring no longer holds (kRowNotDurable: only positions above seq_len - 1 -
// window_rows lie there) or that has no store block (kRowNotDurable), one beyond the block table, and a slot beyond the
// pool (kBadPosition). Inactive rows write nothing. Asynchronous: the launch's event completes when the fetched rows
// have arrived.
#pragma once

#include "tidepool/op.h"
#include "tidepool/ops/plan_format.h"
#include "tidepool/ops/row_store.h"
#include "tidepool/row_table.h"

namespace tidepool::ops {

struct ServeParams {
  DecodeBatch batch;
  int32_t topk = 0;
  const PlanEntry* plan = nullptr;  // [max_rows, q_len, topk]
  int32_t pool_size = 0;
  RowPlanes pool;           // row cache_slot * pool_size + slot
  int32_t window_rows = 0;  // >= q_len
  RowPlanes window;         // row cache_slot * window_rows + position % window_rows
  // Host side
  RowStore* store = nullptr;
  int32_t group = 0, layer_in_group = 0;
  const int32_t* block_table = nullptr;  // [num_cache_slots, max_blocks] logical block -> store block
  int32_t max_blocks = 0;
  int32_t block_size = 0;         // tokens
  device::Event* done = nullptr;  // the event given to push_async
  // Written:
  RowPlanes selection;               // [max_rows * q_len * topk] rows
  RowLocation* locations = nullptr;  // [max_rows * q_len * topk]
  RowCopy* copies = nullptr;         // workspace [max_rows * q_len * topk]
  int32_t* status = nullptr;         // [num_cache_slots]
  int64_t* fetched_rows = nullptr;   // [num_cache_slots] rows read from the host store; added to
};

// Pieces: (batch row < num_rows, query, slice of kServeSlice entries).
inline constexpr int32_t kServeSlice = 256;
const device::OpType& serve_ref();
const device::OpType& serve_cpu();

}  // namespace tidepool::ops
