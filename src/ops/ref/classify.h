// The published classification of one top-k entry, as the table in plan.h has it.
#pragma once

#include "ops/batch.h"

namespace tidepool::ops {

// ended: an earlier id of the same list was negative.
inline PlanEntry classify(const GroupState& state, int64_t slot, int32_t seq_len, int32_t newest_final, int32_t visible,
                          int32_t id, bool ended) {
  const auto entry = [](Source source, int32_t index) { return PlanEntry{static_cast<int32_t>(source), index}; };
  if (ended) return entry(Source::kNone, -1);
  if (id < 0) return entry(Source::kStop, id);
  if (seq_len <= 0 || visible < 0 || id > visible) return entry(Source::kFuture, id);
  if (id <= newest_final && id < state.id_range) {
    const int32_t pooled_at = state.slot_of_token[slot * state.id_range + id];
    if (pooled_at >= 0 && pooled_at < state.pool_size() &&
        state.slot_state[slot * state.pool_size() + pooled_at] == state.generation[slot]) {
      return entry(Source::kHit, pooled_at);
    }
  }
  return entry(id > newest_final ? Source::kWindow : Source::kMiss, id);
}

}  // namespace tidepool::ops
