// spill: new rows of one layer go to the host store. Asynchronous: the launch's event completes when the store has
// them; only then may the host raise spilled_len.
//
// Batch row b spills positions [first[b], first[b] + count[b]); position p is read from row
// source_base[b] + (p - source_origin[b]) % source_rows[b] of `source` (a window ring: base = slot * window_rows,
// origin 0; a chunk of a prompt in staging: base = its first row, origin = its first position). A position before its
// origin, beyond the block table or without a store block is left out (status kBadPosition); rows whose copies do not
// fit max_copies spill nothing (kSpillFailed).
#pragma once

#include "tidepool/op.h"
#include "tidepool/ops/plan_format.h"
#include "tidepool/ops/row_store.h"
#include "tidepool/row_table.h"

namespace tidepool::ops {

// Spills may run several steps behind the host, which must not overwrite the lists of a step that has not run: the
// lists have num_turns copies, and the operator reads copy *turn % num_turns. spill_advance, pushed behind the last
// spill of a step, adds one to *turn on the stream itself.
struct SpillParams {
  int32_t max_rows = 0;
  int32_t num_turns = 1;
  const int32_t* turn = nullptr;           // [1]
  const int32_t* pushed_turn = nullptr;    // [1] of the step the host pushes now, where *turn will be when it runs
  const int32_t* num_rows = nullptr;       // [num_turns]
  const int32_t* cache_slot = nullptr;     // [num_turns, max_rows], -1: none
  const int32_t* first = nullptr;          // [num_turns, max_rows]
  const int32_t* count = nullptr;          // [num_turns, max_rows]
  const int32_t* source_base = nullptr;    // [num_turns, max_rows]
  const int32_t* source_origin = nullptr;  // [num_turns, max_rows]
  const int32_t* source_rows = nullptr;    // [num_turns, max_rows] > 0
  RowPlanes source;
  RowStore* store = nullptr;
  int32_t group = 0, layer_in_group = 0;
  const int32_t* block_table = nullptr;  // [num_cache_slots, max_blocks]
  int32_t max_blocks = 0;
  int32_t block_size = 0;
  device::Event* done = nullptr;
  // Written:
  RowCopy* copies = nullptr;  // workspace [max_copies]; row b uses the copies after those of active rows before it
  int32_t max_copies = 0;     // at least the sum of count
  int32_t* status = nullptr;  // [num_cache_slots]
};

// Pieces: one per batch row.
const device::OpType& spill_ref();
const device::OpType& spill_cpu();

struct SpillAdvanceParams {
  int32_t* turn = nullptr;  // [1]
};
const device::OpType& spill_advance();

}  // namespace tidepool::ops
