// The lightning indexer: index keys in dimension-major tiles, scores, exact top-k.
//
// score(t, s) = sum over heads h of w[t, h] * max(0, q[t, h] . k[s]),   w already scaled by Hi^-0.5 * Di^-0.5.
// Order: the dot product of a head is the chain of fused multiply-adds over d = 0..Di-1, ascending, from 0; heads are
// then added by fused multiply-adds in ascending order, from 0. Lanes are tokens, so a score does not depend on how
// many tokens or rows are scored together.
#pragma once

#include <cstddef>

#include "nn/rows.h"
#include "tidepool/op.h"
#include "tidepool/row_table.h"

namespace tidepool::nn {

// Index keys of one full layer: tiles of kKeyTile tokens, [num_tiles, Di, kKeyTile] of type. Token at loc (block id *
// block_size + offset; block_size is a multiple of kKeyTile): tile loc / kKeyTile, lane loc % kKeyTile.
inline constexpr int32_t kKeyTile = 32;
inline constexpr int32_t kMaxIndexDim = 512;  // largest Di
struct KeyTiles {
  std::byte* base = nullptr;
  DType type = DType::kBF16;  // kBF16 or kF32
  int32_t dim = 0;            // Di
  size_t tile_bytes() const { return static_cast<size_t>(dim) * kKeyTile * dtype_bytes(type); }
};

// Which keys a row sees: positions [0, position + 1) of its cache slot, through the slot's block table.
struct KeyTable {
  const int32_t* position = nullptr;     // [max_rows] the query's own position
  const int32_t* cache_slot = nullptr;   // [max_rows]
  const int32_t* block_table = nullptr;  // [num_cache_slots, max_blocks]
  int32_t max_blocks = 0;
  int32_t block_size = 0;
};

// Rotates the first rope_dim values of each query head in place (every product and sum rounded on its own, no fused
// multiply-add: the same bits on every target); k = LayerNorm(k) (mean removed, biased variance, eps,
// weight, bias), rotated likewise, written to the key tiles at loc; w scaled in place.
struct IndexPrepareParams {
  Rows rows;
  int32_t num_heads = 0, rope_dim = 0;
  int32_t interleave = 1;    // 1: pairs (x[2j], x[2j+1]); 0: pairs (x[j], x[j + rope_dim/2])
  float* q = nullptr;        // [max_rows, num_heads * dim]
  const float* k = nullptr;  // [max_rows, dim]
  float* w = nullptr;        // [max_rows, num_heads]
  float w_scale = 0;
  const float* norm_weight = nullptr;  // [dim]
  const float* norm_bias = nullptr;    // [dim]
  float norm_eps = 0;
  const float* cos_table = nullptr;  // [max_rows, rope_dim / 2]
  const float* sin_table = nullptr;
  KeyTiles keys;
  const int32_t* loc = nullptr;  // [max_rows]; negative: the key is not kept
};
const device::OpType& index_prepare(Backend backend);

// Scores of rows that see more than topk positions; rows that see at most topk are skipped (their list is everything).
struct IndexScoreParams {
  Rows rows;
  int32_t num_heads = 0;
  int32_t topk = 0;
  const float* q = nullptr;  // [max_rows, num_heads * dim]
  const float* w = nullptr;  // [max_rows, num_heads]
  KeyTiles keys;
  KeyTable table;
  float* scores = nullptr;   // row m at scores + (m - rows.begin()) * score_stride
  int64_t score_stride = 0;  // >= longest context rounded up to kKeyTile
  int32_t score_rows = 0;    // capacity in rows
};
// Pieces: (row, run of tiles).
const device::OpType& index_score(Backend backend);

// The topk largest scores of each row; of equal scores the lower position wins (declared order; -0 equals 0). Written
// in ascending position, -1 as suffix. A row that sees at most topk positions gets all of them without looking at
// scores. NaN scores count as smaller than every number.
struct TopkParams {
  Rows rows;
  int32_t topk = 0;
  KeyTable table;  // position is read
  const float* scores = nullptr;
  int64_t score_stride = 0;
  int32_t* topk_indices = nullptr;  // [max_rows, topk]
  int32_t* num_selected = nullptr;  // [max_rows]
};
// Pieces: one per row.
const device::OpType& topk(Backend backend);

}  // namespace tidepool::nn
