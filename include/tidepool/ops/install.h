// install: puts this step's misses of one layer into its pool; with metadata_update the group's metadata is committed.
//
// For each batch row, over its records in order (published DsaInstall): a record whose position >= id_range, or set,
// query or place is out of range, or whose position was already seen in this step, is dropped; otherwise way = cursor
// of the set (policy), slot = set * num_ways + way, the selection row (b * q_len + query) * topk + place is copied to
// pool row cache_slot * pool_size + slot. With metadata_update: the old token of the slot is unmapped and the slot
// reserved before its row is overwritten, then the new token is mapped and the slot valid, and the
// cursor moves in the group state. Without: every layer replays the same walk on a private copy of the cursors.
// More than num_ways misses in one set wrap: the last writer wins in rows and metadata alike.
// A request whose status word is not kOk installs nothing. Metadata rows outside the walk are not touched.
// Order (by events): after serve of the same layer; the launch with metadata_update after every other install of the
// group.
#pragma once

#include "tidepool/op.h"
#include "tidepool/ops/plan_format.h"
#include "tidepool/row_table.h"

namespace tidepool::ops {

struct InstallParams {
  DecodeBatch batch;
  GroupState state;
  int32_t topk = 0;
  int32_t metadata_update = 0;             // 0 or 1
  const InstallRecord* records = nullptr;  // [max_rows, q_len * topk]
  const int32_t* num_records = nullptr;    // [max_rows]
  RowPlanes selection;                     // rows as written by serve
  const int32_t* status = nullptr;         // [num_cache_slots]
  // Written:
  RowPlanes pool;
  int32_t* cursor_copy = nullptr;  // workspace [max_rows, num_sets]; contents afterwards unspecified
  uint32_t* seen = nullptr;        // workspace [max_rows, ceil(id_range / 32)]; all zero before and after
  int64_t* counts = nullptr;       // [num_cache_slots, 3] rows installed, valid rows evicted, wraps (installs beyond
                                   // num_ways in one set and step); added to when metadata_update
};

// Pieces: one per batch row.
const device::OpType& install_ref();
const device::OpType& install_cpu();

// reset: forgets everything pooled for some cache slots, and nothing of the others. Works on any memory: it is also how
// the state gets its first value. Pool rows are left as they are. Pieces: one per slot listed.
struct ResetParams {
  GroupState state;
  const int32_t* slots = nullptr;      // [num_cache_slots], distinct
  const int32_t* num_slots = nullptr;  // [1]
};
const device::OpType& reset_ref();
const device::OpType& reset_cpu();

}  // namespace tidepool::ops
