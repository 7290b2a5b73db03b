// Sparse attention on SIMD: rows are read through the location table, each widened once per group of heads.
//
// A row is walked in chunks of two vectors. bf16 pairs are widened in place: of each 32-bit word the low half becomes a
// lane of the first vector, the high half a lane of the second, one instruction each. Queries are packed to that order
// once per piece; sums stay in it ("chunk order") until finish() interleaves them.
// A value never depends on its lane, on the other rows of its register block, or on the launch shape.
#include "nn/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/cpu/sparse_attention.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <cstring>

#include "hwy/cache_control.h"

#include "nn/attention_walk.h"

HWY_BEFORE_NAMESPACE();
namespace tidepool::nn {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using U = hn::Repartition<uint32_t, D>;
using V = hn::Vec<D>;
constexpr int32_t kLanes = HWY_LANES(float);
constexpr int32_t kChunk = 2 * kLanes;
constexpr bool kManyRegisters = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON;
constexpr int32_t kHeadBlock = kManyRegisters ? 8 : 4;  // heads of a register block
constexpr int32_t kRowBlock = 2;                        // rows of a register block (scores)
constexpr int32_t kAhead = 4;                           // rows between a prefetch and its use

struct Bf16Values {
  static constexpr int32_t kBytes = 2;
  HWY_INLINE static void load(const std::byte* at, V& v0, V& v1) {
    const auto words = hn::LoadU(U(), reinterpret_cast<const uint32_t*>(at));
    v0 = hn::BitCast(D(), hn::ShiftLeft<16>(words));
    v1 = hn::BitCast(D(), hn::And(words, hn::Set(U(), 0xffff0000u)));
  }
  HWY_INLINE static void to_chunk(const float* natural, V& v0, V& v1) { hn::LoadInterleaved2(D(), natural, v0, v1); }
  HWY_INLINE static void to_natural(V v0, V v1, float* natural) { hn::StoreInterleaved2(v0, v1, D(), natural); }
};

struct F32Values {
  static constexpr int32_t kBytes = 4;
  HWY_INLINE static void load(const std::byte* at, V& v0, V& v1) {
    to_chunk(reinterpret_cast<const float*>(at), v0, v1);
  }
  HWY_INLINE static void to_chunk(const float* natural, V& v0, V& v1) {
    v0 = hn::LoadU(D(), natural);
    v1 = hn::LoadU(D(), natural + kLanes);
  }
  HWY_INLINE static void to_natural(V v0, V v1, float* natural) {
    hn::StoreU(v0, D(), natural);
    hn::StoreU(v1, D(), natural + kLanes);
  }
};

// The last values of a row that fill no chunk; lanes past them are zero.
template <typename Values>
HWY_NOINLINE void load_tail(const std::byte* at, int32_t values, V& v0, V& v1) {
  HWY_ALIGN std::byte padded[kChunk * sizeof(float)] = {};
  std::memcpy(padded, at, static_cast<size_t>(values * Values::kBytes));
  Values::load(padded, v0, v1);
}

constexpr int32_t round_to_chunk(int32_t values) { return (values + kChunk - 1) / kChunk * kChunk; }

// One piece's working set, on the stack.
struct Scratch {
  HWY_ALIGN float query[kAttentionHeads * kMaxAttentionWidth];  // [chunk, heads, kChunk]: read front to back
  HWY_ALIGN float weight[(kAttentionBlock + kRowBlock) * kAttentionHeads + kLanes];  // [entry, heads]: scores, then exp
  HWY_ALIGN float block_max[kAttentionHeads + kLanes], block_sum[kAttentionHeads];
  const std::byte* latent[kAttentionBlock + kAhead];
  const std::byte* rope[kAttentionBlock + kAhead];
  int32_t heads;        // of this piece, padded to 4 or 8 with zero queries
  int32_t num_entries;  // of this block
};

// One head's values of one plane, to every heads-th chunk.
template <typename Values>
void pack_part(const float* from, int32_t values, int32_t heads, float* to) {
  const D d;
  V v0, v1;
  for (; values >= kChunk; values -= kChunk, from += kChunk, to += heads * kChunk) {
    Values::to_chunk(from, v0, v1);
    hn::Store(v0, d, to);
    hn::Store(v1, d, to + kLanes);
  }
  if (values == 0) return;
  HWY_ALIGN float padded[kChunk] = {};
  std::memcpy(padded, from, sizeof(float) * static_cast<size_t>(values));
  Values::to_chunk(padded, v0, v1);
  hn::Store(v0, d, to);
  hn::Store(v1, d, to + kLanes);
}

template <typename Values>
void pack_queries(const SparseAttentionParams& p, int32_t m, HeadRange heads, Scratch& s) {
  const int32_t latent = p.format.latent_values, rope = p.format.rope_values;
  s.heads = heads.end - heads.begin <= 4 ? 4 : 8;
  for (int32_t h = 0; h < kAttentionHeads; ++h) s.block_max[h] = s.block_sum[h] = 0;
  const int32_t padded_latent = round_to_chunk(latent), padded_width = padded_latent + round_to_chunk(rope);
  if (heads.end - heads.begin < s.heads)
    std::memset(s.query, 0, sizeof(float) * static_cast<size_t>(padded_width * s.heads));
  for (int32_t h = 0; h < heads.end - heads.begin; ++h) {
    const float* from = query_of(p, m, heads.begin + h);
    pack_part<Values>(from, latent, s.heads, s.query + h * kChunk);
    pack_part<Values>(from + latent, rope, s.heads, s.query + padded_latent * s.heads + h * kChunk);
  }
}

// Where the block's rows lie; behind them the next rows of the list, for prefetching only.
void find_rows(const SparseAttentionParams& p, int32_t m, int32_t block, Scratch& s) {
  const RowLocation* list = row_list(p, m);
  const int32_t begin = block * kAttentionBlock, length = p.num_selected[m];
  const int32_t end = HWY_MIN(begin + kAttentionBlock, length);
  int32_t n = 0;
  for (int32_t i = begin; i < end; ++i) {
    if (list[i].place == Place::kNone) continue;
    const RowPlanes& planes = p.places[list[i].place];
    s.latent[n] = planes.latent.row(list[i].index);
    s.rope[n++] = planes.rope.row(list[i].index);
  }
  s.num_entries = n;
  for (int32_t i = 0; i < kAhead && n > 0; ++i) {
    const RowLocation next = end + i < length ? list[end + i] : RowLocation{};
    s.latent[n + i] = next.place == Place::kNone ? s.latent[n - 1] : p.places[next.place].latent.row(next.index);
    s.rope[n + i] = next.place == Place::kNone ? s.rope[n - 1] : p.places[next.place].rope.row(next.index);
  }
}

// The four sums of lanes; one tree for each of them.
HWY_INLINE hn::Vec<hn::FixedTag<float, 4>> sum_lanes(V a, V b, V c, V e) {
  const D d;
  const hn::Repartition<uint64_t, D> d64;
  const auto ab = hn::BitCast(d64, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  const auto ce = hn::BitCast(d64, hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e)));
  const V sums =
      hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, ab, ce)), hn::BitCast(d, hn::InterleaveUpper(d64, ab, ce)));
