// Plan reports a bad position by itself, whatever the operators behind it would say.
#include <gtest/gtest.h>

#include "op_cases.h"

namespace tidepool::ops {
namespace {

using tidepool::testing::OpWorld;

TEST(PlanStatus, a_position_beyond_the_tables_fails_its_request_alone) {
  for (const auto& set : {tidepool::testing::ref_ops(), tidepool::testing::cpu_ops()}) {
    tidepool::testing::OpGeometry g;
    g.max_rows = 2, g.topk = 4, g.id_range = 40;
    tidepool::testing::OpStep step;
    step.num_rows = 2;
    step.cache_slot = {1, 0};
    step.seq_len = {100, 100};
    step.spilled_len = {99, 99};
    step.topk = {3, 39, 40, 7, 3, 39, 38, -1};
    OpWorld world(g, set);
    world.begin_step(step);
    for (const auto& call : world.calls()) {
      if (call.name == "plan") world.run(call);
    }
    EXPECT_EQ(world.status[1], static_cast<int32_t>(RequestStatus::kBadPosition)) << set.plan.name;
    EXPECT_EQ(world.status[0], 0) << set.plan.name;
  }
}

}  // namespace
}  // namespace tidepool::ops
