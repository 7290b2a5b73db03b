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

// Two vectors of keys of one dimension. bf16 pairs are widened in place: of each 32-bit word the low half becomes a
// lane of the first vector, the high half a lane of the second, one instruction each ("paired" order of tokens).
HWY_INLINE void load_keys(const float* keys, V& key0, V& key1) {
  key0 = hn::LoadU(D(), keys);
  key1 = hn::LoadU(D(), keys + kLanes);
}
HWY_INLINE void load_keys(const uint16_t* keys, V& key0, V& key1) {
  const hn::Repartition<uint32_t, D> words;
  const auto pairs = hn::LoadU(words, reinterpret_cast<const uint32_t*>(keys));
  key0 = hn::BitCast(D(), hn::ShiftLeft<16>(pairs));
  key1 = hn::BitCast(D(), hn::And(pairs, hn::Set(words, 0xffff0000u)));
}

// The tile that comes next, prefetched evenly while this one is computed: a burst would wait for memory.
struct Ahead {
  const std::byte *next, *end;
  int32_t lines;  // per kAheadDims dimensions of a block of heads
};
constexpr int32_t kAheadDims = 4;
constexpr int64_t kLineBytes = 64;

Ahead make_ahead(const std::byte* tile, int64_t bytes, int32_t num_heads, int32_t dim) {
  const int64_t calls = HWY_MAX(num_heads / kHeadBlock * (kKeyTile / (2 * kLanes)), 1);
  const int64_t places = HWY_MAX(calls * (dim / kAheadDims), 1);
  return {tile, tile + bytes, static_cast<int32_t>((bytes / kLineBytes + places - 1) / places)};
}

template <int32_t kHeads, typename Key>
HWY_INLINE void add_dimension(const float* q, int32_t dim, const Key* keys, V (&dot0)[kHeads], V (&dot1)[kHeads]) {
  V key0, key1;
  load_keys(keys, key0, key1);
#pragma GCC unroll 16
  for (int32_t h = 0; h < kHeads; ++h) {
    const V value = hn::Set(D(), q[h * dim]);
    dot0[h] = hn::MulAdd(value, key0, dot0[h]);
    dot1[h] = hn::MulAdd(value, key1, dot1[h]);
  }
}

// score += w[h] * relu(q[h] . key) for kHeads heads, ascending; lanes are tokens.
template <int32_t kHeads, typename Key>
HWY_INLINE void score_heads(const float* q, const float* w, int32_t dim, const Key* keys, Ahead& ahead, V& score0,
                            V& score1) {
  const D d;
  V dot0[kHeads], dot1[kHeads];
#pragma GCC unroll 16
  for (int32_t h = 0; h < kHeads; ++h) dot0[h] = dot1[h] = hn::Zero(d);
  int32_t i = 0;
  for (; i + kAheadDims <= dim; i += kAheadDims) {
    for (int32_t line = 0; line < ahead.lines && ahead.next < ahead.end; ++line, ahead.next += kLineBytes) {
      hwy::Prefetch(ahead.next);
    }
#pragma GCC unroll 4
    for (int32_t j = i; j < i + kAheadDims; ++j) add_dimension<kHeads>(q + j, dim, keys + j * kKeyTile, dot0, dot1);
  }
  for (; i < dim; ++i) add_dimension<kHeads>(q + i, dim, keys + i * kKeyTile, dot0, dot1);
#pragma GCC unroll 16
  for (int32_t h = 0; h < kHeads; ++h) {
    const V zero = hn::Zero(d), weight = hn::Set(d, w[h]);
    score0 = hn::MulAdd(weight, hn::IfThenZeroElse(hn::Lt(dot0[h], zero), dot0[h]), score0);
    score1 = hn::MulAdd(weight, hn::IfThenZeroElse(hn::Lt(dot1[h], zero), dot1[h]), score1);
  }
}

// Scores of one tile; kPaired: its keys come in paired order.
template <bool kPaired, typename Key>
HWY_NOINLINE void score_tile(const float* q, const float* w, int32_t num_heads, int32_t dim, const Key* keys,
                             Ahead ahead, float* out) {
  const D d;
  for (int32_t lane = 0; lane < kKeyTile; lane += 2 * kLanes) {
    V score0 = hn::Zero(d), score1 = hn::Zero(d);
    int32_t h = 0;
    for (; h + kHeadBlock <= num_heads; h += kHeadBlock) {
      score_heads<kHeadBlock>(q + h * dim, w + h, dim, keys + lane, ahead, score0, score1);
    }
    for (; h + 2 <= num_heads; h += 2) score_heads<2>(q + h * dim, w + h, dim, keys + lane, ahead, score0, score1);
    for (; h < num_heads; ++h) score_heads<1>(q + h * dim, w + h, dim, keys + lane, ahead, score0, score1);
    if constexpr (kPaired) {
      hn::StoreInterleaved2(score0, score1, d, out + lane);
    } else {
      hn::StoreU(score0, d, out + lane);
      hn::StoreU(score1, d, out + lane + kLanes);
    }
  }
}

HWY_INLINE void widen_tile(const uint16_t* keys, int32_t dim, float* out) {
  for (int32_t i = 0; i < dim * kKeyTile; i += 2 * kLanes) {
    V key0, key1;
    load_keys(keys + i, key0, key1);
    hn::Store(key0, D(), out + i);
    hn::Store(key1, D(), out + i + kLanes);
  }
}

template <bool kPaired, typename Key>
HWY_INLINE void score_rows_of_tile(const IndexScoreParams& p, int32_t begin, int32_t end, int32_t t, const Key* keys,
                                   const std::byte* next) {
  const int64_t heads = p.num_heads, dim = p.keys.dim;
  Ahead ahead = make_ahead(next, static_cast<int64_t>(p.keys.tile_bytes()), p.num_heads, p.keys.dim);
  for (int32_t m = begin; m < end; ++m) {
    if (t >= num_scored_tiles(p, m)) continue;
    score_tile<kPaired>(p.q + m * heads * dim, p.w + m * heads, p.num_heads, p.keys.dim, keys, ahead,
                        score_row(p, m) + t * kKeyTile);
    ahead.next = ahead.end;
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
    // The end of a piece: another thread has taken the next one. The one behind that will be somebody's: most often
    // ours.
    const int32_t after = t + 1 < part.tile_end ? t + 1 : t + 1 + kScoreTilesPerPiece;
    const std::byte* next = after < tiles ? tile_of(p.keys, p.table, slot, after) : tile;
    const auto* narrow = reinterpret_cast<const uint16_t*>(tile);
    if (p.keys.type == DType::kF32) {
      score_rows_of_tile<false>(p, begin, end, t, reinterpret_cast<const float*>(tile), next);
    } else if (p.keys.dim <= kWidenedDim) {
      widen_tile(narrow, p.keys.dim, widened);
      score_rows_of_tile<true>(p, begin, end, t, widened, next);
    } else {
      score_rows_of_tile<true>(p, begin, end, t, narrow, next);
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
