// Helpers of declare() and cost(). Declared ranges cover the capacity of the arrays (max_rows), not the rows of one
// step: declare() is asked at push time, when the range in memory may be neither written nor accessible.
#pragma once

#include <algorithm>

#include "nn/packed_matrix.h"
#include "nn/rows.h"
#include "tidepool/op.h"
#include "tidepool/row_table.h"

namespace tidepool::nn {

inline void read_range(const Rows& rows, device::AccessList& list) { list.read(rows.range, 2 * sizeof(int32_t)); }

// Bytes from the first value of row 0 to the last of row num_rows - 1; rows lie `stride` values apart.
template <typename T>
size_t rows_bytes(const T*, int64_t num_rows, int64_t stride, int64_t width) {
  return num_rows <= 0 || width <= 0 ? 0 : static_cast<size_t>((num_rows - 1) * stride + width) * sizeof(T);
}

template <typename T>
void read_rows(const T* base, int64_t num_rows, int64_t stride, int64_t width, device::AccessList& list) {
  if (base != nullptr) list.read(base, rows_bytes(base, num_rows, stride, width));
}

template <typename T>
void write_rows(const T* base, int64_t num_rows, int64_t stride, int64_t width, device::AccessList& list) {
  if (base != nullptr) list.write(base, rows_bytes(base, num_rows, stride, width));
}

inline size_t scale_bytes(const PackedMatrix& w) {
  if (w.scale == nullptr) return 0;
  const auto blocks = [](int32_t n) { return static_cast<size_t>((n + kScaleBlock - 1) / kScaleBlock); };
  return blocks(w.n) * blocks(w.k) * sizeof(float);
}

inline size_t matrix_bytes(const PackedMatrix& w) { return packed_bytes(w.type, w.n, w.k); }

inline void read_matrix(const PackedMatrix& w, device::AccessList& list) {
  list.read(w.data, matrix_bytes(w));
  list.read(w.scale, scale_bytes(w));
}

inline uint64_t row_count(const Rows& rows) { return static_cast<uint64_t>(std::max(0, rows.count())); }

// The weights, read once, and the multiply-adds of `rows` rows.
inline void add_matrix_cost(const PackedMatrix& w, uint64_t rows, device::Cost& cost) {
  if (rows == 0) return;
  cost.read_bytes += matrix_bytes(w) + scale_bytes(w);
  cost.multiply_adds += rows * static_cast<uint64_t>(w.n) * static_cast<uint64_t>(w.k);
}

}  // namespace tidepool::nn
