// Whole benchmarks on a made model. What they measure depends on the clock; what is checked here does not.
#include <gtest/gtest.h>

#include "model/make_model.h"
#include "model/presets.h"
#include "model/testing.h"
#include "tidepool/bench.h"

namespace tidepool {
namespace {

class BenchRunsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new model::testing::TemporaryDirectory();
    model::make_model(model::preset_config("tiny"), *directory_ / "tiny", {});
    auto config = model::preset_config("tiny");
    config.num_mtp_layers = 0;
    model::make_model(config, *directory_ / "no-mtp", {});
  }
  static void TearDownTestSuite() { delete directory_; }

  static EngineOptions engine(const char* model = "tiny") {
    EngineOptions o;
    o.model = *directory_ / model;
    o.num_threads = 2;
    return o;
  }
  static MachineRates rates() { return {1e9, 1e9, 1e9, "none", 2}; }
  static DecodeBenchOptions decode_options() {
    DecodeBenchOptions o;
    o.engine = engine();
    o.contexts = {300};
    o.steps = 2;
    o.machine = rates();
    return o;
  }

 private:
  inline static model::testing::TemporaryDirectory* directory_ = nullptr;
};

TEST_F(BenchRunsTest, EveryModeHasRowsOfOffAndOfTheLargestPool) {
  auto o = decode_options();
  o.modes = {ExecMode::kCapture, ExecMode::kEager};
  o.pool_sizes = {64, 512};
  const BenchResult result = bench_decode(o);
  std::vector<std::pair<ExecMode, int32_t>> rows;
  for (const BenchRow& row : result.rows) {
    rows.emplace_back(row.exec, row.pool_size);
    EXPECT_EQ(row.context_tokens, 300);
    EXPECT_EQ(row.rows, 1);
    EXPECT_GT(row.floor_ms, 0);
    EXPECT_EQ(row.ratio_to_off > 0, row.pool_size > 0);
    EXPECT_EQ(row.floor_to_one_row, 0);
    EXPECT_LE(row.overhead_share, row.outside_share);
  }
  const std::vector<std::pair<ExecMode, int32_t>> expected{{ExecMode::kCapture, 0},
                                                           {ExecMode::kCapture, 64},
                                                           {ExecMode::kCapture, 512},
                                                           {ExecMode::kEager, 0},
                                                           {ExecMode::kEager, 512}};
  EXPECT_EQ(rows, expected);
}

TEST_F(BenchRunsTest, SeveralRowsAreMeasuredBesideOne) {
  for (double overlap : {-1.0, 0.8}) {
    auto o = decode_options();
    o.rows = 4;
    o.pool_sizes = {512};
    o.topk_overlap = overlap;
    const BenchResult result = bench_decode(o);
    ASSERT_EQ(result.rows.size(), 4u);
    for (size_t i = 0; i < 4; i += 2) {
      const BenchRow &one = result.rows[i], &four = result.rows[i + 1];
      EXPECT_EQ(one.rows, 1);
      EXPECT_EQ(four.rows, 4);
      EXPECT_EQ(one.floor_to_one_row, 0);
      EXPECT_DOUBLE_EQ(four.floor_to_one_row, four.floor_ms / one.floor_ms);
      EXPECT_DOUBLE_EQ(four.step_to_one_row, four.step_ms / one.step_ms);
      EXPECT_GT(four.floor_to_one_row, 1);
      EXPECT_LT(four.floor_to_one_row, 4.1);
    }
    EXPECT_DOUBLE_EQ(result.rows[3].ratio_to_off, result.rows[3].step_ms / result.rows[1].step_ms);
  }
}

TEST_F(BenchRunsTest, DraftsAreCountedOnOneTextForEveryRoute) {
  for (OffloadRoute route : {OffloadRoute::kOff, OffloadRoute::kSelect}) {
    DraftsBenchOptions o;
    o.engine = engine();
    o.engine.route = route;
    o.engine.pool_size = 64;
    o.engine.exec = ExecMode::kCapture;
    o.contexts = {100, 60};
    o.max_tokens = 50;
    o.machine = rates();
    const BenchResult result = bench_drafts(o);
    ASSERT_EQ(result.rows.size(), 8u);
    for (size_t i = 0; i < 8; ++i) {
      const BenchRow& row = result.rows[i];
      EXPECT_EQ(row.context_tokens, i < 4 ? 100 : 60);
      EXPECT_EQ(row.pool_size, route == OffloadRoute::kSelect ? 64 : 0);
      ASSERT_TRUE(row.drafts.has_value());
      const BenchDrafts& d = *row.drafts;
      EXPECT_EQ(d.num_draft_tokens, static_cast<int32_t>(i % 4));
      EXPECT_GE(d.accept_length, 1);
      EXPECT_LE(d.accept_length, 1 + d.num_draft_tokens);
      EXPECT_EQ(d.floor_mtp_ms > 0, d.num_draft_tokens > 0);
      EXPECT_GT(d.floor_main_ms, 0);
      EXPECT_GE(row.floor_ms, d.floor_main_ms);
    }
    EXPECT_DOUBLE_EQ(result.rows[0].drafts->ratio_to_no_drafts, 1);
    EXPECT_DOUBLE_EQ(result.rows[4].drafts->floor_ratio_to_no_drafts, 1);
  }
}

TEST_F(BenchRunsTest, AGivenPromptMustReachTheContext) {
  DraftsBenchOptions o;
  o.engine = engine();
  o.prompt = {1, 2, 3};
  o.contexts = {4};
  o.machine = rates();
  EXPECT_THROW(bench_drafts(o), Error);
  o.contexts = {2};
  o.max_tokens = 24;
  EXPECT_EQ(bench_drafts(o).rows.size(), 4u);
}

TEST_F(BenchRunsTest, RowsAndDraftsNeedAnMtpLayer) {
  auto rows = decode_options();
  rows.engine = engine("no-mtp");
  rows.rows = 2;
  EXPECT_THROW(bench_decode(rows), Error);
  DraftsBenchOptions drafts;
  drafts.engine = engine("no-mtp");
  drafts.contexts = {50};
  drafts.machine = rates();
  EXPECT_THROW(bench_drafts(drafts), Error);
}

}  // namespace
}  // namespace tidepool
