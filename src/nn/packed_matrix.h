// The weight layout every product kernel reads: panels of 32 output rows, element (k, lane) contiguous.
//
// A matrix W [n, k] (row-major in checkpoints, y = W x) is stored as ceil(n / 32) panels; panel p holds for each
// k = 0..K-1 the 32 values W[32 p + 0..31, k]; rows past n are zero. One panel row is 64 bytes in bf16: a product
// streams panels front to back and each output lane sums over k alone, so that its value cannot depend on how many rows
// of x there are.
//
// The one order of every product (all backends and SIMD targets, whatever M is):
//   y[m, n] = ((b_0 + b_1) + b_2) + ...,   b_j = the chain of fused multiply-adds over k in block j, ascending, from 0
// with blocks of kProductBlock values of k. `ref` computes the same order with std::fma; targets without a fused
// multiply-add (SSE4) round each product and differ in bits, which is allowed between targets.
// fp8 values are multiplied by their block scale in fp32 (one rounding) before they enter the chain.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tidepool/dtype.h"

namespace tidepool::nn {

inline constexpr int32_t kPanelRows = 32;
inline constexpr int32_t kProductBlock = 512;
inline constexpr int32_t kScaleBlock = 128;

// A view; owns nothing. Trivially copyable: it stands in parameter structs.
struct PackedMatrix {
  const std::byte* data = nullptr;  // [num_panels, k, 32] of type, 64-byte aligned
  DType type = DType::kBF16;        // kBF16, kF32 or kF8E4M3
  int32_t n = 0;                    // outputs
  int32_t k = 0;                    // inputs
  const float* scale = nullptr;     // fp8 only: [ceil(n/128), ceil(k/128)]; null otherwise
  int32_t no_nan = 0;               // fp8 only: 1 promises that no code is NaN; faster, the same results

  int32_t num_panels() const { return (n + kPanelRows - 1) / kPanelRows; }
  size_t panel_bytes() const { return static_cast<size_t>(k) * kPanelRows * dtype_bytes(type); }
};

constexpr size_t packed_bytes(DType type, int32_t n, int32_t k) {
  return static_cast<size_t>((n + kPanelRows - 1) / kPanelRows) * kPanelRows * static_cast<size_t>(k) *
         dtype_bytes(type);
}

// Packs panel `panel` from `source`, a row-major [n, k] matrix whose rows lie `row_stride` elements apart and whose
// columns lie `column_stride` elements apart (row_stride 1 with column_stride = width packs a transpose).
// source_type equal to packed_type (kBF16, kF32, kF8E4M3) copies bits; any float type may be widened to kF32 (exact).
// source need not be aligned. Returns whether all values of the panel are finite.
// Errors: throws when the pair of types is not one of these.
bool pack_panel(const void* source, DType source_type, int64_t row_stride, int64_t column_stride, int32_t n, int32_t k,
                int32_t panel, DType packed_type, std::byte* panel_out);

}  // namespace tidepool::nn
