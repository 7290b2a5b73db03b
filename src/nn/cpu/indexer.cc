// index_prepare and index_score on SIMD. Same bits as ref/ on every target with a fused multiply-add.
#include "nn/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/cpu/indexer.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <cmath>

#include "hwy/cache_control.h"
#include "nn/indexer.h"
#include "nn/key_walk.h"

HWY_BEFORE_NAMESPACE();
namespace tidepool::nn {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr int32_t kLanes = HWY_LANES(float);
// Heads x 2 vectors of tokens are one register block: 2 kHeadBlock chains in flight cover the latency of a
// multiply-add.
constexpr int32_t kHeadBlock = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON ? 8 : 6;
// Widened tiles of up to this many dimensions lie on the stack (16 KiB: they stay in L1 while all heads read them).
constexpr int32_t kWidenedDim = 128;

HWY_INLINE V load_keys(const float* keys) { return hn::LoadU(D(), keys); }
HWY_INLINE V load_keys(const uint16_t* keys) {
  const hn::Repartition<uint32_t, D> bits;
  const hn::Rebind<uint16_t, D> half;
  return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(bits, hn::LoadU(half, keys))));
}

// score += w[h] * relu(q[h] . key) for kHeads heads, ascending; lanes are tokens. kAheadBytes > 0: that many bytes of
// `ahead` are prefetched per dimension.
template <int32_t kHeads, int32_t kAheadBytes, typename Key>
HWY_INLINE void score_heads(const float* q, const float* w, int32_t dim, const Key* keys, const std::byte* ahead,
                            V& score0, V& score1) {
  const D d;
  V dot0[kHeads], dot1[kHeads];
#pragma GCC unroll 16
  for (int32_t h = 0; h < kHeads; ++h) dot0[h] = dot1[h] = hn::Zero(d);
  for (int32_t i = 0; i < dim; ++i) {
    const V key0 = load_keys(keys + i * kKeyTile);
    const V key1 = load_keys(keys + i * kKeyTile + kLanes);
    for (int32_t line = 0; line < kAheadBytes; line += 64) hwy::Prefetch(ahead + i * kAheadBytes + line);
#pragma GCC unroll 16
    for (int32_t h = 0; h < kHeads; ++h) {
      const V value = hn::Set(d, q[h * dim + i]);
      dot0[h] = hn::MulAdd(value, key0, dot0[h]);
      dot1[h] = hn::MulAdd(value, key1, dot1[h]);
    }
  }
#pragma GCC unroll 16
  for (int32_t h = 0; h < kHeads; ++h) {
    const V zero = hn::Zero(d), weight = hn::Set(d, w[h]);
    score0 = hn::MulAdd(weight, hn::IfThenZeroElse(hn::Lt(dot0[h], zero), dot0[h]), score0);
    score1 = hn::MulAdd(weight, hn::IfThenZeroElse(hn::Lt(dot1[h], zero), dot1[h]), score1);
  }
}

// Scores of one tile, whose keys are Key now and were kStoredBytes wide; `ahead` is the next tile.
template <int32_t kStoredBytes, typename Key>
HWY_NOINLINE void score_tile(const float* q, const float* w, int32_t num_heads, int32_t dim, const Key* keys,
                             const std::byte* ahead, float* out) {
  const D d;
  for (int32_t lane = 0; lane < kKeyTile; lane += 2 * kLanes) {
    V score0 = hn::Zero(d), score1 = hn::Zero(d);
    int32_t h = 0;
    if (lane == 0 && num_heads >= kHeadBlock) {
      score_heads<kHeadBlock, kKeyTile * kStoredBytes>(q, w, dim, keys, ahead, score0, score1);
      h = kHeadBlock;
    }
    for (; h + kHeadBlock <= num_heads; h += kHeadBlock) {
      score_heads<kHeadBlock, 0>(q + h * dim, w + h, dim, keys + lane, ahead, score0, score1);
    }
    for (; h + 2 <= num_heads; h += 2) score_heads<2, 0>(q + h * dim, w + h, dim, keys + lane, ahead, score0, score1);
    for (; h < num_heads; ++h) score_heads<1, 0>(q + h * dim, w + h, dim, keys + lane, ahead, score0, score1);
    hn::StoreU(score0, d, out + lane);
    hn::StoreU(score1, d, out + lane + kLanes);
  }
}

