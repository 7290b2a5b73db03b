#include "ops/accesses.h"
#include "ops/batch.h"
#include "ops/costs.h"
#include "ops/pieces.h"

namespace tidepool::ops {
namespace {

void run(const ResetParams& p, int32_t piece, int32_t) {
  const GroupState& state = p.state;
  const int64_t slot = p.slots[piece];
  if (slot < 0 || slot >= state.num_cache_slots) return;
  for (int32_t id = 0; id < state.id_range; ++id) state.slot_of_token[slot * state.id_range + id] = -1;
  for (int32_t i = 0; i < state.pool_size(); ++i) {
    state.token_of_slot[slot * state.pool_size() + i] = -1;
    state.slot_state[slot * state.pool_size() + i] = 0;
  }
  for (int32_t set = 0; set < state.num_sets; ++set) state.cursor[slot * state.num_sets + set] = 0;
}

constexpr device::OpType kType = device::make_op_type<ResetParams, reset_pieces, run, declare_reset, cost_reset>(
    "reset (ref)", device::Part::kOther);

}  // namespace

const device::OpType& reset_ref() { return kType; }

}  // namespace tidepool::ops
