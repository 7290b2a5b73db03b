#include "engine/bench_common.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "device/copy.h"

namespace tidepool::engine {
namespace {

using device::Part;

MachineRates rates() {
  MachineRates r;
  r.read_bytes_per_s = 1e9;
  r.copy_bytes_per_s = 5e8;
  r.multiply_adds_per_s = 1e10;
  return r;
}

device::OpType type_of(Part part) { return {"op", part, 0, nullptr, nullptr, nullptr, nullptr}; }

TEST(BenchCommon, MedianOfOddEvenAndNone) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median({}), 0);
}

TEST(BenchCommon, TheFloorIsTheLargerOfReadingAndComputing) {
  EXPECT_DOUBLE_EQ(floor_ms(Part::kProjection, {0, 2'000'000, 1'000'000}, rates()), 2.0);
  EXPECT_DOUBLE_EQ(floor_ms(Part::kProjection, {0, 2'000'000, 50'000'000}, rates()), 5.0);
}

TEST(BenchCommon, PartsThatCopyCountTheBytesCopied) {
  const device::Cost cost{.read_bytes = 700, .write_bytes = 1000, .link_bytes = 300, .multiply_adds = 0};
  EXPECT_EQ(floor_bytes(Part::kServe, cost), 1000u);
  EXPECT_EQ(floor_bytes(Part::kSpill, {.link_bytes = 300}), 300u);
  EXPECT_EQ(floor_bytes(Part::kAttention, cost), 1000u);  // read, from the device and over the link
  EXPECT_DOUBLE_EQ(floor_ms(Part::kServe, {0, 1'000'000, 0}, rates()), 2.0);
}

TEST(BenchCommon, ABusyStepCountsOverlappingOperationsOnce) {
  const auto attention = type_of(Part::kAttention), install = type_of(Part::kInstall);
  const std::vector<device::TimelineEntry> entries{
      {&attention, 0, 0, 2'000'000, {100, 0, 0, 10}},
      {&install, 1, 1'000'000, 3'000'000, {0, 50, 0, 0}},
      {&attention, 0, 5'000'000, 6'000'000, {100, 0, 0, 10}},
  };
  const StepSums sums = sum_step(entries);
  EXPECT_DOUBLE_EQ(sums.busy_ms, 4.0);
  const PartSum& part = sums.parts[static_cast<size_t>(Part::kAttention)];
  EXPECT_DOUBLE_EQ(part.ms, 3.0);
  EXPECT_EQ(part.bytes, 200u);
  EXPECT_EQ(part.multiply_adds, 20u);
  EXPECT_DOUBLE_EQ(sums.parts[static_cast<size_t>(Part::kInstall)].ms, 2.0);
}

TEST(BenchCommon, KernelTimeLeavesOutCopiesThatNoKernelRunsBeside) {
  const auto attention = type_of(Part::kAttention), other = type_of(Part::kOther);
  const StepSums sums = sum_step(std::vector<device::TimelineEntry>{
      {&attention, 0, 0, 2'000'000, {}},
      {&device::copy_rows(), 1, 1'000'000, 3'000'000, {}},
      {&other, 0, 4'000'000, 5'000'000, {}},
  });
  EXPECT_DOUBLE_EQ(sums.busy_ms, 4.0);
  EXPECT_DOUBLE_EQ(sums.kernel_ms, 3.0);
}

TEST(BenchCommon, SharesAreMediansOfWhatEachStepLeaves) {
  std::vector<StepSums> steps(3);
  steps[0].wall_ms = 10, steps[0].busy_ms = 9, steps[0].kernel_ms = 8;
  steps[1].wall_ms = 20, steps[1].busy_ms = 16, steps[1].kernel_ms = 15;
  steps[2].wall_ms = 5, steps[2].busy_ms = 6, steps[2].kernel_ms = 5;  // the clocks of host and workers do not agree
  BenchRow row;
  set_shares(steps, row);
  EXPECT_DOUBLE_EQ(row.overhead_share, 0.1);
  EXPECT_DOUBLE_EQ(row.outside_share, 0.2);
}

TEST(BenchCommon, SeededIdsAreThoseOfTheirSeedAndInTheVocabulary) {
  const auto ids = seeded_ids(100, 1, 1000);
  EXPECT_EQ(ids.size(), 1000u);
  EXPECT_GE(*std::min_element(ids.begin(), ids.end()), 0);
  EXPECT_LT(*std::max_element(ids.begin(), ids.end()), 100);
  EXPECT_EQ(ids, seeded_ids(100, 1, 1000));
  EXPECT_NE(ids, seeded_ids(100, 2, 1000));
}

