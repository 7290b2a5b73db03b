// What each operator may read and write, for the order checker and for protected arenas; ref and cpu declare the same.
// Exact: only active batch rows, only the rows of a tensor that the lengths in memory allow. Reads the batch arrays,
// the block tables and nothing that an operation writes. Status words are not declared (plan_format.h).
#pragma once

#include "tidepool/op.h"
#include "tidepool/ops/gather.h"
#include "tidepool/ops/install.h"
#include "tidepool/ops/plan.h"
#include "tidepool/ops/serve.h"
#include "tidepool/ops/spill.h"

namespace tidepool::ops {

enum class Mode { kRead, kWrite };
// Rows [first, first + count) of a tensor of rows.
void declare_rows(device::AccessList& list, const RowPlanes& planes, int64_t first, int64_t count, Mode mode);
// The store records of one request's positions [begin, end), block by block, through its row of the block table.
void declare_records(device::AccessList& list, const RowStore& store, int32_t group, int32_t layer_in_group,
                     const int32_t* blocks, int32_t max_blocks, int32_t block_size, int64_t begin, int64_t end,
                     Mode mode);

void declare_plan(const PlanParams& p, device::AccessList& list);
void declare_serve(const ServeParams& p, device::AccessList& list);
void declare_gather(const GatherParams& p, device::AccessList& list);
void declare_gather_reset(const GatherResetParams& p, device::AccessList& list);
void declare_install(const InstallParams& p, device::AccessList& list);
void declare_reset(const ResetParams& p, device::AccessList& list);
void declare_spill(const SpillParams& p, device::AccessList& list);

}  // namespace tidepool::ops
