#include "tidepool/dtype.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace tidepool {
namespace {

constexpr bool same_bits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

// The nearest finite code by looking at all of them; of two as near the even one.
uint8_t nearest_code(float value) {
  int best = 0;
  for (int code = 1; code < 0x7f; ++code) {
    const auto distance = [&](int c) {
      return std::fabs(std::fabs(static_cast<double>(value)) -
                       static_cast<double>(f8e4m3_to_f32(static_cast<uint8_t>(c))));
    };
    if (distance(code) < distance(best) || (distance(code) == distance(best) && code % 2 == 0)) best = code;
  }
  return static_cast<uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}

TEST(F8E4M3, every_code_comes_back) {
  for (int code = 0; code < 256; ++code) {
    const auto bits = static_cast<uint8_t>(code);
    EXPECT_EQ(f32_to_f8e4m3(f8e4m3_to_f32(bits)), bits);
  }
}

TEST(F8E4M3, rounds_to_the_nearest_code_and_midpoints_to_the_even_one) {
  std::vector<float> values;
  for (int code = 0; code < 0x7e; ++code) {  // sums of neighbours are exact
    const float low = f8e4m3_to_f32(static_cast<uint8_t>(code)), high = f8e4m3_to_f32(static_cast<uint8_t>(code + 1));
    const float middle = 0.5f * (low + high);
    for (float v : {low, middle}) {
      values.insert(values.end(), {v, std::nextafter(v, 1e9f), std::nextafter(v, -1e9f)});
    }
    EXPECT_EQ(f32_to_f8e4m3(middle) % 2, 0) << code;
  }
  for (uint32_t high = 0; high < 0x7f80; high += 5) values.push_back(std::bit_cast<float>(high << 16 | 0x1234));
  for (float v : values) {
    ASSERT_EQ(f32_to_f8e4m3(v), nearest_code(v)) << v;
    ASSERT_EQ(f32_to_f8e4m3(-v), nearest_code(-v)) << v;
  }
}

TEST(F8E4M3, saturates_and_keeps_nan) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (float v : {448.0f, 463.9f, 464.0f, 480.0f, 1e30f, infinity}) {
    EXPECT_EQ(f32_to_f8e4m3(v), 0x7e);
    EXPECT_EQ(f32_to_f8e4m3(-v), 0xfe);
  }
  for (uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu}) {
    EXPECT_EQ(f32_to_f8e4m3(std::bit_cast<float>(bits)), 0x7f);
    EXPECT_EQ(f32_to_f8e4m3(std::bit_cast<float>(bits | 0x80000000u)), 0xff);
  }
  static_assert(f32_to_f8e4m3(1.0f) == 0x38 && same_bits(f8e4m3_to_f32(0x38), 1.0f));
}

TEST(Int8, rounds_to_the_nearest_and_saturates) {
  for (int i = -1100; i <= 1100; ++i) {  // eighths: halves are midpoints
    const float value = static_cast<float>(i) / 8;
    const double nearest = std::nearbyint(static_cast<double>(value));
    EXPECT_EQ(f32_to_i8(value), static_cast<int>(std::fmax(-127, std::fmin(127, nearest)))) << value;
  }
  EXPECT_EQ(f32_to_i8(std::numeric_limits<float>::infinity()), 127);
  EXPECT_EQ(f32_to_i8(-3e38f), -127);
  static_assert(f32_to_i8(2.5f) == 2 && f32_to_i8(-3.5f) == -4);
}

}  // namespace
}  // namespace tidepool