#if HWY_CAP_GE512
  const hn::Half<D> d8;
  const auto half = hn::Add(hn::LowerHalf(d8, sums), hn::UpperHalf(d8, sums));
  const hn::Half<decltype(d8)> d4;
  return hn::Add(hn::LowerHalf(d4, half), hn::UpperHalf(d4, half));
#elif HWY_CAP_GE256
  const hn::Half<D> d4;
  return hn::Add(hn::LowerHalf(d4, sums), hn::UpperHalf(d4, sums));
#else
  return sums;
#endif
}

template <int32_t kHeads>
struct DotSums {
  V of[kRowBlock][kHeads];
};

// Keeps a value in a register: the compiler would rather load it again for each use, and loads are what is scarce.
HWY_INLINE V in_register(V v) {
#if HWY_ARCH_X86
  asm("" : "+v"(v.raw));
#endif
  return v;
}

// sums += rows . queries over whole chunks. query: [chunk, heads, kChunk], from the first head of the block.
template <typename Values, int32_t kHeads>
HWY_INLINE void dot_chunks(const std::byte* row0, const std::byte* row1, const std::byte* ahead0,
                           const std::byte* ahead1, int32_t num_chunks, const float* query, int32_t heads,
                           DotSums<kHeads>& sums) {
  constexpr int32_t kBytes = kChunk * Values::kBytes;
  const D d;
  for (int32_t c = 0; c < num_chunks; ++c, query += heads * kChunk) {
    V v00, v01, v10, v11;
    Values::load(row0 + c * kBytes, v00, v01);
    Values::load(row1 + c * kBytes, v10, v11);
    for (int32_t line = 0; line < kBytes; line += 64) {
      hwy::Prefetch(ahead0 + c * kBytes + line);
      hwy::Prefetch(ahead1 + c * kBytes + line);
    }
#pragma GCC unroll 8
    for (int32_t h = 0; h < kHeads; ++h) {
      const V q = in_register(hn::Load(d, query + h * kChunk));
      sums.of[0][h] = hn::MulAdd(v00, q, sums.of[0][h]);
      sums.of[1][h] = hn::MulAdd(v10, q, sums.of[1][h]);
    }
#pragma GCC unroll 8
    for (int32_t h = 0; h < kHeads; ++h) {
      const V q = in_register(hn::Load(d, query + h * kChunk + kLanes));
      sums.of[0][h] = hn::MulAdd(v01, q, sums.of[0][h]);
      sums.of[1][h] = hn::MulAdd(v11, q, sums.of[1][h]);
    }
  }
}

