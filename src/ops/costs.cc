#include "ops/costs.h"

#include <algorithm>
#include <vector>

#include "ops/batch.h"
#include "ops/ref/classify.h"
#include "ops/spill_turn.h"

namespace tidepool::ops {
namespace {

uint64_t row_bytes(const RowPlanes& planes) {
  return static_cast<uint64_t>(planes.latent.bytes) + static_cast<uint64_t>(planes.rope.bytes);
}

uint64_t num_distinct(std::vector<int32_t> values) {
  std::sort(values.begin(), values.end());
  return static_cast<uint64_t>(std::unique(values.begin(), values.end()) - values.begin());
}

}  // namespace

device::Cost cost_plan(const PlanParams& p) {
  device::Cost cost;
  for (int32_t b = 0; b < p.batch.max_rows; ++b) {
    const int32_t slot = active_slot(p.batch, b);
    if (slot < 0) continue;
    const int32_t seq_len = p.batch.seq_len[b], q_len = p.batch.q_len;
    std::vector<int32_t> misses;
    uint64_t records = 0, lookups = 0;
    for (int32_t q = 0; q < q_len; ++q) {
      bool ended = false;
      const int32_t visible = visible_bound(seq_len, q_len, q);
      const int32_t* ids = p.topk_indices + (static_cast<int64_t>(b) * q_len + q) * p.topk;
      for (int32_t i = 0; i < p.topk; ++i) {
        const auto source = static_cast<Source>(
            classify(p.state, slot, seq_len, final_bound(p.batch, b), visible, ids[i], ended).source);
        ended = ended || source == Source::kStop;
        lookups += source == Source::kHit || source == Source::kMiss;
        records += source == Source::kMiss;
        if (source == Source::kMiss && ids[i] < p.state.id_range) misses.push_back(ids[i]);
      }
    }
    const uint64_t entries = static_cast<uint64_t>(q_len) * static_cast<uint64_t>(p.topk);
    cost.read_bytes += (entries + lookups) * sizeof(int32_t);
    cost.write_bytes += entries * sizeof(PlanEntry) + records * sizeof(InstallRecord) +
                        (num_distinct(std::move(misses)) + static_cast<uint64_t>(q_len) + 2) * sizeof(int32_t);
  }
  return cost;
}

device::Cost cost_serve(const ServeParams& p) {
  device::Cost cost;
  const uint64_t row = row_bytes(p.selection);
  for (int32_t b = 0; b < p.batch.max_rows; ++b) {
    if (active_slot(p.batch, b) < 0) continue;
    const int64_t entries = static_cast<int64_t>(p.batch.q_len) * p.topk;
    for (int64_t r = b * entries; r < (b + 1) * entries; ++r) {
      const auto source = static_cast<Source>(p.plan[r].source);
      const bool fetched = source == Source::kMiss && p.plan[r].index < p.batch.spilled_len[b];
      const bool copied = !fetched && (source == Source::kHit || source == Source::kMiss || source == Source::kWindow);
      cost.link_bytes += fetched ? row : 0;
      cost.read_bytes += sizeof(PlanEntry) + (copied ? row : 0);
      cost.write_bytes += row + sizeof(RowLocation);
    }
  }
  return cost;
}

device::Cost cost_install(const InstallParams& p) {
  device::Cost cost;
  const uint64_t row = row_bytes(p.pool);
  for (int32_t b = 0; b < p.batch.max_rows; ++b) {
    const int32_t slot = active_slot(p.batch, b);
    if (slot < 0 || load_status(&p.status[slot]) != RequestStatus::kOk) continue;
    const int64_t entries = static_cast<int64_t>(p.batch.q_len) * p.topk;
    const int64_t records = std::clamp<int64_t>(p.num_records[b], 0, entries);
    std::vector<int32_t> positions;
    for (int64_t i = 0; i < records; ++i) {
      const int32_t position = p.records[b * entries + i].position;
      if (position >= 0 && position < p.state.id_range) positions.push_back(position);
    }
    const uint64_t installs = num_distinct(std::move(positions));
    cost.read_bytes += static_cast<uint64_t>(records) * sizeof(InstallRecord) + installs * row;
    cost.write_bytes += installs * row;
    // Cursor, old token and both maps of each install.
    if (p.metadata_update != 0) cost.read_bytes += installs * 2 * sizeof(int32_t);
    if (p.metadata_update != 0) cost.write_bytes += installs * 4 * sizeof(int32_t);
  }
  return cost;
}

device::Cost cost_reset(const ResetParams& p) {
  device::Cost cost;
  const GroupState& state = p.state;
  const int64_t words = int64_t{state.id_range} + state.pool_size() + state.num_sets;
  cost.write_bytes = static_cast<uint64_t>(used_rows(*p.num_slots, state.num_cache_slots) * words) * sizeof(int32_t);
  return cost;
}

device::Cost cost_spill(const SpillParams& params) {
  const SpillParams p = at_turn(params);
  device::Cost cost;
  for (int32_t b = 0; b < used_rows(*p.num_rows, p.max_rows); ++b) {
    if (p.cache_slot[b] >= 0) cost.link_bytes += static_cast<uint64_t>(std::max(p.count[b], 0)) * row_bytes(p.source);
  }
  return cost;
}

}  // namespace tidepool::ops
