// Rows, row formats, and the table that says where each selected row lies.
//
// Row = the latent (kv_lora_rank values) and the rope key (rope_dim values) of one token in one layer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tidepool/dtype.h"

namespace tidepool {

// How one row is stored; the same on host and device. Trivially copyable.
//
//   kBF16, kF32    latent and rope values of the type
//   kI8 ("c8")     latent: int8 codes, then one fp32 scale per kScaleValues of them; rope: bf16. 512 + 64: 656 bytes.
//   kF8E4M3        the same with e4m3 codes
// A coded value is code * scale, one fp32 rounding. scale = largest magnitude of its values / 127 (int8) or / 448
// (e4m3), one rounding; code = value / scale, one rounding, then rounded to nearest even (int8 within +-127; e4m3
// saturating at +-448, its NaN codes are never stored). Where the scale comes out as 0 (all values are 0, or too small
// for it) the codes are 0. Where a value is infinite or NaN the scale is NaN (0x7fc00000) and the codes are 0: all of
// its values read as NaN. Scales lie behind the codes, not aligned, nor is the rope part behind them.
struct RowFormat {
  static constexpr int32_t kScaleValues = 128;

  DType type = DType::kBF16;  // kBF16, kF32, kI8 or kF8E4M3
  int32_t latent_values = 0;
  int32_t rope_values = 0;

  constexpr bool is_coded() const { return type == DType::kI8 || type == DType::kF8E4M3; }
  constexpr int32_t num_scales() const { return is_coded() ? (latent_values + kScaleValues - 1) / kScaleValues : 0; }
  constexpr DType rope_type() const { return is_coded() ? DType::kBF16 : type; }
  constexpr int32_t latent_bytes() const {
    return latent_values * static_cast<int32_t>(dtype_bytes(type)) + num_scales() * static_cast<int32_t>(sizeof(float));
  }
  constexpr int32_t rope_bytes() const { return rope_values * static_cast<int32_t>(dtype_bytes(rope_type())); }
  constexpr int32_t row_bytes() const { return latent_bytes() + rope_bytes(); }
};

// One plane of a tensor of rows: row i at base + i * stride, `bytes` of it.
struct RowPlane {
  std::byte* base = nullptr;
  int64_t stride = 0;  // bytes from one row to the next
  int32_t bytes = 0;   // payload of this plane in a row
  constexpr std::byte* row(int64_t i) const { return base + i * stride; }
};

// A tensor of rows as two planes: latent and rope. In a joint layout (row = latent then rope, maybe inside a record of
// several layers) both planes have the same stride; in the published layout they are separate tensors.
struct RowPlanes {
  RowPlane latent, rope;
  int32_t rows = 0;  // capacity, as far as it is declared to the order checker; 0: rows are declared one by one
};

// Planes of a joint layout: `rows` rows of `format` at base, `stride` bytes apart (0: densely packed).
constexpr RowPlanes joint_planes(std::byte* base, const RowFormat& format, int64_t stride = 0, int32_t rows = 0) {
  if (stride == 0) stride = format.row_bytes();
  return {{base, stride, format.latent_bytes()}, {base + format.latent_bytes(), stride, format.rope_bytes()}, rows};
}

// Where a row can lie. Fixed numbers: they stand in tables in memory.
enum class Place : int32_t {
  kNone = 0,       // no row (the list has ended); never read
  kPool = 1,       // index = cache slot of the request * pool_size + slot in the pool
  kWindow = 2,     // index = cache slot * window_rows + position % window_rows
  kSelection = 3,  // index = row of the selection buffer
  kStaging = 4,    // index = row of the staging buffer (prefill: rows of this chunk, and earlier rows fetched for it)
  kHost = 5,       // index = row of host memory, where a store is directly readable
  kResident = 6,   // index = loc: block id * block_size + offset, all rows on the device (offload off)
};
inline constexpr int32_t kNumPlaces = 7;

struct RowLocation {
  Place place = Place::kNone;
  int32_t index = 0;
};

// The bases of one layer: planes of each place, by Place. Unused places have a null base.
struct PlaceTable {
  RowPlanes planes[kNumPlaces];
  constexpr const RowPlanes& operator[](Place p) const { return planes[static_cast<int32_t>(p)]; }
  constexpr RowPlanes& operator[](Place p) { return planes[static_cast<int32_t>(p)]; }
};

}  // namespace tidepool