// sums += rows . queries over one plane of two rows, rows[0] and rows[second]; those kAhead further on are prefetched.
template <typename Values, int32_t kHeads>
HWY_INLINE void dot_plane(const std::byte* const* rows, int32_t second, int32_t values, const float* query,
                          int32_t heads, DotSums<kHeads>& sums) {
  const int32_t whole = values / kChunk, tail = values % kChunk;
  dot_chunks<Values>(rows[0], rows[second], rows[kAhead], rows[kAhead + second], whole, query, heads, sums);
  if (HWY_LIKELY(tail == 0)) return;
  HWY_ALIGN std::byte padded[kRowBlock][kChunk * sizeof(float)] = {};
  const size_t from = static_cast<size_t>(whole * kChunk * Values::kBytes),
               bytes = static_cast<size_t>(tail * Values::kBytes);
  std::memcpy(padded[0], rows[0] + from, bytes);
  std::memcpy(padded[1], rows[second] + from, bytes);
  dot_chunks<Values>(padded[0], padded[1], padded[0], padded[1], 1, query + whole * heads * kChunk, heads, sums);
}

// Scores of the block's entries for heads [head, head + kHeads).
template <typename Values, int32_t kHeads>
HWY_NOINLINE void score_heads(const SparseAttentionParams& p, int32_t head, Scratch& s) {
  const hn::FixedTag<float, 4> d4;
  const auto scale = hn::Set(d4, p.scale);
  const int32_t latent = p.format.latent_values;
  const float* query = s.query + head * kChunk;
  for (int32_t i = 0; i < s.num_entries; i += kRowBlock) {
    const int32_t second = i + 1 < s.num_entries ? 1 : 0;  // an odd row is its own partner
    DotSums<kHeads> sums;
#pragma GCC unroll 8
    for (int32_t h = 0; h < kHeads; ++h) sums.of[0][h] = sums.of[1][h] = hn::Zero(D());
    dot_plane<Values>(s.latent + i, second, latent, query, s.heads, sums);
    dot_plane<Values>(s.rope + i, second, p.format.rope_values, query + round_to_chunk(latent) * s.heads, s.heads,
                      sums);
#pragma GCC unroll 2
    for (int32_t r = 0; r < kRowBlock; ++r) {
#pragma GCC unroll 2
      for (int32_t h = 0; h < kHeads; h += 4) {
        const auto dot = sum_lanes(sums.of[r][h], sums.of[r][h + 1], sums.of[r][h + 2], sums.of[r][h + 3]);
        hn::Store(hn::Mul(dot, scale), d4, s.weight + (i + r) * s.heads + head + h);
      }
    }
  }
}

