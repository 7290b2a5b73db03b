// Contracts of the offload operators, checked once, by whoever builds the parameters; operators themselves only assert.
//
// Every function throws Error naming the operator, the member, its value and the limit. Only the parameters are looked
// at, never the memory they point to.
#pragma once

#include <cstdint>
#include <string_view>

#include "tidepool/ops/gather.h"
#include "tidepool/ops/install.h"
#include "tidepool/ops/plan.h"
#include "tidepool/ops/serve.h"
#include "tidepool/ops/spill.h"

namespace tidepool::ops {

// num_sets a power of two, num_ways in [1, 64], pool_rows == num_sets x num_ways. `what` begins the sentence.
void check_geometry(std::string_view what, int64_t pool_rows, int32_t num_sets, int32_t num_ways);

void check_params(const PlanParams& p);
void check_params(const ServeParams& p);
void check_params(const GatherParams& p);
void check_params(const GatherResetParams& p);
void check_params(const InstallParams& p);
void check_params(const ResetParams& p);
void check_params(const SpillParams& p);

// One layer's chain: same batch, list length and state; serve's pool has as many rows as the state has slots.
void check_chain(const PlanParams& plan, const ServeParams& serve, const InstallParams& install);

// The number GroupState::policy has for a policy name. Throws Error for a name that is unknown or not available yet.
int32_t policy_number(std::string_view name);

}  // namespace tidepool::ops
