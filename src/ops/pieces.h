// How many pieces each operator has; the same for ref and cpu, so that tests can run them piece by piece alike.
#pragma once

#include "ops/batch.h"
#include "ops/spill_turn.h"
#include "tidepool/ops/gather.h"
#include "tidepool/ops/install.h"
#include "tidepool/ops/plan.h"
#include "tidepool/ops/serve.h"

namespace tidepool::ops {

constexpr int32_t serve_slices(int32_t topk) { return (topk + kServeSlice - 1) / kServeSlice; }

inline int32_t plan_pieces(const PlanParams& p) { return p.batch.max_rows; }
inline int32_t serve_pieces(const ServeParams& p) {
  return used_rows(*p.batch.num_rows, p.batch.max_rows) * p.batch.q_len * serve_slices(p.topk);
}
inline int32_t gather_pieces(const GatherParams& p) {
  return used_rows(*p.batch.num_rows, p.batch.max_rows) * p.batch.q_len;
}
inline int32_t gather_reset_pieces(const GatherResetParams& p) { return used_rows(*p.num_slots, p.num_cache_slots); }
inline int32_t install_pieces(const InstallParams& p) { return used_rows(*p.batch.num_rows, p.batch.max_rows); }
inline int32_t reset_pieces(const ResetParams& p) { return used_rows(*p.num_slots, p.state.num_cache_slots); }
inline int32_t spill_pieces(const SpillParams& p) { return used_rows(*at_turn(p).num_rows, p.max_rows); }

}  // namespace tidepool::ops
