// What one launch of each operator moves; the same for ref and cpu. Exact for the values in memory when asked, counting
// what the operator's result needs (each row read once and written once, each table entry touched). Failing rows count
// as if they were there. May allocate: for timelines and floors, not for a step.
#pragma once

#include "tidepool/op.h"
#include "tidepool/ops/gather.h"
#include "tidepool/ops/install.h"
#include "tidepool/ops/plan.h"
#include "tidepool/ops/serve.h"
#include "tidepool/ops/spill.h"

namespace tidepool::ops {

device::Cost cost_plan(const PlanParams& p);
device::Cost cost_serve(const ServeParams& p);
device::Cost cost_gather(const GatherParams& p);
device::Cost cost_gather_reset(const GatherResetParams& p);
device::Cost cost_install(const InstallParams& p);
device::Cost cost_reset(const ResetParams& p);
device::Cost cost_spill(const SpillParams& p);

}  // namespace tidepool::ops
