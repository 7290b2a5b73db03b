// Matrix products y = W x for rows of activations. All activations are fp32. The order of every sum is declared in
// packed_matrix.h; a row's result depends on nothing but that row and W.
#pragma once

#include "nn/packed_matrix.h"
#include "nn/rows.h"
#include "tidepool/op.h"

namespace tidepool::nn {

// Up to kMaxSegments matrices with the same input, in one launch.
struct ProductSegment {
  PackedMatrix w;
  float* y = nullptr;  // [max_rows, y_stride], n values of a row written
  int32_t y_stride = 0;
  int32_t add = 0;  // 1: y = y + W x (one rounding after the sum is complete); 0: y = W x
};
inline constexpr int32_t kMaxSegments = 4;

struct ProductParams {
  Rows rows;
  const float* x = nullptr;  // [max_rows, x_stride], k values of a row read
  int32_t x_stride = 0;
  int32_t num_segments = 0;
  ProductSegment segments[kMaxSegments];
};
const device::OpType& product(Backend backend, device::Part part);  // part: kProjection, kIndexer or kHead

// One product per head: y[m, h] = W_h x[m, h].
struct HeadProductParams {
  Rows rows;
  int32_t num_heads = 0;
  const PackedMatrix* heads = nullptr;  // [num_heads], all of one shape [n, k]
  const float* x = nullptr;             // row m, head h at x + m * x_stride + h * x_head_stride
  int32_t x_stride = 0, x_head_stride = 0;
  float* y = nullptr;  // row m, head h at y + m * y_stride + h * y_head_stride
  int32_t y_stride = 0, y_head_stride = 0;
};
const device::OpType& head_product(Backend backend);

}  // namespace tidepool::nn
