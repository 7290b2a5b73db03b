#include "nn/simd_target.h"

#include <gtest/gtest.h>

#include "tidepool/error.h"

namespace tidepool::nn {
namespace {

TEST(SimdTarget, lists_at_least_one_target_and_uses_the_best) {
  ASSERT_FALSE(simd_targets().empty());
  EXPECT_EQ(simd_target(), simd_targets().front());
}

TEST(SimdTarget, uses_the_forced_one_until_the_restriction_is_lifted) {
  const std::vector<std::string> targets = simd_targets();
  for (const std::string& name : targets) {
    force_simd_target(name);
    EXPECT_EQ(simd_target(), name);
    EXPECT_EQ(simd_targets(), targets) << "the list does not shrink";
  }
  force_simd_target("");
  EXPECT_EQ(simd_target(), targets.front());
}

TEST(SimdTarget, refuses_a_name_that_is_not_in_the_list) {
  EXPECT_THROW(force_simd_target("avx9"), Error);
  EXPECT_EQ(simd_target(), simd_targets().front());
}

}  // namespace
}  // namespace tidepool::nn
