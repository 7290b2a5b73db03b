#include "nn/row_codes.h"

#include <limits>

#include "nn/nn_cases.h"

namespace tidepool::nn {
namespace {

const float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

// A coded row's latent plane between two guard bytes, at an odd address.
struct CodedLatent {
  RowFormat format;
  std::vector<std::byte> memory;
  CodedLatent(DType type, const std::vector<float>& values)
      : format{type, static_cast<int32_t>(values.size()), 0},
        memory(static_cast<size_t>(format.latent_bytes()) + 2, std::byte{0xa5}) {
    store_latent(format, values.data(), 0, format.latent_values, memory.data() + 1);
  }
  const std::byte* latent() const { return memory.data() + 1; }
  float scale(int32_t group) const { return load_unaligned<float>(latent() + format.latent_values, group); }
  float value(int32_t d) const { return latent_value(format, latent(), d); }
  float code(int32_t d) const {
    return format.type == DType::kI8 ? static_cast<float>(load_unaligned<int8_t>(latent(), d))
                                     : f8e4m3_to_f32(load_unaligned<uint8_t>(latent(), d));
  }
};

TEST(RowFormat, of_512_and_64_values_takes_656_bytes_coded) {
  for (DType type : {DType::kI8, DType::kF8E4M3}) {
    const RowFormat format{type, 512, 64};
    EXPECT_EQ(format.row_bytes(), 656);
    EXPECT_EQ(format.latent_bytes(), 528);
    EXPECT_EQ(format.rope_type(), DType::kBF16);
  }
  EXPECT_EQ((RowFormat{DType::kBF16, 512, 64}.row_bytes()), 1152);
  EXPECT_EQ((RowFormat{DType::kF32, 512, 64}.row_bytes()), 2304);
  EXPECT_EQ((RowFormat{DType::kI8, 160, 16}.row_bytes()), 160 + 2 * 4 + 32);
}

TEST(RowCodes, each_value_becomes_the_nearest_code_of_its_groups_scale) {
  for (DType type : {DType::kI8, DType::kF8E4M3}) {
    const float largest_code = type == DType::kI8 ? 127.0f : 448.0f;
    for (size_t width : {1u, 32u, 127u, 128u, 129u, 160u, 512u}) {
      std::vector<float> values = random_floats(width, static_cast<uint32_t>(width), -3, 3);
      for (size_t i = 128; i < width; ++i) values[i] *= 1e-3f;  // later groups have scales of their own
      const CodedLatent row(type, values);
      EXPECT_EQ(row.memory.front(), std::byte{0xa5});
      EXPECT_EQ(row.memory.back(), std::byte{0xa5});
      for (size_t i = 0; i < width; ++i) {
        const size_t begin = i / 128 * 128, end = std::min(begin + 128, width);
        float largest = 0;
        for (size_t j = begin; j < end; ++j) largest = std::max(largest, std::fabs(values[j]));
        const float scale = largest / largest_code, quotient = values[i] / scale;
        const auto d = static_cast<int32_t>(i);
        ASSERT_TRUE(same_bits(row.scale(d / 128), scale));
        ASSERT_EQ(row.code(d), type == DType::kI8 ? std::nearbyint(quotient) : f8e4m3_to_f32(f32_to_f8e4m3(quotient)));
        ASSERT_TRUE(same_bits(row.value(d), row.code(d) * scale));
        ASSERT_NEAR(row.value(d), values[i], largest / (type == DType::kI8 ? 250.0f : 27.9f));
      }
    }
  }
}

TEST(RowCodes, a_group_of_zeros_or_of_values_too_small_for_a_scale_is_all_zero) {
  for (DType type : {DType::kI8, DType::kF8E4M3}) {
    for (float tiny : {0.0f, -0.0f, 1e-45f, -5e-44f}) {
      const CodedLatent row(type, std::vector<float>(130, tiny));
      for (int32_t i = 0; i < 138; ++i) EXPECT_EQ(row.latent()[i], std::byte{0}) << i;
    }
  }
}

TEST(RowCodes, small_scales_saturate_instead_of_wrapping) {
  for (DType type : {DType::kI8, DType::kF8E4M3}) {
    const float step = 1e-45f;  // 190 steps / 127 round to one step: the quotient is 190; 600 / 448 likewise
    const CodedLatent row(type, {type == DType::kI8 ? 190 * step : 600 * step, type == DType::kI8 ? -190 * step : 0});
    EXPECT_EQ(row.code(0), type == DType::kI8 ? 127 : 448);
    EXPECT_EQ(row.code(1), type == DType::kI8 ? -127 : 0);
  }
}

TEST(RowCodes, a_value_that_is_no_number_makes_its_group_nan_and_no_other) {
  for (DType type : {DType::kI8, DType::kF8E4M3}) {
    for (float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
      std::vector<float> values = random_floats(300, 5);
      values[131] = bad;
      const CodedLatent row(type, values);
      EXPECT_EQ(std::bit_cast<uint32_t>(row.scale(1)), 0x7fc00000u);
      for (int32_t d = 0; d < 300; ++d) {
        EXPECT_EQ(std::isnan(row.value(d)), d / 128 == 1) << d;
        EXPECT_TRUE(d / 128 != 1 || row.latent()[d] == std::byte{0}) << d;
      }
    }
  }
}

TEST(RowCodes, large_values_keep_their_size) {
  for (DType type : {DType::kI8, DType::kF8E4M3}) {
    const CodedLatent row(type, {3e38f, -1e38f, 1e30f});
    EXPECT_NEAR(row.value(0) / 3e38f, 1, 1e-6f);
    EXPECT_NEAR(row.value(1) / -1e38f, 1, 0.04f);
  }
}

TEST(RowCodes, plain_formats_hold_the_values_themselves) {
  const std::vector<float> values = random_floats(9, 3);
  for (DType type : {DType::kBF16, DType::kF32}) {
    const RowFormat format{type, 5, 4};
    std::vector<std::byte> row(static_cast<size_t>(format.row_bytes()));
    store_latent(format, values.data(), 0, 5, row.data());
    store_rope(format, values.data() + 5, 0, 4, row.data() + format.latent_bytes());
    for (int32_t i = 0; i < 9; ++i) {
      const float v = values[static_cast<size_t>(i)];
      const float got =
          i < 5 ? latent_value(format, row.data(), i) : rope_value(format, row.data() + format.latent_bytes(), i - 5);
      EXPECT_TRUE(same_bits(got, type == DType::kF32 ? v : bf16_to_f32(f32_to_bf16(v))));
    }
  }
}

}  // namespace
}  // namespace tidepool::nn
