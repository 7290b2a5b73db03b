// What each operator may read and write, for the order checker and for protected arenas; ref and cpu declare the same.
// Exact: only active batch rows, only the rows of a tensor that the lengths in memory allow. Reads the batch arrays,
// the block tables and nothing that an operation writes. Status words are not declared (plan_format.h).
#pragma once

#include "tidepool/op.h"
#include "tidepool/ops/install.h"
#include "tidepool/ops/plan.h"
#include "tidepool/ops/serve.h"
#include "tidepool/ops/spill.h"

namespace tidepool::ops {

void declare_plan(const PlanParams& p, device::AccessList& list);
void declare_serve(const ServeParams& p, device::AccessList& list);
void declare_install(const InstallParams& p, device::AccessList& list);
void declare_reset(const ResetParams& p, device::AccessList& list);
void declare_spill(const SpillParams& p, device::AccessList& list);

}  // namespace tidepool::ops
