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
  static TopkLists lists(int32_t rows = 1) {
    const auto config = model::preset_config("tiny");
    TopkLists::Options o;
    o.num_groups = static_cast<int32_t>(config.layer_groups().size());
    o.batch = kBatch;
    o.topk = config.index_topk;
    o.num_filled = kFilled;
    o.num_warm = 20;
    o.num_steps = kSteps * rows;
    return TopkLists(o);
  }
  static std::vector<float> logits_of_all_steps(BenchContext& context) {
    context.fill();
    context.warm_pool();
    std::vector<float> all;
    for (int32_t step = 0; step < kSteps; ++step) {
      step % 2 == 0 ? static_cast<void>(context.step()) : static_cast<void>(context.timed_step(step % 4 == 1));
      for (int32_t j = 0; j < context.rows(); ++j) {
        for (int32_t b = 0; b < kBatch; ++b) {
          all.insert(all.end(), context.logits(b, j), context.logits(b, j) + context.impl().config().vocab_size);
        }
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

TEST_P(BenchContextTest, EveryModeGivesTheSameLogits) {
  const TopkLists made = lists();
  for (const TopkLists* source : {static_cast<const TopkLists*>(nullptr), &made}) {
    BenchContext eager(options(OffloadRoute::kOff, 0, source));
    const auto expected = logits_of_all_steps(eager);
    for (ExecMode exec : {ExecMode::kCapture, ExecMode::kCompile}) {
      for (OffloadRoute route : {OffloadRoute::kOff, OffloadRoute::kSelect}) {
        auto o = options(route, 64, source);
        o.engine.exec = exec;
        BenchContext context(o);
        EXPECT_EQ(logits_of_all_steps(context), expected)
            << exec_mode_name(exec) << (context.is_select() ? ", select" : ", off")
            << (source == nullptr ? "" : ", made lists");
      }
    }
  }
}

TEST_P(BenchContextTest, RowsOfAStepAreThoseOfAsManySteps) {
  const TopkLists made = lists(4);
  for (const TopkLists* source : {static_cast<const TopkLists*>(nullptr), &made}) {
    BenchContext one(options(OffloadRoute::kOff, 0, source));
    const auto expected = logits_of_all_steps(one);
    for (int32_t pool : {0, 16, 512}) {
      for (int32_t rows : {2, 3, 4}) {
        auto o = options(pool == 0 ? OffloadRoute::kOff : OffloadRoute::kSelect, pool, source);
        o.rows = rows;
        o.engine.exec = ExecMode::kCapture;
        BenchContext context(o);
        auto logits = logits_of_all_steps(context);
        ASSERT_EQ(logits.size(), expected.size() * static_cast<size_t>(rows));
        logits.resize(expected.size());
        EXPECT_EQ(logits, expected) << rows << " rows, pool " << pool;
        EXPECT_EQ(context.next_position(), kFilled + kSteps * rows);
      }
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
  const StepSums sums = select.timed_step(true);
  for (auto part :
       {device::Part::kProjection, device::Part::kIndexer, device::Part::kAttention, device::Part::kExperts,
        device::Part::kHead, device::Part::kPlan, device::Part::kServe, device::Part::kInstall, device::Part::kSpill}) {
    EXPECT_GT(sums.parts[static_cast<size_t>(part)].ms, 0) << device::part_name(part);
  }
  EXPECT_GT(sums.kernel_ms, 0);
  EXPECT_GE(sums.busy_ms, sums.kernel_ms);
  EXPECT_GT(sums.parts[static_cast<size_t>(device::Part::kProjection)].bytes, 0u);
  EXPECT_EQ(select.timed_step(false).parts[static_cast<size_t>(device::Part::kProjection)].bytes, 0u);
}

INSTANTIATE_TEST_SUITE_P(RowTypes, BenchContextTest, ::testing::Values(DType::kBF16, DType::kF32),
                         [](const auto& type) { return std::string(dtype_name(type.param)); });

}  // namespace
}  // namespace tidepool::engine