HWY_INLINE void widen_tile(const uint16_t* keys, int32_t dim, float* out) {
  for (int32_t i = 0; i < dim * kKeyTile; i += kLanes) hn::Store(load_keys(keys + i), D(), out + i);
}

template <int32_t kStoredBytes, typename Key>
HWY_INLINE void score_rows_of_tile(const IndexScoreParams& p, int32_t begin, int32_t end, int32_t t, const Key* keys,
                                   const std::byte* ahead) {
  const int64_t heads = p.num_heads, dim = p.keys.dim;
  for (int32_t m = begin; m < end; ++m) {
    if (t >= num_scored_tiles(p, m)) continue;
    score_tile<kStoredBytes>(p.q + m * heads * dim, p.w + m * heads, p.num_heads, p.keys.dim, keys, ahead,
                             score_row(p, m) + t * kKeyTile);
  }
}

// Rows [begin, end) are of one cache slot: each tile is read and widened once for all of them.
void score_slot_rows(const IndexScoreParams& p, int32_t begin, int32_t end, const ScorePiece& part) {
  int32_t tiles = 0;
  for (int32_t m = begin; m < end; ++m) tiles = HWY_MAX(tiles, num_scored_tiles(p, m));
  HWY_ALIGN float widened[kWidenedDim * kKeyTile];
  for (int32_t t = part.tile_begin; t < HWY_MIN(part.tile_end, tiles); ++t) {
    const int32_t slot = p.table.cache_slot[begin];
    const std::byte* tile = tile_of(p.keys, p.table, slot, t);
    const std::byte* ahead = t + 1 < tiles ? tile_of(p.keys, p.table, slot, t + 1) : tile;
    const auto* narrow = reinterpret_cast<const uint16_t*>(tile);
    if (p.keys.type == DType::kF32) {
      score_rows_of_tile<4>(p, begin, end, t, reinterpret_cast<const float*>(tile), ahead);
    } else if (p.keys.dim <= kWidenedDim) {
      widen_tile(narrow, p.keys.dim, widened);
      score_rows_of_tile<2>(p, begin, end, t, widened, ahead);
    } else {
      score_rows_of_tile<2>(p, begin, end, t, narrow, ahead);
    }
  }
}

void index_score_piece(const IndexScoreParams& p, int32_t piece, int32_t num_pieces) {
  const ScorePiece part = score_piece(p, piece, num_pieces);
  for (int32_t m = part.row_begin; m < part.row_end;) {
    int32_t end = m + 1;
    while (end < part.row_end && p.table.cache_slot[end] == p.table.cache_slot[m]) ++end;
    score_slot_rows(p, m, end, part);
    m = end;
  }
}

// The rotation as y[i] = x[i] * c[i] + x[partner of i] * s[i]; s carries the sign.
struct Rotation {
  float c[kMaxIndexDim], s[kMaxIndexDim];
};

void spread_rotation(const IndexPrepareParams& p, int32_t m, Rotation& rotation) {
  const int32_t half = p.rope_dim / 2;
  for (int32_t j = 0; j < half; ++j) {
    const float c = p.cos_table[static_cast<int64_t>(m) * half + j],
                s = p.sin_table[static_cast<int64_t>(m) * half + j];
    const int32_t first = p.interleave ? 2 * j : j, second = p.interleave ? 2 * j + 1 : j + half;
    rotation.c[first] = rotation.c[second] = c;
    rotation.s[first] = -s;
    rotation.s[second] = s;
  }
}

