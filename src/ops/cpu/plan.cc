// As ref/plan.cc; the list's end is found first, so that the loop over its ids has no state, and table entries of later
// ids are loaded early: they lie in random lines of a table larger than the second-level cache.
#include <algorithm>

#include "ops/accesses.h"
#include "ops/batch.h"
#include "ops/costs.h"
#include "ops/pieces.h"
#include "policy/visit.h"

namespace tidepool::ops {
namespace {

constexpr int32_t kLookahead = 16;

struct RowPlan {  // what one batch row has written so far
  InstallRecord* records;
  int32_t num_records = 0;
  int32_t* unique;
  int32_t num_unique = 0;
  uint32_t* seen;
  int64_t hits = 0, windows = 0, unspilled = 0;
  bool bad_position = false;
};

constexpr PlanEntry make_entry(Source source, int32_t index) { return {static_cast<int32_t>(source), index}; }

// Ids before the first negative one.
int32_t list_len(const int32_t* ids, int32_t topk) {
  int32_t len = 0;
  while (len < topk && ids[len] >= 0) ++len;
  return len;
}

void add_unique(RowPlan& row, int32_t id) {
  uint32_t& word = row.seen[static_cast<uint32_t>(id) / 32];
  const uint32_t bit = 1u << (static_cast<uint32_t>(id) % 32);
  if ((word & bit) != 0) return;
  word |= bit;
  row.unique[row.num_unique++] = id;
}

template <typename Policy>
void plan_query(const PlanParams& p, int32_t b, int64_t slot, int32_t q, RowPlan& row) {
  const int32_t seq_len = p.batch.seq_len[b], spilled_len = p.batch.spilled_len[b];
  const int32_t visible = seq_len <= 0 ? -1 : visible_bound(seq_len, p.batch.q_len, q);
  const int32_t newest_final = final_bound(p.batch, b);
  const int64_t list = static_cast<int64_t>(b) * p.batch.q_len + q;
  const int32_t* ids = p.topk_indices + list * p.topk;
  PlanEntry* plan = p.plan + list * p.topk;
  const int32_t* slot_of_token = p.state.slot_of_token + slot * p.state.id_range;
  const int32_t* slot_state = p.state.slot_state + slot * p.state.pool_size();
  const int32_t generation = p.state.generation[slot];
  const int32_t id_range = p.state.id_range, pool_size = p.state.pool_size(), num_sets = p.state.num_sets;
  const int32_t lookup_end = static_cast<int32_t>(std::min<int64_t>(int64_t{newest_final} + 1, id_range));

  const int32_t len = list_len(ids, p.topk);
  int32_t valid = 0;
  for (int32_t i = 0; i < len; ++i) {
    if (i + kLookahead < len && ids[i + kLookahead] < lookup_end) {
      __builtin_prefetch(slot_of_token + ids[i + kLookahead]);
    }
    const int32_t id = ids[i];
    if (id > visible) {
      plan[i] = make_entry(Source::kFuture, id);
      continue;
    }
    ++valid;
    if (id > newest_final) {
      plan[i] = make_entry(Source::kWindow, id);
      ++row.windows;
      continue;
    }
    const int32_t pooled_at = id < lookup_end ? slot_of_token[id] : -1;
    if (pooled_at >= 0 && pooled_at < pool_size && slot_state[pooled_at] == generation) {
      plan[i] = make_entry(Source::kHit, pooled_at);
      ++row.hits;
      continue;
    }
    plan[i] = make_entry(Source::kMiss, id);
    row.records[row.num_records++] = {Policy::set_of(id, num_sets), id, q, i};
    row.unspilled += id >= spilled_len;
    if (id < id_range) {
      add_unique(row, id);
    } else {
      row.bad_position = true;
    }
  }
  p.valid_len[list] = valid;
  if (len < p.topk) plan[len] = make_entry(Source::kStop, ids[len]);
  std::fill(plan + std::min(len + 1, p.topk), plan + p.topk, make_entry(Source::kNone, -1));
}

void run(const PlanParams& p, int32_t b, int32_t) {
  const int64_t slot = active_slot(p.batch, b);
  if (slot < 0) {
    p.num_records[b] = p.num_unique_misses[b] = 0;
    return;
  }
  const int64_t first_entry = static_cast<int64_t>(b) * p.batch.q_len * p.topk;
  RowPlan row{.records = p.records + first_entry,
              .unique = p.unique_misses + first_entry,
              .seen = p.seen + b * bitset_words(p.state.id_range)};
  policy::visit(static_cast<policy::Kind>(p.state.policy), [&](auto policy) {
    for (int32_t q = 0; q < p.batch.q_len; ++q) plan_query<decltype(policy)>(p, b, slot, q, row);
  });
  for (int32_t i = 0; i < row.num_unique; ++i) row.seen[static_cast<uint32_t>(row.unique[i]) / 32] = 0;
  p.num_records[b] = row.num_records;
  p.num_unique_misses[b] = row.num_unique;
  int64_t* counts = p.counts + 4 * slot;
  counts[0] += row.hits;
  counts[1] += row.num_records;
  counts[2] += row.windows;
  counts[3] += row.unspilled;
  if (row.bad_position) set_status(&p.status[slot], RequestStatus::kBadPosition);
}

constexpr device::OpType kType =
    device::make_op_type<PlanParams, plan_pieces, run, declare_plan, cost_plan>("plan", device::Part::kPlan);

}  // namespace

const device::OpType& plan_cpu() { return kType; }

}  // namespace tidepool::ops
