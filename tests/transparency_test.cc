// Offload on equals offload off, bit for bit, over random schedules.
#include <gtest/gtest.h>

#include <cstdlib>

#include "schedules.h"

namespace tidepool::test {
namespace {

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
  Coverage coverage;
  for (int64_t i = GetParam(); i < num_schedules(); i += kParts) {
    const Schedule schedule = make_schedule(first_seed() + static_cast<uint64_t>(i), 2);
    std::vector<std::string> problems;
    const Logits actual = run_schedule(schedule, coverage, problems);
    ASSERT_TRUE(problems.empty()) << "schedule " << schedule.seed << ": " << problems.front();
    ASSERT_EQ(first_difference(run_without_offload(schedule), actual, schedule), "");
  }
  std::printf("%s\n", coverage.text().c_str());
  if (coverage.schedules < 50) return;  // too few to meet every case
  EXPECT_GE(coverage.long_schedules * 100, coverage.schedules * 80);
  for (const auto& [name, count] : coverage.wanted()) EXPECT_GT(count, 0) << name;
}
INSTANTIATE_TEST_SUITE_P(Part, Transparency, ::testing::Range(0, kParts));

}  // namespace
}  // namespace tidepool::test
