#include "model/finite.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace tidepool::model {
namespace {

struct BadBits {
  DType type;
  std::vector<uint32_t> bad;
  uint32_t largest;  // finite
};

TEST(FirstNonFinite, FindsEveryKindOfBadValueAtEveryPlace) {
  const BadBits cases[] = {
      {DType::kF32, {0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7f800001u, 0xffffffffu}, 0x7f7fffffu},
      {DType::kBF16, {0x7f80u, 0xff80u, 0x7fc0u, 0x7f81u}, 0x7f7fu},
      {DType::kF16, {0x7c00u, 0xfc00u, 0x7e00u}, 0x7bffu},
      {DType::kF8E4M3, {0x7fu, 0xffu}, 0x7eu}};
  for (const BadBits& c : cases) {
    const size_t size = dtype_bytes(c.type);
    for (size_t count : {size_t{1}, size_t{31}, size_t{2048}, size_t{5000}}) {
      std::vector<std::byte> data(count * size + 1);
      std::byte* values = data.data() + 1;  // not aligned
      for (size_t i = 0; i < count; ++i) std::memcpy(values + i * size, &c.largest, size);
      EXPECT_EQ(first_non_finite(values, c.type, count), -1);
      for (size_t at : {size_t{0}, count / 2, count - 1}) {
        for (uint32_t bits : c.bad) {
          std::memcpy(values + at * size, &bits, size);
          EXPECT_EQ(first_non_finite(values, c.type, count), static_cast<int64_t>(at)) << dtype_name(c.type);
          std::memcpy(values + at * size, &c.largest, size);
        }
      }
    }
  }
}

TEST(FirstNonFinite, IntegersAreAlwaysFinite) {
  const int32_t values[] = {-1, 0x7f800000};
  EXPECT_EQ(first_non_finite(reinterpret_cast<const std::byte*>(values), DType::kI32, 2), -1);
}

}  // namespace
}  // namespace tidepool::model