// exp(x) for x <= 0 to about 1.5 ulp; exp(0) = 1; below the smallest normal result 0; NaN stays.
template <class DF, class VF = hn::Vec<DF>>
HWY_INLINE VF exp_of(DF d, VF x) {
  const hn::RebindToSigned<DF> di;
  const VF n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504f)));
  VF r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  VF sum = hn::Set(d, 1.9875691500e-4f);
  sum = hn::MulAdd(sum, r, hn::Set(d, 1.3981999507e-3f));
  sum = hn::MulAdd(sum, r, hn::Set(d, 8.3334519073e-3f));
  sum = hn::MulAdd(sum, r, hn::Set(d, 4.1665795894e-2f));
  sum = hn::MulAdd(sum, r, hn::Set(d, 1.6666665459e-1f));
  sum = hn::MulAdd(sum, r, hn::Set(d, 5.0000001201e-1f));
  sum = hn::Add(hn::MulAdd(sum, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const VF power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127))));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.33f)), hn::Mul(sum, power));
}

// s.weight: scores -> exp(score - max); sums in ascending entries. kHeads = s.heads.
template <int32_t kHeads>
HWY_NOINLINE void softmax_block(Scratch& s) {
  const D d;
  const hn::CappedTag<float, kHeads> dh;
  const int32_t step = static_cast<int32_t>(hn::Lanes(dh)), n = s.num_entries;
  for (int32_t h = 0; h < kHeads; h += step) {
    auto max = hn::Load(dh, s.weight + h);
    for (int32_t i = 1; i < n; ++i) max = hn::Max(max, hn::Load(dh, s.weight + i * kHeads + h));
    hn::Store(max, dh, s.block_max + h);
  }
  // Lanes of a vector wider than the heads repeat them.
  for (int32_t h = kHeads; h < kLanes; ++h) s.block_max[h] = s.block_max[h - kHeads];
  for (int32_t i = n * kHeads; i < (n + kRowBlock) * kHeads; ++i) s.weight[i] = 0;
  for (int32_t i = 0; i < n * kHeads; i += kLanes) {
    const V max = hn::Load(d, s.block_max + i % kHeads);
    hn::Store(exp_of(d, hn::Sub(hn::Load(d, s.weight + i), max)), d, s.weight + i);
  }
  for (int32_t h = 0; h < kHeads; h += step) {
    auto sum = hn::Zero(dh);
    for (int32_t i = 0; i < n; ++i) sum = hn::Add(sum, hn::Load(dh, s.weight + i * kHeads + h));
    hn::Store(sum, dh, s.block_sum + h);
  }
}

// A, L and M of the blocks folded so far, for the heads of a piece; A lies in the output rows, in chunk order.
struct Folded {
  HWY_ALIGN float max[kAttentionHeads], sum[kAttentionHeads], old_factor[kAttentionHeads], factor[kAttentionHeads];
  bool any = false;   // a block has been folded
  bool first = true;  // the block being folded is the first
};