TEST(BenchCommon, TheStepFloorIsTheSumOfTheModelsParts) {
  StepSums fast, slow;
  fast.parts[static_cast<size_t>(Part::kProjection)] = {3, 1'000'000, 0};  // floor 1 ms
  fast.parts[static_cast<size_t>(Part::kIndexer)] = {4, 0, 20'000'000};    // floor 2 ms
  fast.parts[static_cast<size_t>(Part::kServe)] = {5, 1'000'000, 0};       // not part of the step's floor
  slow = fast;
  slow.parts[static_cast<size_t>(Part::kProjection)].ms = 5;
  BenchRow row;
  row.step_ms = 12;
  set_parts({fast, slow}, rates(), row);
  EXPECT_DOUBLE_EQ(row.floor_ms, 3.0);
  EXPECT_DOUBLE_EQ(row.ratio_to_floor, 4.0);
  ASSERT_EQ(row.parts.size(), 3u);
  EXPECT_EQ(row.parts[0].name, "projections");
  EXPECT_DOUBLE_EQ(row.parts[0].ms, 4.0);
  EXPECT_EQ(row.parts[2].name, "serve");
  EXPECT_DOUBLE_EQ(row.parts[2].floor_ms, 2.0);
}

TopkLists::Options lists_options() {
  TopkLists::Options o;
  o.num_groups = 2;
  o.batch = 2;
  o.topk = 100;
  o.num_filled = 5000;
  o.num_warm = 5;
  o.num_steps = 7;
  return o;
}

TEST(TopkLists, EachIsAscendingVisibleAndFull) {
  const auto o = lists_options();
  const TopkLists lists(o);
  for (int32_t step = -o.num_warm; step < o.num_steps; ++step) {
    for (int32_t i = 0; i < o.num_groups * o.batch; ++i) {
      const int32_t* list = lists.lists(step, i / o.batch) + (i % o.batch) * o.topk;
      EXPECT_GE(list[0], 0);
      EXPECT_TRUE(std::is_sorted(list, list + o.topk, std::less_equal<int32_t>())) << "strictly ascending";
      const int32_t visible = o.num_filled + std::max(step + 1, 0);
      EXPECT_LT(list[o.topk - 1], visible);
      if (step >= 0) {
        EXPECT_EQ(list[o.topk - 1], visible - 1) << "the newest selects itself";
      }
    }
  }
}

TEST(TopkLists, OverlapAsAsked) {
  auto o = lists_options();
  for (double overlap : {0.0, 0.5, 0.8, 1.0}) {
    o.overlap = overlap;
    const TopkLists lists(o);
    double kept = 0;
    for (int32_t step = 1; step < o.num_steps; ++step) {
      const int32_t *before = lists.lists(step - 1, 1), *now = lists.lists(step, 1);
      const std::set<int32_t> old(before, before + o.topk);
      kept += static_cast<double>(std::count_if(now, now + o.topk, [&](int32_t p) { return old.count(p) > 0; }));
    }
    EXPECT_NEAR(kept / (o.num_steps - 1) / o.topk, overlap, 0.011);  // a full overlap makes room for the newest
  }
}

TEST(TopkLists, AShortContextIsSelectedWhole) {
  auto o = lists_options();
  o.num_filled = 50;
  const TopkLists lists(o);
  for (int32_t step = -o.num_warm; step < o.num_steps; ++step) {
    const int32_t* list = lists.lists(step, 0);
    const int32_t visible = o.num_filled + std::max(step + 1, 0);
    for (int32_t i = 0; i < o.topk; ++i) EXPECT_EQ(list[i], i < visible ? i : -1);
  }
}

TEST(TopkLists, SameSeedSameLists) {
  auto o = lists_options();
  const TopkLists a(o), b(o);
  EXPECT_TRUE(std::equal(a.lists(3, 1), a.lists(3, 1) + o.topk, b.lists(3, 1)));
  EXPECT_FALSE(std::equal(a.lists(3, 0), a.lists(3, 0) + o.topk, a.lists(3, 1)));
}

}  // namespace
}  // namespace tidepool::engine