HWY_INLINE void rotate(float* x, int32_t rope_dim, bool interleave, const Rotation& rotation) {
  const D d;
  const int32_t half = rope_dim / 2;
  int32_t i = 0;
  if (interleave) {
    const hn::Repartition<uint64_t, D> pair;
    for (; i + kLanes <= rope_dim; i += kLanes) {
      const V v = hn::LoadU(d, x + i);
      const V partner = hn::BitCast(d, hn::RotateRight<32>(hn::BitCast(pair, v)));
      hn::StoreU(hn::Add(hn::Mul(v, hn::LoadU(d, rotation.c + i)), hn::Mul(partner, hn::LoadU(d, rotation.s + i))), d,
                 x + i);
    }
    for (; i < rope_dim; i += 2) {
      const float a = x[i], b = x[i + 1];
      x[i] = a * rotation.c[i] + b * rotation.s[i];
      x[i + 1] = b * rotation.c[i + 1] + a * rotation.s[i + 1];
    }
    return;
  }
  for (; i + kLanes <= half; i += kLanes) {
    const V a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + half + i);
    const V c = hn::LoadU(d, rotation.c + i), s = hn::LoadU(d, rotation.s + half + i);
    hn::StoreU(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, x + i);
    hn::StoreU(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, x + half + i);
  }
  for (; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    x[i] = a * rotation.c[i] + b * rotation.s[i];
    x[half + i] = b * rotation.c[i] + a * rotation.s[half + i];
  }
}

// Mean and variance in double, ascending: 2 dim dependent additions per token are nothing beside its projections.
void layer_norm(const IndexPrepareParams& p, const float* k, float* out) {
  const int32_t dim = p.keys.dim;
  double sum = 0, squares = 0;
  for (int32_t i = 0; i < dim; ++i) sum += k[i];
  const double mean = sum / dim;
  for (int32_t i = 0; i < dim; ++i) squares += (k[i] - mean) * (k[i] - mean);
  const float scale = static_cast<float>(1.0 / std::sqrt(squares / dim + static_cast<double>(p.norm_eps)));
  for (int32_t i = 0; i < dim; ++i) {
    out[i] = static_cast<float>(k[i] - mean) * scale * p.norm_weight[i] + p.norm_bias[i];
  }
}

void store_key(const KeyTiles& keys, int32_t loc, const float* key) {
  std::byte* tile = tile_at(keys, loc);
  const int32_t lane = loc % kKeyTile;
  for (int32_t i = 0; i < keys.dim; ++i) {
    if (keys.type == DType::kF32) {
      reinterpret_cast<float*>(tile)[i * kKeyTile + lane] = key[i];
    } else {
      reinterpret_cast<uint16_t*>(tile)[i * kKeyTile + lane] = f32_to_bf16(key[i]);
    }
  }
}

void index_prepare_piece(const IndexPrepareParams& p, int32_t piece) {
  const int64_t heads = p.num_heads, dim = p.keys.dim;
  const int32_t begin = p.rows.begin() + piece * kPrepareRowsPerPiece;
  Rotation rotation;
  HWY_ALIGN float key[kMaxIndexDim];
  for (int32_t m = begin; m < HWY_MIN(begin + kPrepareRowsPerPiece, p.rows.end()); ++m) {
    spread_rotation(p, m, rotation);
    for (int64_t h = 0; h < heads; ++h) rotate(p.q + (m * heads + h) * dim, p.rope_dim, p.interleave != 0, rotation);
    for (int64_t h = 0; h < heads; ++h) p.w[m * heads + h] *= p.w_scale;
    if (p.loc[m] < 0) continue;
    layer_norm(p, p.k + m * dim, key);
    rotate(key, p.rope_dim, p.interleave != 0, rotation);
    store_key(p.keys, p.loc[m], key);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tidepool::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidepool::nn {

HWY_EXPORT(index_prepare_piece);
HWY_EXPORT(index_score_piece);

void cpu_index_prepare(const IndexPrepareParams& p, int32_t piece, int32_t) {
  HWY_DYNAMIC_DISPATCH(index_prepare_piece)(p, piece);
}
void cpu_index_score(const IndexScoreParams& p, int32_t piece, int32_t num_pieces) {
  HWY_DYNAMIC_DISPATCH(index_score_piece)(p, piece, num_pieces);
}

}  // namespace tidepool::nn
#endif
