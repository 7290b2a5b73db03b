#include "engine/bench_context.h"

#include <gtest/gtest.h>

#include "model/make_model.h"
#include "model/presets.h"
#include "model/testing.h"

namespace tidepool::engine {
namespace {

constexpr int32_t kFilled = 500, kSteps = 8, kBatch = 2;

class BenchContextTest : public ::testing::TestWithParam<DType> {
 protected:
  static void SetUpTestSuite() {
    directory_ = new model::testing::TemporaryDirectory();
    model::make_model(model::preset_config("tiny"), *directory_ / "tiny", {});
  }
  static void TearDownTestSuite() { delete directory_; }

  static BenchContextOptions options(OffloadRoute route, int32_t pool_size, const TopkLists* lists) {
    BenchContextOptions o;
    o.engine.model = *directory_ / "tiny";
    o.engine.kv_dtype = GetParam();
    o.engine.num_threads = 2;
    o.engine.route = route;
    o.engine.pool_size = pool_size;
    o.batch = kBatch;
    o.num_filled = kFilled;
    o.num_steps = kSteps;
    o.lists = lists;
    return o;
  }
  static TopkLists lists() {
    const auto config = model::preset_config("tiny");
    TopkLists::Options o;
    o.num_groups = static_cast<int32_t>(config.layer_groups().size());
    o.batch = kBatch;
    o.topk = config.index_topk;
    o.num_filled = kFilled;
    o.num_warm = 20;
    o.num_steps = kSteps;
    return TopkLists(o);
  }
  static std::vector<float> logits_of_all_steps(BenchContext& context) {
    context.fill();
    context.warm_pool();
    std::vector<float> all;
    for (int32_t step = 0; step < kSteps; ++step) {
      step % 2 == 0 ? static_cast<void>(context.step()) : static_cast<void>(context.timed_step());
      for (int32_t b = 0; b < kBatch; ++b) {
        all.insert(all.end(), context.logits(b), context.logits(b) + context.impl().config().vocab_size);
      }
    }
    return all;
  }

 private:
  inline static model::testing::TemporaryDirectory* directory_ = nullptr;
};

TEST_P(BenchContextTest, EveryRouteAndPoolGivesTheSameLogits) {
  const TopkLists made = lists();
  for (const TopkLists* source : {static_cast<const TopkLists*>(nullptr), &made}) {
    BenchContext off(options(OffloadRoute::kOff, 0, source));
    const auto expected = logits_of_all_steps(off);
    for (int32_t pool : {16, 64, 512}) {
      BenchContext select(options(OffloadRoute::kSelect, pool, source));
      EXPECT_EQ(logits_of_all_steps(select), expected) << "pool " << pool;
    }
  }
}

TEST_P(BenchContextTest, ASweptPoolHoldsTheWholeContext) {
  BenchContext select(options(OffloadRoute::kSelect, 512, nullptr));
  select.fill();
  select.warm_pool();
  const auto before = select.counts();
  select.step();
  const auto after = select.counts();
  EXPECT_GT(after.hits, before.hits);
  EXPECT_EQ(after.misses, before.misses);
  EXPECT_EQ(after.wraps, 0);
}

TEST_P(BenchContextTest, AWarmedSmallPoolHitsWhatListsShare) {
  const TopkLists made = lists();
  BenchContext select(options(OffloadRoute::kSelect, 32, &made));
  logits_of_all_steps(select);
  const auto counts = select.counts();
  EXPECT_GT(counts.hits, counts.misses);
  EXPECT_GT(counts.evicted, 0);
}

TEST_P(BenchContextTest, ATimedStepHasThePartsOfItsRoute) {
  BenchContext select(options(OffloadRoute::kSelect, 64, nullptr));
  select.fill();
  const StepSums sums = select.timed_step();
  for (auto part :
       {device::Part::kProjection, device::Part::kIndexer, device::Part::kAttention, device::Part::kExperts,
        device::Part::kHead, device::Part::kPlan, device::Part::kServe, device::Part::kInstall, device::Part::kSpill}) {
    EXPECT_GT(sums.parts[static_cast<size_t>(part)].ms, 0) << device::part_name(part);
  }
  EXPECT_GT(sums.busy_ms, 0);
}

INSTANTIATE_TEST_SUITE_P(RowTypes, BenchContextTest, ::testing::Values(DType::kBF16, DType::kF32),
                         [](const auto& type) { return std::string(dtype_name(type.param)); });

}  // namespace
}  // namespace tidepool::engine
