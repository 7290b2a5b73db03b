// Element types and their conversions. Conversions are exact or round to nearest even; pure functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tidepool {

// Fixed numbers: they stand in parameter structs.
enum class DType : int32_t { kF32 = 0, kBF16 = 1, kF16 = 2, kF8E4M3 = 3, kI32 = 4, kI64 = 5, kI8 = 6, kU8 = 7 };

constexpr size_t dtype_bytes(DType t) {
  switch (t) {
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    default:
      return 1;
  }
}

constexpr const char* dtype_name(DType t) {
  constexpr const char* kNames[] = {"float32", "bfloat16", "float16", "float8_e4m3", "int32", "int64", "int8", "uint8"};
  return kNames[static_cast<int32_t>(t)];
}

constexpr float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Round to nearest even; NaN stays NaN (quiet).
constexpr uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

constexpr float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
  // The shifted pattern read as fp32 has an exponent 112 too small; the product is exact, subnormals included.
  return std::bit_cast<float>(std::bit_cast<uint32_t>(std::bit_cast<float>(rest << 13) * 0x1p112f) | sign);
}

// e4m3fn: no infinities, 0x7f and 0xff are NaN, largest finite 448.
constexpr float f8e4m3_to_f32(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80u) << 24;
  const uint32_t rest = bits & 0x7fu;
  if (rest == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(std::bit_cast<float>(rest << 20) * 0x1p120f) | sign);
}

// Round to nearest even, saturating at +-448 (infinities too); NaN stays NaN. No branch: loops of it are vectorized.
constexpr uint8_t f32_to_f8e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), size = bits & 0x7fffffffu;
  const uint32_t normal = ((size + 0x7ffffu + ((size >> 20) & 1u)) >> 20) - (120u << 3);
  // Below the smallest normal value codes count steps of 2^-9, the step of fp32 from 2^14 on.
  const float magic = std::bit_cast<float>(size < 0x3c800000u ? size : 0u) + 0x1p14f;
  const uint32_t subnormal = std::bit_cast<uint32_t>(magic) - std::bit_cast<uint32_t>(0x1p14f);
  uint32_t code = size < 0x3c800000u ? subnormal : normal;
  code = size >= 0x43e00000u ? 0x7eu : code;
  code = size > 0x7f800000u ? 0x7fu : code;
  return static_cast<uint8_t>(code | ((bits >> 24) & 0x80u));
}

// Round to nearest even, saturating at +-127; not for NaN.
constexpr int8_t f32_to_i8(float value) {
  const float inside = value > 127.0f ? 127.0f : value < -127.0f ? -127.0f : value;
  return static_cast<int8_t>(std::bit_cast<int32_t>(inside + 0x1.8p23f) - std::bit_cast<int32_t>(0x1.8p23f));
}

}  // namespace tidepool
