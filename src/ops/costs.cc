#include "ops/costs.h"

#include <algorithm>
#include <map>
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

namespace {

// How many rows of one list are read from where.
struct GatherRows {
  uint64_t moved = 0, ring = 0, fetched = 0;
};

GatherRows gather_rows(const GatherParams& p, int32_t b, int64_t slot, int32_t q) {
  const int32_t visible = visible_bound(p.batch.seq_len[b], p.batch.q_len, q), newest_final = final_bound(p.batch, b);
  const int64_t limit = std::min<int64_t>(visible, static_cast<int64_t>(p.max_blocks) * p.block_size - 1);
  const int32_t* ids = p.topk_indices + (static_cast<int64_t>(b) * p.batch.q_len + q) * p.topk;
  const int32_t* places = p.place_status + (slot * p.status_queries + q) * (p.topk + 1);
  const auto listed = [&](int32_t id) { return id >= 0 && id <= limit; };
  const int64_t num_listed = std::count_if(ids, ids + p.topk, listed);
  std::multimap<int32_t, int32_t> place_of;  // those of one position in ascending order
  for (int32_t place = 0; place < p.topk; ++place) place_of.emplace(places[place], place);
  GatherRows rows;
  for (int32_t i = 0; i < p.topk; ++i) {
    if (!listed(ids[i])) continue;
    if (const auto at = place_of.find(ids[i]); ids[i] <= newest_final && at != place_of.end()) {
      rows.moved += at->second >= num_listed;
      place_of.erase(at);
    } else if (ids[i] > newest_final || ids[i] >= p.batch.spilled_len[b]) {
      ++rows.ring;
    } else {
      ++rows.fetched;
    }
  }
  return rows;
}

}  // namespace

device::Cost cost_gather(const GatherParams& p) {
  device::Cost cost;
  const uint64_t row = row_bytes(p.selection), topk = static_cast<uint64_t>(p.topk);
  for (int32_t b = 0; b < p.batch.max_rows; ++b) {
    const int64_t slot = active_slot(p.batch, b);
    if (slot < 0) continue;
    for (int32_t q = 0; q < p.batch.q_len; ++q) {
      const GatherRows rows = gather_rows(p, b, slot, q);
      cost.link_bytes += rows.fetched * row;
      // The list and the places; then the places, their number, and the locations.
      cost.read_bytes += 2 * topk * sizeof(int32_t) + (rows.moved + rows.ring) * row;
      cost.write_bytes +=
          (topk + 1) * sizeof(int32_t) + topk * sizeof(RowLocation) + (rows.moved + rows.ring + rows.fetched) * row;
    }
  }
  return cost;
}

device::Cost cost_gather_reset(const GatherResetParams& p) {
  device::Cost cost;
  const int64_t words = static_cast<int64_t>(p.status_queries) * (p.topk + 1);
  cost.write_bytes = static_cast<uint64_t>(used_rows(*p.num_slots, p.num_cache_slots) * words) * sizeof(int32_t);
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
