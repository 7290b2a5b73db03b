#include <algorithm>
#include <cmath>
#include <cstring>

#include "nn/product_ops.h"
#include "nn/ref/dot.h"

namespace tidepool::nn::ref {

float weight_value(const PackedMatrix& w, int32_t n, int32_t k) {
  const size_t index =
      (static_cast<size_t>(n / kPanelRows) * static_cast<size_t>(w.k) + static_cast<size_t>(k)) * kPanelRows +
      static_cast<size_t>(n % kPanelRows);
  const std::byte* at = w.data + index * dtype_bytes(w.type);
  if (w.type == DType::kF32) {
    float value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  if (w.type == DType::kBF16) {
    uint16_t bits;
    std::memcpy(&bits, at, sizeof(bits));
    return bf16_to_f32(bits);
  }
  const int32_t scale_columns = (w.k + kScaleBlock - 1) / kScaleBlock;
  return f8e4m3_to_f32(static_cast<uint8_t>(*at)) * w.scale[(n / kScaleBlock) * scale_columns + k / kScaleBlock];
}

float dot(const PackedMatrix& w, int32_t n, const float* x) {
  float sum = 0;
  for (int32_t begin = 0; begin < w.k; begin += kProductBlock) {
    float block = 0;
    const int32_t end = std::min(w.k, begin + kProductBlock);
    for (int32_t k = begin; k < end; ++k) block = std::fma(weight_value(w, n, k), x[k], block);
    sum = begin == 0 ? block : sum + block;
  }
  return sum;
}

// Pieces: rows.
int32_t product_pieces(const ProductParams& p) { return std::max(0, p.rows.count()); }

void product_run(const ProductParams& p, int32_t piece, int32_t) {
  const int64_t m = p.rows.begin() + piece;
  for (int32_t i = 0; i < p.num_segments; ++i) {
    const ProductSegment& segment = p.segments[i];
    float* y = segment.y + m * segment.y_stride;
    for (int32_t n = 0; n < segment.w.n; ++n) {
      const float sum = dot(segment.w, n, p.x + m * p.x_stride);
      y[n] = segment.add ? y[n] + sum : sum;
    }
  }
}

int32_t head_product_pieces(const HeadProductParams& p) { return std::max(0, p.rows.count()); }

void head_product_run(const HeadProductParams& p, int32_t piece, int32_t) {
  const int64_t m = p.rows.begin() + piece;
  for (int64_t h = 0; h < p.num_heads; ++h) {
    const float* x = p.x + m * p.x_stride + h * p.x_head_stride;
    float* y = p.y + m * p.y_stride + h * p.y_head_stride;
    for (int32_t n = 0; n < p.heads[h].n; ++n) y[n] = dot(p.heads[h], n, x);
  }
}

}  // namespace tidepool::nn::ref
