#include "ops/check.h"

#include <gtest/gtest.h>

#include "op_cases.h"
#include "tidepool/error.h"

namespace tidepool::ops {
namespace {

class Check : public ::testing::Test {
 protected:
  Check() : world_({}, testing::cpu_ops()), gather_world_({.gather = true}, testing::cpu_ops()) {}
  // The sentence of the refusal, "" when the parameters pass.
  template <typename Params, typename Change>
  static std::string refusal(Params params, Change change) {
    change(params);
    try {
      check_params(params);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  static std::string geometry_refusal(int64_t rows, int32_t sets, int32_t ways) {
    try {
      check_geometry("cache", rows, sets, ways);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  GatherParams gather_params() { return gather_world_.gather_params(0); }
  GatherResetParams gather_reset_params() { return gather_world_.gather_reset_params(0); }
  testing::OpWorld world_, gather_world_;
};

TEST_F(Check, GeometryMustBePowerOfTwoSetsOfWays) {
  EXPECT_EQ(geometry_refusal(8192, 512, 16), "");
  EXPECT_EQ(geometry_refusal(16, 1, 16), "");
  EXPECT_EQ(geometry_refusal(96, 6, 16), "cache: num_sets is 6, it must be a power of two");
  EXPECT_EQ(geometry_refusal(0, 0, 16), "cache: num_sets is 0, it must be a power of two");
  EXPECT_EQ(geometry_refusal(-16, -1, 16), "cache: num_sets is -1, it must be a power of two");
  EXPECT_EQ(geometry_refusal(8, 8, 0), "cache: num_ways is 0, it must be from 1 to 64");
  EXPECT_EQ(geometry_refusal(8200, 512, 16),
            "cache: the pool has 8200 rows, it must have num_sets x num_ways = 512 x 16 = 8192");
  EXPECT_NE(geometry_refusal(int64_t{1} << 35, 1 << 30, 32), "");
}

TEST_F(Check, NullPointersAreNamed) {
  EXPECT_EQ(refusal(world_.plan_params(), [](auto& p) { p.topk_indices = nullptr; }), "plan: topk_indices is null");
  EXPECT_EQ(refusal(world_.plan_params(), [](auto& p) { p.status = nullptr; }), "plan: status is null");
  EXPECT_EQ(refusal(world_.plan_params(), [](auto& p) { p.batch.seq_len = nullptr; }), "plan: batch.seq_len is null");
  EXPECT_EQ(refusal(world_.serve_params(0), [](auto& p) { p.store = nullptr; }), "serve: store is null");
  EXPECT_EQ(refusal(world_.serve_params(0), [](auto& p) { p.done = nullptr; }), "serve: done is null");
  EXPECT_EQ(refusal(world_.install_params(0, true), [](auto& p) { p.seen = nullptr; }), "install: seen is null");
  EXPECT_EQ(refusal(world_.reset_params(), [](auto& p) { p.slots = nullptr; }), "reset: slots is null");
  EXPECT_EQ(refusal(gather_params(), [](auto& p) { p.scratch = nullptr; }), "gather: scratch is null");
  EXPECT_EQ(refusal(gather_params(), [](auto& p) { p.place_status = nullptr; }), "gather: place_status is null");
  EXPECT_EQ(refusal(gather_params(), [](auto& p) { p.batch.spilled_len = nullptr; }),
            "gather: batch.spilled_len is null");
  EXPECT_EQ(refusal(gather_params(), [](auto& p) { p.counts = nullptr; }), "") << "counting may be left out";
  EXPECT_EQ(refusal(gather_reset_params(), [](auto& p) { p.num_slots = nullptr; }), "gather_reset: num_slots is null");
  EXPECT_EQ(refusal(world_.spill_params(0), [](auto& p) { p.source_origin = nullptr; }),
            "spill: source_origin is null");
}

TEST_F(Check, NumbersOutOfRangeAreNamedWithValueAndLimit) {
  EXPECT_EQ(refusal(world_.plan_params(), [](auto& p) { p.topk = 0; }), "plan: topk is 0, it must be positive");
  EXPECT_EQ(refusal(world_.plan_params(), [](auto& p) { p.batch.q_len = -1; }),
            "plan: batch.q_len is -1, it must be positive");
  EXPECT_EQ(refusal(world_.plan_params(), [](auto& p) { p.state.num_sets = 12; }),
            "plan: num_sets is 12, it must be a power of two");
  EXPECT_EQ(refusal(world_.plan_params(), [](auto& p) { p.state.policy = 9; }),
            "replacement policy number 9 is unknown; available: fifo (0)");
  EXPECT_EQ(refusal(world_.serve_params(0), [](auto& p) { p.window_rows = 0; }),
            "serve: window_rows is 0, it must hold the 1 rows of a step");
  EXPECT_EQ(refusal(gather_params(), [](auto& p) { p.batch.q_len = 3; }),
            "gather: status_queries is 1, it must have room for the 3 queries of a step");
  EXPECT_EQ(refusal(gather_params(), [](auto& p) { p.window_rows = 0; }),
            "gather: window_rows is 0, it must hold the 1 rows of a step");
  EXPECT_EQ(refusal(gather_params(), [](auto& p) { p.status_queries = 1 << 27; }),
            "gather: 2 cache slots x 134217728 queries x 16 places exceed the limit of 2147483647");
  EXPECT_EQ(refusal(gather_reset_params(), [](auto& p) { p.num_cache_slots = 0; }),
            "gather_reset: num_cache_slots is 0, it must be positive");
  EXPECT_EQ(refusal(gather_reset_params(), [](auto& p) { p.topk = -1; }),
            "gather_reset: topk is -1, it must be positive");
  EXPECT_EQ(refusal(world_.install_params(0, true), [](auto& p) { p.metadata_update = 2; }),
            "install: metadata_update is 2, it must be 0 or 1");
  EXPECT_EQ(refusal(world_.spill_params(0), [](auto& p) { p.block_size = 0; }),
            "spill: block_size is 0, it must be positive");
  EXPECT_NE(refusal(world_.plan_params(), [](auto& p) { p.topk = p.batch.max_rows = 1 << 20; }), "");
}

TEST_F(Check, PlanesMustAgreeAndNotOverlap) {
  EXPECT_EQ(refusal(world_.serve_params(0), [](auto& p) { p.pool.latent.bytes -= 2; }),
            "serve: rows of pool have 14 + 8 bytes (latent + rope), rows of selection have 16 + 8");
  EXPECT_EQ(refusal(gather_params(), [](auto& p) { p.window.rope.bytes = 0; }),
            "gather: rows of window have 16 + 0 bytes (latent + rope), rows of selection have 16 + 8");
  EXPECT_EQ(refusal(world_.serve_params(0), [](auto& p) { p.window.rope.base = nullptr; }),
            "serve: window.rope has 8 bytes a row but no memory");
  EXPECT_EQ(refusal(world_.install_params(0, true), [](auto& p) { p.pool.latent.stride = 15; }),
            "install: rows of pool.latent overlap: 16 bytes, 15 bytes apart");
}

TEST_F(Check, AChainOfDifferentSizesIsRefused) {
  const auto plan = world_.plan_params();
  auto serve = world_.serve_params(0);
  auto install = world_.install_params(0, true);
  check_chain(plan, serve, install);
  serve.pool_size = 48;
  EXPECT_THROW(check_chain(plan, serve, install), Error);
  serve = world_.serve_params(0);
  serve.topk = 8;
  EXPECT_THROW(check_chain(plan, serve, install), Error);
  serve = world_.serve_params(0);
  install.records = nullptr;
  EXPECT_THROW(check_chain(plan, serve, install), Error);
}

}  // namespace
}  // namespace tidepool::ops