// M and L take in a block; the factors for A come out.
void fold_sums(const float* block_max, const float* block_sum, Folded& f) {
  const hn::CappedTag<float, 4> d;
  f.first = !f.any;
  f.any = true;
  for (int32_t h = 0; h < kAttentionHeads; h += 4) {
    const auto new_max = hn::LoadU(d, block_max + h), new_sum = hn::LoadU(d, block_sum + h);
    if (f.first) {
      hn::StoreU(new_max, d, f.max + h);
      hn::StoreU(new_sum, d, f.sum + h);
      continue;
    }
    const auto max = hn::Max(hn::LoadU(d, f.max + h), new_max);
    const auto old_factor = exp_of(d, hn::Sub(hn::LoadU(d, f.max + h), max));
    const auto factor = exp_of(d, hn::Sub(new_max, max));
    hn::StoreU(hn::MulAdd(new_sum, factor, hn::Mul(hn::LoadU(d, f.sum + h), old_factor)), d, f.sum + h);
    hn::StoreU(max, d, f.max + h);
    hn::StoreU(old_factor, d, f.old_factor + h);
    hn::StoreU(factor, d, f.factor + h);
  }
}

HWY_INLINE V fold_value(V a, V sum, const Folded& f, int32_t head) {
  const D d;
  return hn::MulAdd(a, hn::Set(d, f.factor[head]), hn::Mul(sum, hn::Set(d, f.old_factor[head])));
}

// Where a block's value sums go: into A...
struct FoldSink {
  float* to;  // head 0
  int32_t stride;
  const Folded& folded;
  HWY_INLINE float* at(int32_t head, int32_t i) const { return to + head * stride + i; }
  HWY_INLINE void put(V a, int32_t head, float* at) const {
    hn::StoreU(folded.first ? a : fold_value(a, hn::LoadU(D(), at), folded, head), D(), at);
  }
};
// ...or to the workspace.
struct StoreSink {
  float* to;
  int32_t stride;
  HWY_INLINE float* at(int32_t head, int32_t i) const { return to + head * stride + i; }
  HWY_INLINE void put(V a, int32_t, float* at) const { hn::StoreU(a, D(), at); }
};

// The last values, which fill no chunk, stand in natural order: nothing behind them may be touched.
template <typename Values, class Sink>
HWY_INLINE void put_tail(Sink sink, V v0, V v1, int32_t head, int32_t i, int32_t values) {
  HWY_ALIGN float a[kChunk], was[kChunk] = {};
  Values::to_natural(v0, v1, a);
  const size_t bytes = sizeof(float) * static_cast<size_t>(values);
  std::memcpy(was, sink.at(head, i), bytes);
  sink.put(hn::Load(D(), a), head, was);
  sink.put(hn::Load(D(), a + kLanes), head, was + kLanes);
  std::memcpy(sink.at(head, i), was, bytes);
}

// a[head][i .. i + kChunk) for kHeads heads: chains over the entries, ascending.
template <typename Values, int32_t kHeads, bool kTail>
HWY_INLINE void add_values(const Scratch& s, int32_t head, int32_t i, int32_t tail, V (&sum0)[kHeads],
                           V (&sum1)[kHeads]) {
  const D d;
#pragma GCC unroll 8
  for (int32_t h = 0; h < kHeads; ++h) sum0[h] = sum1[h] = hn::Zero(d);
  const float* weight = s.weight + head;
  for (int32_t e = 0; e < s.num_entries; ++e, weight += s.heads) {
    V v0, v1;
    if constexpr (kTail) {
      load_tail<Values>(s.latent[e] + i * Values::kBytes, tail, v0, v1);
    } else {
      Values::load(s.latent[e] + i * Values::kBytes, v0, v1);
    }
#pragma GCC unroll 8
    for (int32_t h = 0; h < kHeads; ++h) {
      const V w = hn::Set(d, weight[h]);
      sum0[h] = hn::MulAdd(v0, w, sum0[h]);
      sum1[h] = hn::MulAdd(v1, w, sum1[h]);
    }
  }
}

