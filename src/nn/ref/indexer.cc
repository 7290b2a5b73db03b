// The specification of index_prepare and index_score: plain loops in the declared order.
#include <cmath>

#include "nn/indexer.h"
#include "nn/key_walk.h"

namespace tidepool::nn {
namespace {

// Every product and sum rounds on its own.
void rotate(float* x, int32_t rope_dim, bool interleave, const float* cos_row, const float* sin_row) {
  const int32_t half = rope_dim / 2;
  for (int32_t j = 0; j < half; ++j) {
    float& first = interleave ? x[2 * j] : x[j];
    float& second = interleave ? x[2 * j + 1] : x[j + half];
    const float a = first, b = second;
    first = a * cos_row[j] - b * sin_row[j];
    second = b * cos_row[j] + a * sin_row[j];
  }
}

// Mean and variance in double, ascending.
void layer_norm(const IndexPrepareParams& p, const float* k, float* out) {
  const int32_t dim = p.keys.dim;
  double sum = 0, squares = 0;
  for (int32_t d = 0; d < dim; ++d) sum += k[d];
  const double mean = sum / dim;
  for (int32_t d = 0; d < dim; ++d) squares += (k[d] - mean) * (k[d] - mean);
  const float scale = static_cast<float>(1.0 / std::sqrt(squares / dim + static_cast<double>(p.norm_eps)));
  for (int32_t d = 0; d < dim; ++d) {
    out[d] = static_cast<float>(k[d] - mean) * scale * p.norm_weight[d] + p.norm_bias[d];
  }
}

void store_key(const KeyTiles& keys, int32_t loc, int32_t d, float value) {
  std::byte* tile = tile_at(keys, loc);
  const int32_t at = d * kKeyTile + loc % kKeyTile;
  if (keys.type == DType::kF32) {
    reinterpret_cast<float*>(tile)[at] = value;
  } else {
    reinterpret_cast<uint16_t*>(tile)[at] = f32_to_bf16(value);
  }
}

float load_key(const KeyTiles& keys, const std::byte* tile, int32_t d, int32_t lane) {
  const int32_t at = d * kKeyTile + lane;
  if (keys.type == DType::kF32) return reinterpret_cast<const float*>(tile)[at];
  return bf16_to_f32(reinterpret_cast<const uint16_t*>(tile)[at]);
}

void prepare_row(const IndexPrepareParams& p, int32_t m) {
  const int32_t dim = p.keys.dim, half = p.rope_dim / 2;
  const float* cos_row = p.cos_table + static_cast<int64_t>(m) * half;
  const float* sin_row = p.sin_table + static_cast<int64_t>(m) * half;
  for (int32_t h = 0; h < p.num_heads; ++h) {
    rotate(p.q + (static_cast<int64_t>(m) * p.num_heads + h) * dim, p.rope_dim, p.interleave != 0, cos_row, sin_row);
    p.w[static_cast<int64_t>(m) * p.num_heads + h] *= p.w_scale;
  }
  if (p.loc[m] < 0) return;
  float key[kMaxIndexDim];
  layer_norm(p, p.k + static_cast<int64_t>(m) * dim, key);
  rotate(key, p.rope_dim, p.interleave != 0, cos_row, sin_row);
  for (int32_t d = 0; d < dim; ++d) store_key(p.keys, p.loc[m], d, key[d]);
}

float score_of(const IndexScoreParams& p, int32_t m, const std::byte* tile, int32_t lane) {
  const int32_t dim = p.keys.dim;
  float score = 0;
  for (int32_t h = 0; h < p.num_heads; ++h) {
    const float* q = p.q + (static_cast<int64_t>(m) * p.num_heads + h) * dim;
    float dot = 0;
    for (int32_t d = 0; d < dim; ++d) dot = std::fma(q[d], load_key(p.keys, tile, d, lane), dot);
    if (dot < 0) dot = 0;  // a NaN stays
    score = std::fma(p.w[static_cast<int64_t>(m) * p.num_heads + h], dot, score);
  }
  return score;
}

}  // namespace

void ref_index_prepare(const IndexPrepareParams& p, int32_t piece, int32_t) {
  const int32_t begin = p.rows.begin() + piece * kPrepareRowsPerPiece;
  for (int32_t m = begin; m < begin + kPrepareRowsPerPiece && m < p.rows.end(); ++m) prepare_row(p, m);
}

void ref_index_score(const IndexScoreParams& p, int32_t piece, int32_t num_pieces) {
  const ScorePiece part = score_piece(p, piece, num_pieces);
  for (int32_t m = part.row_begin; m < part.row_end; ++m) {
    const int32_t tiles = num_scored_tiles(p, m);
    for (int32_t t = part.tile_begin; t < part.tile_end && t < tiles; ++t) {
      const std::byte* tile = tile_of(p.keys, p.table, p.table.cache_slot[m], t);
      for (int32_t lane = 0; lane < kKeyTile; ++lane) {
        score_row(p, m)[t * kKeyTile + lane] = score_of(p, m, tile, lane);
      }
    }
  }
}

}  // namespace tidepool::nn
