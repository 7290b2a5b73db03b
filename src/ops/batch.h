// What every operator asks of a decode batch: which rows are active, and the two bounds of a query (plan.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "tidepool/ops/plan_format.h"

namespace tidepool::ops {

// The cache slot of batch row b in [0, max_rows); negative: the row is inactive or past num_rows.
inline int32_t active_slot(const DecodeBatch& batch, int32_t b) {
  return b < *batch.num_rows ? batch.cache_slot[b] : -1;
}

// Batch rows that may be active.
inline int32_t used_rows(int32_t num_rows, int32_t max_rows) { return std::clamp(num_rows, 0, max_rows); }

// V: the position of the query token itself; negative when the query has none.
constexpr int32_t visible_bound(int32_t seq_len, int32_t q_len, int32_t q) { return seq_len - (q_len - 1 - q) - 1; }

// A: the newest position that was final before this step; 0 when there is none (published).
constexpr int32_t final_bound(int32_t seq_len, int32_t q_len) { return std::max(seq_len - q_len - 1, 0); }

// A of batch row b.
inline int32_t final_bound(const DecodeBatch& batch, int32_t b) {
  return batch.final_len == nullptr ? final_bound(batch.seq_len[b], batch.q_len) : std::max(batch.final_len[b] - 1, 0);
}

// Words of a bit set over [0, id_range).
constexpr int64_t bitset_words(int32_t id_range) { return (static_cast<int64_t>(id_range) + 31) / 32; }

}  // namespace tidepool::ops
