// Values <-> bytes of a row (row_table.h), one plane at a time. Plain functions: the same bits on every machine, and
// the compiler vectorizes them. Rows of coded formats are not aligned.
#pragma once

#include <cstddef>
#include <cstring>

#include "tidepool/row_table.h"

namespace tidepool::nn {

// values [count] to latent values [begin, begin + count) of the row whose latent plane is `latent`; begin is a multiple
// of kScaleValues, and so is begin + count where it is not the end.
void store_latent(const RowFormat& format, const float* values, int32_t begin, int32_t count, std::byte* latent);
// values [count] to rope values [begin, begin + count).
void store_rope(const RowFormat& format, const float* values, int32_t begin, int32_t count, std::byte* rope);

template <typename T>
T load_unaligned(const std::byte* at, int32_t index) {
  T value;
  std::memcpy(&value, at + static_cast<ptrdiff_t>(index) * static_cast<ptrdiff_t>(sizeof(T)), sizeof(T));
  return value;
}

// Latent value d of a row.
inline float latent_value(const RowFormat& format, const std::byte* latent, int32_t d) {
  if (format.type == DType::kF32) return load_unaligned<float>(latent, d);
  if (format.type == DType::kBF16) return bf16_to_f32(load_unaligned<uint16_t>(latent, d));
  const float scale = load_unaligned<float>(latent + format.latent_values, d / RowFormat::kScaleValues);
  const float code = format.type == DType::kI8 ? static_cast<float>(load_unaligned<int8_t>(latent, d))
                                               : f8e4m3_to_f32(load_unaligned<uint8_t>(latent, d));
  return code * scale;
}
inline float rope_value(const RowFormat& format, const std::byte* rope, int32_t d) {
  if (format.rope_type() == DType::kF32) return load_unaligned<float>(rope, d);
  return bf16_to_f32(load_unaligned<uint16_t>(rope, d));
}

}  // namespace tidepool::nn
