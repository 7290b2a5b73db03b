// Packing is a transpose of [32 rows, k] tiles. It runs while loading, right behind the read from the page cache, so it
// must not be slower than memory: square tiles are transposed in registers (generic vectors, lowered to what the target
// has) and checked for NaN there.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "nn/packed_matrix.h"

namespace tidepool::nn {
namespace {

constexpr size_t kVectorBytes = 16;
constexpr size_t kLineBytes = 64;
constexpr uint8_t kF8Mask = 0x7f;
constexpr uint16_t kBF16Mask = 0x7f80;
constexpr uint32_t kF32Mask = 0x7f800000;

template <typename T>
using Vector [[gnu::vector_size(kVectorBytes)]] = T;

template <typename V>
V load(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

// Interleaves the low (high) halves of a and b: a0 b0 a1 b1 ...
inline Vector<uint8_t> low(Vector<uint8_t> a, Vector<uint8_t> b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline Vector<uint8_t> high(Vector<uint8_t> a, Vector<uint8_t> b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
inline Vector<uint16_t> low(Vector<uint16_t> a, Vector<uint16_t> b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
inline Vector<uint16_t> high(Vector<uint16_t> a, Vector<uint16_t> b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
inline Vector<uint32_t> low(Vector<uint32_t> a, Vector<uint32_t> b) {
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
}
inline Vector<uint32_t> high(Vector<uint32_t> a, Vector<uint32_t> b) {
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
}

// Which values are not finite: those with all bits of `mask` set (the exponent; for e4m3fn all but the sign). Collected
// over many values without a branch.
template <typename T>
struct FiniteCheck {
  T mask = 0;
  Vector<T> found = {};
  T found_single = 0;

  void add(Vector<T> values) { found |= (Vector<T>)((values & mask) == (Vector<T>{} + mask)); }
  void add_single(T value) { found_single = static_cast<T>(found_single | ((value & mask) == mask)); }
  bool all_finite() const {
    T any = found_single;
    for (size_t i = 0; i < kVectorBytes / sizeof(T); ++i) any = static_cast<T>(any | found[i]);
    return any == 0;
  }
};

// out[c * out_stride + r] = in[r * in_stride + c] for a square of as many rows as a vector has values; strides in
// bytes. log2(rows) rounds of perfect shuffles of the whole square transpose it.
template <typename T>
inline void transpose_square(const std::byte* in, int64_t in_stride, std::byte* out, int64_t out_stride,
                             FiniteCheck<T>& check) {
  constexpr size_t kSide = kVectorBytes / sizeof(T);
  Vector<T> a[kSide], b[kSide];
  for (size_t r = 0; r < kSide; ++r) {
    a[r] = load<Vector<T>>(in + static_cast<int64_t>(r) * in_stride);
    check.add(a[r]);
  }
  for (size_t span = 1; span < kSide; span *= 2) {
    for (size_t i = 0; i < kSide / 2; ++i) {
      b[2 * i] = low(a[i], a[i + kSide / 2]);
      b[2 * i + 1] = high(a[i], a[i + kSide / 2]);
    }
    for (size_t i = 0; i < kSide; ++i) a[i] = b[i];
  }
  for (size_t c = 0; c < kSide; ++c) std::memcpy(out + static_cast<int64_t>(c) * out_stride, &a[c], kVectorBytes);
}

// in: [32, columns] with rows in_stride bytes apart; out: [columns, 32]. columns is a multiple of a line's values.
// Rows whose distance is a multiple of 4 KiB share one cache set: one square's rows are used up, line by line, before
// the next rows are touched.
template <typename T>
void transpose_rows(const std::byte* in, int64_t in_stride, int64_t columns, std::byte* out, FiniteCheck<T>& check) {
  constexpr int64_t kSize = sizeof(T);
  constexpr int64_t kSide = kVectorBytes / kSize;
  constexpr int64_t kTile = kLineBytes / kSize;
  constexpr int64_t kOutStride = kPanelRows * kSize;
  FiniteCheck<T> local = check;  // stays in registers
  for (int64_t tile = 0; tile < columns; tile += kTile) {
    for (int64_t r = 0; r < kPanelRows; r += kSide) {
      for (int64_t c = tile; c < tile + kTile; c += kSide) {
        transpose_square<T>(in + r * in_stride + c * kSize, in_stride, out + c * kOutStride + r * kSize, kOutStride,
                            local);
      }
    }
  }
  check = local;
}

// in: [columns, 32] with columns in_stride bytes apart: panel rows as they are, out: [columns, 32].
template <typename T>
void copy_columns(const std::byte* in, int64_t in_stride, int64_t columns, std::byte* out, FiniteCheck<T>& check) {
  constexpr int64_t kRowBytes = kPanelRows * sizeof(T);
  FiniteCheck<T> local = check;
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t at = 0; at < kRowBytes; at += kVectorBytes) {
      const auto values = load<Vector<T>>(in + c * in_stride + at);
      local.add(values);
      std::memcpy(out + c * kRowBytes + at, &values, kVectorBytes);
    }
  }
  check = local;
}

// Any strides and edges, one value at a time; strides in bytes.
template <typename T>
void copy_values(const std::byte* in, int64_t row_stride, int64_t column_stride, int32_t rows, int64_t first, int64_t k,
                 std::byte* out, FiniteCheck<T>& check) {
  for (int64_t c = first; c < k; ++c) {
    T* line = reinterpret_cast<T*>(out) + c * kPanelRows;
    for (int32_t r = 0; r < kPanelRows; ++r) {
      line[r] = 0;
      if (r < rows) std::memcpy(&line[r], in + r * row_stride + c * column_stride, sizeof(T));
      check.add_single(line[r]);
    }
  }
}

template <typename T>
bool pack_bits(const std::byte* in, int64_t row_stride, int64_t column_stride, int32_t rows, int64_t k, T mask,
               std::byte* out) {
  constexpr int64_t kSize = sizeof(T);
  FiniteCheck<T> check{mask};
  int64_t done = 0;
  if (row_stride == kSize && rows == kPanelRows) {
    done = k;
    copy_columns<T>(in, column_stride, k, out, check);
  } else if (column_stride == kSize && rows == kPanelRows) {
    constexpr int64_t kTile = kLineBytes / kSize;
    done = k / kTile * kTile;
    transpose_rows<T>(in, row_stride, done, out, check);
  }
  copy_values<T>(in, row_stride, column_stride, rows, done, k, out, check);
  return check.all_finite();
}

template <typename Bits, float (*kWiden)(Bits)>
bool pack_widened(const std::byte* in, int64_t row_stride, int64_t column_stride, int32_t rows, int64_t k,
                  std::byte* out) {
  constexpr int64_t kTile = 32;
  alignas(64) float tile[kPanelRows][kTile];
  bool all_finite = true;
  for (int64_t c = 0; c < k; c += kTile) {
    const int64_t width = std::min(kTile, k - c);
    for (int32_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < width; ++i) {
        Bits bits;
        std::memcpy(&bits, in + r * row_stride + (c + i) * column_stride, sizeof(bits));
        tile[r][i] = kWiden(bits);
      }
    }
    all_finite &= pack_bits<uint32_t>(reinterpret_cast<const std::byte*>(tile), kTile * 4, 4, rows, width, kF32Mask,
                                      out + c * kPanelRows * 4);
  }
  return all_finite;
}

}  // namespace

bool pack_panel(const void* source, DType source_type, int64_t row_stride, int64_t column_stride, int32_t n, int32_t k,
                int32_t panel, DType packed_type, std::byte* panel_out) {
  const int64_t size = static_cast<int64_t>(dtype_bytes(source_type));
  const int32_t rows = std::min(kPanelRows, n - panel * kPanelRows);
  const auto* in = static_cast<const std::byte*>(source) + int64_t{panel} * kPanelRows * row_stride * size;
  const int64_t rs = row_stride * size, cs = column_stride * size;
  if (source_type == packed_type) {
    switch (source_type) {
      case DType::kF8E4M3:
        return pack_bits<uint8_t>(in, rs, cs, rows, k, kF8Mask, panel_out);
      case DType::kBF16:
        return pack_bits<uint16_t>(in, rs, cs, rows, k, kBF16Mask, panel_out);
      case DType::kF32:
        return pack_bits<uint32_t>(in, rs, cs, rows, k, kF32Mask, panel_out);
      default:
        break;
    }
  } else if (packed_type == DType::kF32) {
    switch (source_type) {
      case DType::kBF16:
        return pack_widened<uint16_t, bf16_to_f32>(in, rs, cs, rows, k, panel_out);
      case DType::kF16:
        return pack_widened<uint16_t, f16_to_f32>(in, rs, cs, rows, k, panel_out);
      case DType::kF8E4M3:
        return pack_widened<uint8_t, f8e4m3_to_f32>(in, rs, cs, rows, k, panel_out);
      default:
        break;
    }
  }
  tidepool_fail("{} cannot be packed as {}", dtype_name(source_type), dtype_name(packed_type));
}

}  // namespace tidepool::nn
