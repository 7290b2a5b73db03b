#include <algorithm>

#include "ops/accesses.h"
#include "ops/batch.h"
#include "ops/costs.h"
#include "ops/pieces.h"

namespace tidepool::ops {
namespace {

// The whole maps, not only what token_of_slot names: a reset must not depend on what it resets.
void run(const ResetParams& p, int32_t piece, int32_t) {
  const GroupState& state = p.state;
  const int64_t slot = p.slots[piece];
  if (slot < 0 || slot >= state.num_cache_slots) return;
  std::fill_n(state.slot_of_token + slot * state.id_range, state.id_range, -1);
  std::fill_n(state.token_of_slot + slot * state.pool_size(), state.pool_size(), -1);
  std::fill_n(state.slot_state + slot * state.pool_size(), state.pool_size(), 0);
  std::fill_n(state.cursor + slot * state.num_sets, state.num_sets, 0);
}

constexpr device::OpType kType =
    device::make_op_type<ResetParams, reset_pieces, run, declare_reset, cost_reset>("reset", device::Part::kOther);

}  // namespace

const device::OpType& reset_cpu() { return kType; }

}  // namespace tidepool::ops