template <typename Values, int32_t kHeads, class Sink>
HWY_NOINLINE void sum_values(const Scratch& s, int32_t head, int32_t end, int32_t latent, Sink sink) {
  V sum0[kHeads], sum1[kHeads];
  int32_t i = 0;
  for (; i + kChunk <= latent; i += kChunk) {
    add_values<Values, kHeads, false>(s, head, i, 0, sum0, sum1);
#pragma GCC unroll 8
    for (int32_t h = 0; h < kHeads; ++h) {
      if (head + h >= end) continue;
      sink.put(sum0[h], head + h, sink.at(head + h, i));
      sink.put(sum1[h], head + h, sink.at(head + h, i + kLanes));
    }
  }
  if (i == latent) return;
  add_values<Values, kHeads, true>(s, head, i, latent - i, sum0, sum1);
  for (int32_t h = 0; h < kHeads && head + h < end; ++h)
    put_tail<Values>(sink, sum0[h], sum1[h], head + h, i, latent - i);
}

// Scores and weights of a block. Queries are packed.
template <typename Values>
void weigh_block(const SparseAttentionParams& p, Scratch& s) {
  if (s.heads == 4) {
    score_heads<Values, 4>(p, 0, s);
    softmax_block<4>(s);
    return;
  }
  for (int32_t h = 0; h < 8; h += kHeadBlock) score_heads<Values, kHeadBlock>(p, h, s);
  softmax_block<8>(s);
}

template <typename Values, class Sink>
void sum_block(const SparseAttentionParams& p, const Scratch& s, int32_t num_heads, Sink sink) {
  if (s.heads == 4) {
    sum_values<Values, 4>(s, 0, num_heads, p.format.latent_values, sink);
    return;
  }
  for (int32_t h = 0; h < 8; h += kHeadBlock)
    sum_values<Values, kHeadBlock>(s, h, num_heads, p.format.latent_values, sink);
}

// u = A / L, back in natural order.
template <typename Values>
void finish(const SparseAttentionParams& p, int32_t m, HeadRange heads, const Folded& f) {
  const D d;
  const int32_t latent = p.format.latent_values;
  for (int32_t h = heads.begin; h < heads.end; ++h) {
    float* u = output_of(p, m, h);
    if (!f.any) {
      std::memset(u, 0, sizeof(float) * static_cast<size_t>(latent));
      continue;
    }
    const float sum = f.sum[h - heads.begin];
    int32_t i = 0;
    for (; i + kChunk <= latent; i += kChunk) {
      const V v0 = hn::Div(hn::LoadU(d, u + i), hn::Set(d, sum)),
              v1 = hn::Div(hn::LoadU(d, u + i + kLanes), hn::Set(d, sum));
      Values::to_natural(v0, v1, u + i);
    }
    for (; i < latent; ++i) u[i] /= sum;
  }
}

template <typename Values>
void whole_piece(const SparseAttentionParams& p, int32_t piece) {
  const int32_t m = p.rows.begin() + piece / num_head_groups(p);
  const HeadRange heads = head_range(p, piece % num_head_groups(p));
  Scratch s;
  Folded folded;
  if (p.num_selected[m] > 0) pack_queries<Values>(p, m, heads, s);
  for (int32_t block = 0; block < num_list_blocks(p.num_selected[m]); ++block) {
    find_rows(p, m, block, s);
    if (s.num_entries == 0) continue;
    weigh_block<Values>(p, s);
    fold_sums(s.block_max, s.block_sum, folded);
    sum_block<Values>(p, s, heads.end - heads.begin,
                      FoldSink{output_of(p, m, heads.begin), p.format.latent_values, folded});
  }
  finish<Values>(p, m, heads, folded);
}

