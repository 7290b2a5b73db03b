#include "nn/row_codes.h"

#include <algorithm>
#include <bit>

namespace tidepool::nn {
namespace {

void store_plain(const float* values, int32_t count, DType type, std::byte* out) {
  if (type == DType::kF32) {
    std::memcpy(out, values, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  for (int32_t i = 0; i < count; ++i) {
    const uint16_t bits = f32_to_bf16(values[i]);
    std::memcpy(out + 2 * static_cast<ptrdiff_t>(i), &bits, sizeof(bits));
  }
}

template <typename Code, Code (*Encode)(float)>
void store_codes(const float* values, int32_t count, float scale, std::byte* out) {
  if (!(scale > 0)) {  // 0 or NaN
    std::memset(out, 0, static_cast<size_t>(count));
    return;
  }
  for (int32_t i = 0; i < count; ++i) out[i] = static_cast<std::byte>(Encode(values[i] / scale));
}

// Magnitudes compare as their bits do, and NaN is above infinity.
float scale_of(const float* values, int32_t count, float largest_code) {
  int32_t largest = 0;
  for (int32_t i = 0; i < count; ++i) largest = std::max(largest, std::bit_cast<int32_t>(values[i]) & 0x7fffffff);
  if (largest >= 0x7f800000) return std::bit_cast<float>(0x7fc00000);
  return std::bit_cast<float>(largest) / largest_code;
}

}  // namespace

void store_latent(const RowFormat& format, const float* values, int32_t begin, int32_t count, std::byte* latent) {
  if (!format.is_coded()) {
    store_plain(values, count, format.type, latent + static_cast<size_t>(begin) * dtype_bytes(format.type));
    return;
  }
  const bool is_i8 = format.type == DType::kI8;
  std::byte* scales = latent + format.latent_values;
  for (int32_t i = 0; i < count; i += RowFormat::kScaleValues) {
    const int32_t group = std::min(count - i, RowFormat::kScaleValues);
    const float scale = scale_of(values + i, group, is_i8 ? 127.0f : 448.0f);
    const auto to = static_cast<size_t>((begin + i) / RowFormat::kScaleValues) * sizeof(scale);
    std::memcpy(scales + to, &scale, sizeof(scale));
    if (is_i8) {
      store_codes<int8_t, f32_to_i8>(values + i, group, scale, latent + begin + i);
    } else {
      store_codes<uint8_t, f32_to_f8e4m3>(values + i, group, scale, latent + begin + i);
    }
  }
}

void store_rope(const RowFormat& format, const float* values, int32_t begin, int32_t count, std::byte* rope) {
  store_plain(values, count, format.rope_type(), rope + static_cast<size_t>(begin) * dtype_bytes(format.rope_type()));
}

}  // namespace tidepool::nn
