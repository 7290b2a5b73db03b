#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "nn/packed_matrix.h"
#include "tidepool/error.h"

namespace tidepool::nn {
namespace {

uint32_t bits_at(const std::byte* data, size_t size) {
  uint32_t bits = 0;
  std::memcpy(&bits, data, size);
  return bits;
}

// Random finite bit patterns of a type, at an address aligned to nothing.
std::vector<std::byte> random_source(DType type, size_t count) {
  std::mt19937 random(7);
  std::vector<std::byte> data(count * dtype_bytes(type) + 1);
  for (size_t i = 0; i < count; ++i) {
    auto bits = static_cast<uint32_t>(random());
    if (type == DType::kF8E4M3) bits &= 0xbf;
    if (type == DType::kBF16) bits &= 0xbfff;
    if (type == DType::kF16) bits &= 0xbfff;
    if (type == DType::kF32) bits &= 0xbfffffff;
    std::memcpy(data.data() + 1 + i * dtype_bytes(type), &bits, dtype_bytes(type));
  }
  return data;
}

float widen(DType type, uint32_t bits) {
  switch (type) {
    case DType::kBF16:
      return bf16_to_f32(static_cast<uint16_t>(bits));
    case DType::kF16:
      return f16_to_f32(static_cast<uint16_t>(bits));
    case DType::kF8E4M3:
      return f8e4m3_to_f32(static_cast<uint8_t>(bits));
    default:
      return std::bit_cast<float>(bits);
  }
}

// Every element (k, lane) of every panel against the definition.
void check_matrix(DType source_type, DType packed_type, int32_t n, int32_t k, bool transposed) {
  const size_t size = dtype_bytes(source_type), packed_size = dtype_bytes(packed_type);
  const int64_t row_stride = transposed ? 1 : k + 3, column_stride = transposed ? n + 3 : 1;
  const auto source = random_source(source_type, static_cast<size_t>((n + 3) * (k + 3)));
  PackedMatrix matrix{nullptr, packed_type, n, k, nullptr};
  std::vector<std::byte> packed(packed_bytes(packed_type, n, k), std::byte{0x55});
  for (int32_t p = 0; p < matrix.num_panels(); ++p) {
    EXPECT_TRUE(pack_panel(source.data() + 1, source_type, row_stride, column_stride, n, k, p, packed_type,
                           packed.data() + static_cast<size_t>(p) * matrix.panel_bytes()));
  }
  for (int32_t row = 0; row < matrix.num_panels() * kPanelRows; ++row) {
    for (int32_t column = 0; column < k; ++column) {
      const size_t at = (static_cast<size_t>(row / kPanelRows) * k + column) * kPanelRows + row % kPanelRows;
      const uint32_t found = bits_at(packed.data() + at * packed_size, packed_size);
      uint32_t expected = 0;
      if (row < n) {
        expected =
            bits_at(source.data() + 1 + (row * row_stride + column * column_stride) * static_cast<int64_t>(size), size);
        if (source_type != packed_type) expected = std::bit_cast<uint32_t>(widen(source_type, expected));
      }
      ASSERT_EQ(found, expected) << dtype_name(source_type) << " n " << n << " k " << k << " at " << row << ", "
                                 << column;
    }
  }
}

TEST(PackPanel, EveryElementLandsWhereTheLayoutSays) {
  const std::pair<DType, DType> types[] = {{DType::kBF16, DType::kBF16},     {DType::kF32, DType::kF32},
                                           {DType::kF8E4M3, DType::kF8E4M3}, {DType::kBF16, DType::kF32},
                                           {DType::kF16, DType::kF32},       {DType::kF8E4M3, DType::kF32}};
  for (const auto& [source_type, packed_type] : types) {
    for (int32_t n : {1, 31, 32, 33, 100}) {
      for (int32_t k : {1, 16, 64, 65, 130}) {
        check_matrix(source_type, packed_type, n, k, false);
        check_matrix(source_type, packed_type, n, k, true);
      }
    }
  }
}

TEST(PackPanel, SaysWhenAValueIsNotFinite) {
  for (DType type : {DType::kBF16, DType::kF32, DType::kF8E4M3}) {
    const size_t size = dtype_bytes(type);
    const uint32_t nan = type == DType::kBF16 ? 0x7f81u : type == DType::kF32 ? 0xff800000u : 0xffu;
    for (int32_t n : {32, 20}) {
      for (bool transposed : {false, true}) {
        constexpr int32_t k = 70;
        for (int32_t at : {0, 5, 40 * n, n * k - 1}) {
          std::vector<std::byte> source(static_cast<size_t>(n) * k * size), out(packed_bytes(type, n, k));
          std::memcpy(source.data() + static_cast<size_t>(at) * size, &nan, size);
          EXPECT_FALSE(
              pack_panel(source.data(), type, transposed ? 1 : k, transposed ? n : 1, n, k, 0, type, out.data()));
        }
      }
    }
  }
}

TEST(PackPanel, RefusesATypeItCannotPack) {
  const float value = 1;
  std::vector<std::byte> out(packed_bytes(DType::kF32, 1, 1));
  EXPECT_THROW(pack_panel(&value, DType::kF32, 1, 1, 1, 1, 0, DType::kBF16, out.data()), Error);
  EXPECT_THROW(pack_panel(&value, DType::kI32, 1, 1, 1, 1, 0, DType::kF32, out.data()), Error);
}

}  // namespace
}  // namespace tidepool::nn