template <typename Values>
void split_piece_of(const SparseAttentionParams& p, SplitPiece part) {
  if (part.block >= num_list_blocks(p.num_selected[part.row])) return;
  const HeadRange heads = head_range(p, part.group);
  const int32_t num_heads = heads.end - heads.begin, latent = p.format.latent_values;
  float* partial = partial_of(p, part.row, part.block, heads.begin);
  Scratch s;
  find_rows(p, part.row, part.block, s);
  if (s.num_entries == 0) {
    for (int32_t h = 0; h < num_heads; ++h) partial[h * (latent + 2) + latent + 1] = 0;
    return;
  }
  pack_queries<Values>(p, part.row, heads, s);
  weigh_block<Values>(p, s);
  for (int32_t h = 0; h < num_heads; ++h) {
    partial[h * (latent + 2) + latent] = s.block_max[h];
    partial[h * (latent + 2) + latent + 1] = s.block_sum[h];
  }
  sum_block<Values>(p, s, num_heads, StoreSink{partial, latent + 2});
}

// One head's A takes in a block's a; values stand in the same order in both.
void fold_head(const float* a, int32_t latent, int32_t head, FoldSink sink) {
  const D d;
  int32_t i = 0;
  for (; i + kLanes <= latent; i += kLanes) sink.put(hn::LoadU(d, a + i), head, sink.at(head, i));
  if (i == latent) return;
  HWY_ALIGN float padded[kChunk] = {};
  std::memcpy(padded, a + i, sizeof(float) * static_cast<size_t>(latent - i));
  put_tail<F32Values>(sink, hn::Load(d, padded), hn::Load(d, padded + kLanes), head, i, latent - i);
}

template <typename Values>
void merge_piece(const SparseAttentionParams& p, int32_t piece) {
  const int32_t m = p.rows.begin() + piece / num_head_groups(p), latent = p.format.latent_values;
  const HeadRange heads = head_range(p, piece % num_head_groups(p));
  Folded folded;
  const FoldSink sink{output_of(p, m, heads.begin), latent, folded};
  float block_max[kAttentionHeads] = {}, block_sum[kAttentionHeads] = {};
  for (int32_t block = 0; block < num_list_blocks(p.num_selected[m]); ++block) {
    const float* partial = partial_of(p, m, block, heads.begin);
    if (partial[latent + 1] == 0) continue;
    for (int32_t h = 0; h < heads.end - heads.begin; ++h) {
      block_max[h] = partial[h * (latent + 2) + latent];
      block_sum[h] = partial[h * (latent + 2) + latent + 1];
    }
    fold_sums(block_max, block_sum, folded);
    for (int32_t h = 0; h < heads.end - heads.begin; ++h) fold_head(partial + h * (latent + 2), latent, h, sink);
  }
  finish<Values>(p, m, heads, folded);
}

void attention_whole_piece(const SparseAttentionParams& p, int32_t piece) {
  p.format.type == DType::kF32 ? whole_piece<F32Values>(p, piece) : whole_piece<Bf16Values>(p, piece);
}
void attention_split_piece(const SparseAttentionParams& p, int32_t piece, int32_t num_pieces) {
  const SplitPiece part = split_piece(p, piece, num_pieces);
  p.format.type == DType::kF32 ? split_piece_of<F32Values>(p, part) : split_piece_of<Bf16Values>(p, part);
}
void attention_merge_piece(const SparseAttentionParams& p, int32_t piece) {
  p.format.type == DType::kF32 ? merge_piece<F32Values>(p, piece) : merge_piece<Bf16Values>(p, piece);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tidepool::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidepool::nn {

HWY_EXPORT(attention_whole_piece);
HWY_EXPORT(attention_split_piece);
HWY_EXPORT(attention_merge_piece);

void cpu_attention_whole(const SparseAttentionParams& p, int32_t piece, int32_t) {
  HWY_DYNAMIC_DISPATCH(attention_whole_piece)(p, piece);
}
void cpu_attention_split(const SparseAttentionParams& p, int32_t piece, int32_t num_pieces) {
  HWY_DYNAMIC_DISPATCH(attention_split_piece)(p, piece, num_pieces);
}
void cpu_attention_merge(const SparseAttentionParams& p, int32_t piece, int32_t) {
  HWY_DYNAMIC_DISPATCH(attention_merge_piece)(p, piece);
}

}  // namespace tidepool::nn
#endif
