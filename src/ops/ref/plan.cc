#include "ops/accesses.h"
#include "ops/batch.h"
#include "ops/costs.h"
#include "ops/pieces.h"
#include "ops/ref/classify.h"
#include "policy/visit.h"

namespace tidepool::ops {
namespace {

int64_t count_index(Source source) {
  return source == Source::kHit ? 0 : source == Source::kMiss ? 1 : source == Source::kWindow ? 2 : -1;
}

void run(const PlanParams& p, int32_t b, int32_t) {
  const int32_t slot = active_slot(p.batch, b);
  p.num_records[b] = 0;
  p.num_unique_misses[b] = 0;
  if (slot < 0) return;
  const int32_t seq_len = p.batch.seq_len[b], q_len = p.batch.q_len;
  const int64_t first_entry = static_cast<int64_t>(b) * q_len * p.topk;
  uint32_t* seen = p.seen + b * bitset_words(p.state.id_range);
  int64_t* counts = p.counts + int64_t{4} * slot;

  for (int32_t q = 0; q < q_len; ++q) {
    const int32_t visible = visible_bound(seq_len, q_len, q);
    bool ended = false;
    int32_t valid = 0;
    for (int32_t place = 0; place < p.topk; ++place) {
      const int64_t entry = first_entry + static_cast<int64_t>(q) * p.topk + place;
      const int32_t id = p.topk_indices[entry];
      const PlanEntry result = classify(p.state, slot, seq_len, final_bound(p.batch, b), visible, id, ended);
      p.plan[entry] = result;
      const auto source = static_cast<Source>(result.source);
      if (source == Source::kStop) ended = true;
      if (!ended && id <= visible) ++valid;
      if (count_index(source) >= 0) ++counts[count_index(source)];
      if (source != Source::kMiss) continue;

      if (id >= p.batch.spilled_len[b]) ++counts[3];
      const int32_t set = policy::visit(static_cast<policy::Kind>(p.state.policy),
                                        [&](auto policy) { return policy.set_of(id, p.state.num_sets); });
      p.records[first_entry + p.num_records[b]++] = {set, id, q, place};
      if (id >= p.state.id_range) {
        set_status(&p.status[slot], RequestStatus::kBadPosition);
        continue;
      }
      const uint32_t bit = 1u << (id % 32);
      if ((seen[id / 32] & bit) == 0) {
        seen[id / 32] |= bit;
        p.unique_misses[first_entry + p.num_unique_misses[b]++] = id;
      }
    }
    p.valid_len[b * q_len + q] = valid;
  }
  for (int32_t i = 0; i < p.num_unique_misses[b]; ++i) seen[p.unique_misses[first_entry + i] / 32] = 0;
}

constexpr device::OpType kType =
    device::make_op_type<PlanParams, plan_pieces, run, declare_plan, cost_plan>("plan (ref)", device::Part::kPlan);

}  // namespace

const device::OpType& plan_ref() { return kType; }

}  // namespace tidepool::ops
