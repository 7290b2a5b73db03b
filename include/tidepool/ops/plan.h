// plan: classifies the shared top-k of one layer group, once per group and step. Reads metadata, writes none; can fail
// for a request only by its status word.
//
// For query q of row b with C = seq_len[b]: visible bound V = C - (q_len - 1 - q) - 1 (the query's own position),
// final bound A = max(final_len[b] - 1, 0), final_len[b] = C -
// q_len where the batch gives none. Entries are tested in this order (published DsaPlan):
//   after a negative id of the same list          -> kNone  (-1)
//   the first negative id                          -> kStop  (the id)
//   C <= 0, or V < 0, or id > V                    -> kFuture (id)
//   id <= A and slot_of_token[id] is a valid slot  -> kHit   (slot)      (valid: plan_format.h)
//   id > A                                         -> kWindow (id)
//   else                                           -> kMiss  (id), install record
// An id >= id_range cannot hit; where it is classed a miss it sets the request's status to kBadPosition (its record
// stands, install drops it; it is not among the unique misses). -1 may stand only as a suffix of a list (unchecked, as
// published).
#pragma once

#include "tidepool/op.h"
#include "tidepool/ops/plan_format.h"

namespace tidepool::ops {

struct PlanParams {
  DecodeBatch batch;
  GroupState state;  // cursor not read
  int32_t topk = 0;
  const int32_t* topk_indices = nullptr;  // [max_rows, q_len, topk]
  // Written:
  PlanEntry* plan = nullptr;             // [max_rows, q_len, topk]
  int32_t* valid_len = nullptr;          // [max_rows, q_len] ids >= 0 and <= V before the first negative one
  InstallRecord* records = nullptr;      // [max_rows, q_len * topk]
  int32_t* num_records = nullptr;        // [max_rows]
  int32_t* unique_misses = nullptr;      // [max_rows, q_len * topk] each missed position < id_range once, in order of
                                         // first record
  int32_t* num_unique_misses = nullptr;  // [max_rows]
  uint32_t* seen = nullptr;              // workspace [max_rows, ceil(id_range / 32)]; all zero before and after
  int64_t* counts = nullptr;  // [num_cache_slots, 4] entries by hit, miss, window, misses at or after spilled_len;
                              // added to, never cleared here
  int32_t* status = nullptr;  // [num_cache_slots]
};

// Pieces: one per batch row. Inactive rows and rows past num_rows write nothing (num_records and num_unique_misses of
// them are set to 0).
const device::OpType& plan_ref();
const device::OpType& plan_cpu();

}  // namespace tidepool::ops
