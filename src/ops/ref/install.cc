#include <algorithm>

#include "ops/accesses.h"
#include "ops/batch.h"
#include "ops/costs.h"
#include "ops/pieces.h"
#include "ops/rows.h"
#include "policy/visit.h"

namespace tidepool::ops {
namespace {

bool in_range(const InstallParams& p, const InstallRecord& record) {
  return record.position >= 0 && record.position < p.state.id_range && record.set >= 0 &&
         record.set < p.state.num_sets && record.query >= 0 && record.query < p.batch.q_len && record.place >= 0 &&
         record.place < p.topk;
}

// Pool slot `at` gives up its token before its row is overwritten. Returns whether a row was there.
bool reserve(const GroupState& state, int64_t cache_slot, int32_t at) {
  int32_t& token = state.token_of_slot[cache_slot * state.pool_size() + at];
  const bool evicts = token >= 0 && token < state.id_range;
  if (evicts) state.slot_of_token[cache_slot * state.id_range + token] = -1;
  token = -1;
  state.slot_state[cache_slot * state.pool_size() + at] = -state.generation[cache_slot];
  return evicts;
}

// The row of pool slot `at` is that of `position` now.
void commit(const GroupState& state, int64_t cache_slot, int32_t at, int32_t position) {
  state.token_of_slot[cache_slot * state.pool_size() + at] = position;
  state.slot_of_token[cache_slot * state.id_range + position] = at;
  state.slot_state[cache_slot * state.pool_size() + at] = state.generation[cache_slot];
}

template <typename Policy>
void walk(const InstallParams& p, int32_t b, int64_t slot) {
  const GroupState& state = p.state;
  const bool update = p.metadata_update != 0;
  int32_t* cursors = state.cursor + slot * state.num_sets;
  int32_t* copy = p.cursor_copy + static_cast<int64_t>(b) * state.num_sets;
  for (int32_t set = 0; set < state.num_sets; ++set) copy[set] = update ? 0 : cursors[set];
  int32_t* installs_of_set = copy;  // when metadata is updated the copy has no other use
  if (!update) cursors = copy;

  const int64_t entries = static_cast<int64_t>(p.batch.q_len) * p.topk;
  const InstallRecord* records = p.records + b * entries;
  const int64_t num_records = std::clamp<int64_t>(p.num_records[b], 0, entries);
  uint32_t* seen = p.seen + b * bitset_words(state.id_range);
  int64_t* counts = p.counts + int64_t{3} * slot;
  for (int64_t i = 0; i < num_records; ++i) {
    const InstallRecord& record = records[i];
    if (!in_range(p, record)) continue;
    const uint32_t bit = 1u << (record.position % 32);
    if ((seen[record.position / 32] & bit) != 0) continue;
    seen[record.position / 32] |= bit;

    policy::SetState set{state.num_ways, &cursors[record.set], nullptr, nullptr};
    const int32_t way = Policy::choose_way(set);
    if (way == policy::kNoVictim) continue;
    const int32_t at = record.set * state.num_ways + way;
    if (update) counts[1] += reserve(state, slot, at) ? 1 : 0;
    RowCopier(p.pool, p.selection)
        .copy(slot * state.pool_size() + at, b * entries + static_cast<int64_t>(record.query) * p.topk + record.place);
    if (!update) continue;
    counts[0] += 1;
    commit(state, slot, at, record.position);
    counts[2] += ++installs_of_set[record.set] > state.num_ways ? 1 : 0;
  }
  for (int64_t i = 0; i < num_records; ++i) {
    if (in_range(p, records[i])) seen[records[i].position / 32] = 0;
  }
}

void run(const InstallParams& p, int32_t b, int32_t) {
  const int64_t slot = active_slot(p.batch, b);
  if (slot < 0 || load_status(&p.status[slot]) != RequestStatus::kOk) return;
  policy::visit(static_cast<policy::Kind>(p.state.policy), [&](auto policy) { walk<decltype(policy)>(p, b, slot); });
}

constexpr device::OpType kType =
    device::make_op_type<InstallParams, install_pieces, run, declare_install, cost_install>("install (ref)",
                                                                                            device::Part::kInstall);

}  // namespace

const device::OpType& install_ref() { return kType; }

}  // namespace tidepool::ops
