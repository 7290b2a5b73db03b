// Offload on equals offload off, bit for bit, over random schedules.
#include <gtest/gtest.h>

#include <cstdlib>

#include "schedules.h"
#include "tiny_models.h"

namespace tidepool::test {
namespace {

constexpr int32_t kTopk = 8;  // of the tiny model

constexpr int kParts = 4;  // so that several cores can share the work

// 2,000 in the plain build; sanitizer builds and long campaigns set their own number.
int64_t num_schedules() {
  const char* text = std::getenv("TIDEPOOL_SCHEDULES");
  return text != nullptr ? std::atoll(text) : 2000;
}
uint64_t first_seed() {
  const char* text = std::getenv("TIDEPOOL_FIRST_SCHEDULE");
  return text != nullptr ? static_cast<uint64_t>(std::atoll(text)) : 0;
}

class Transparency : public ::testing::TestWithParam<int> {};

TEST_P(Transparency, random_schedules_give_the_same_logits_with_and_without_offload) {
  OffReference off_f32(tiny_model(), DType::kF32), off_bf16(tiny_model(), DType::kBF16);
  Coverage coverage;
  for (int64_t i = GetParam(); i < num_schedules(); i += kParts) {
    const Schedule schedule = make_schedule(first_seed() + static_cast<uint64_t>(i), tiny_model(), kTopk, 2);
    std::vector<std::string> problems;
    const Logits select = run_schedule(schedule, coverage, problems);
    ASSERT_TRUE(problems.empty()) << "schedule " << schedule.seed << ": " << problems.front();
    auto& off = schedule.engine.kv_dtype == DType::kF32 ? off_f32 : off_bf16;
    ASSERT_EQ(first_difference(off.run(schedule.requests), select, schedule), "");
  }
  std::printf("%s\n", coverage.text().c_str());
  if (coverage.schedules < 50) return;  // too few to meet every case
  EXPECT_GE(coverage.long_schedules * 100, coverage.schedules * 80);
  for (int64_t count :
       {coverage.hits, coverage.misses, coverage.window, coverage.unspilled, coverage.wraps, coverage.evictions,
        coverage.same_step_evictions, coverage.slot_resets, coverage.reordered, coverage.mixed_steps}) {
    EXPECT_GT(count, 0);
  }
}
INSTANTIATE_TEST_SUITE_P(Part, Transparency, ::testing::Range(0, kParts));

}  // namespace
}  // namespace tidepool::test
