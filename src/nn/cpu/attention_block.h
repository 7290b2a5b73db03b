// What every walk over a block of entries shares: packed queries, dot products, softmax, folding. Once per SIMD target.
#if defined(TIDEPOOL_NN_CPU_ATTENTION_BLOCK_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIDEPOOL_NN_CPU_ATTENTION_BLOCK_H_
#undef TIDEPOOL_NN_CPU_ATTENTION_BLOCK_H_
#else
#define TIDEPOOL_NN_CPU_ATTENTION_BLOCK_H_
#endif

#include <cstring>

#include "hwy/cache_control.h"

#include "nn/cpu/attention_values.h"

HWY_BEFORE_NAMESPACE();
namespace tidepool::nn {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr bool kManyRegisters = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON;
constexpr int32_t kHeadBlock = kManyRegisters ? 8 : 4;  // heads of a register block
constexpr int32_t kRowBlock = 2;                        // rows of a register block (scores)

// One query row's share of a piece, on the stack.
struct Scratch {
  HWY_ALIGN float query[kAttentionHeads * kMaxAttentionWidth];  // [chunk, heads, kChunk]: read front to back
  HWY_ALIGN float weight[(kAttentionBlock + kRowBlock) * kAttentionHeads + kLanes];  // [entry, heads]: scores, then exp
  HWY_ALIGN float block_max[kAttentionHeads + kLanes], block_sum[kAttentionHeads];
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

template <class Row>
void pack_queries(const SparseAttentionParams& p, int32_t m, HeadRange heads, Scratch& s) {
  const int32_t latent = p.format.latent_values, rope = p.format.rope_values;
  s.heads = heads.end - heads.begin <= 4 ? 4 : 8;
  for (int32_t h = 0; h < kAttentionHeads; ++h) s.block_max[h] = s.block_sum[h] = 0;
  const int32_t padded_latent = round_to_chunk(latent), padded_width = padded_latent + round_to_chunk(rope);
  if (heads.end - heads.begin < s.heads)
    std::memset(s.query, 0, sizeof(float) * static_cast<size_t>(padded_width * s.heads));
  for (int32_t h = 0; h < heads.end - heads.begin; ++h) {
    const float* from = query_of(p, m, heads.begin + h);
    pack_part<typename Row::Latent>(from, latent, s.heads, s.query + h * kChunk);
    pack_part<typename Row::Rope>(from + latent, rope, s.heads, s.query + padded_latent * s.heads + h * kChunk);
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

// sums += rows . queries over whole chunks. query: [chunk, heads, kChunk], from the first head of the block. Meanwhile
// kAheadBytes a chunk are prefetched from two other rows.
template <typename Values, int32_t kHeads, int32_t kAheadBytes = kChunk* Values::kBytes>
HWY_INLINE void dot_chunks(const std::byte* row0, const std::byte* row1, const std::byte* ahead0,
                           const std::byte* ahead1, int32_t values, int32_t num_chunks, const float* query,
                           int32_t heads, DotSums<kHeads>& sums) {
  const D d;
  for (int32_t c = 0; c < num_chunks; ++c, query += heads * kChunk) {
    V v00, v01, v10, v11;
    load_chunk<Values, false>(row0, values, c * kChunk, v00, v01);
    load_chunk<Values, false>(row1, values, c * kChunk, v10, v11);
    for (int32_t line = 0; line < kAheadBytes; line += 64) {
      hwy::Prefetch(ahead0 + c * kAheadBytes + line);
      hwy::Prefetch(ahead1 + c * kAheadBytes + line);
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

// Scores of two entries; an entry without a partner is given twice.
template <int32_t kHeads>
HWY_INLINE void store_scores(const DotSums<kHeads>& sums, float scale, int32_t entry0, int32_t entry1, int32_t head,
                             Scratch& s) {
  const hn::FixedTag<float, 4> d4;
  const int32_t entry[kRowBlock] = {entry0, entry1};
#pragma GCC unroll 2
  for (int32_t r = 0; r < kRowBlock; ++r) {
#pragma GCC unroll 2
    for (int32_t h = 0; h < kHeads; h += 4) {
      const auto dot = sum_lanes(sums.of[r][h], sums.of[r][h + 1], sums.of[r][h + 2], sums.of[r][h + 3]);
      hn::Store(hn::Mul(dot, hn::Set(d4, scale)), d4, s.weight + entry[r] * s.heads + head + h);
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
  float* to = nullptr;
  int32_t stride = 0;
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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tidepool::nn
HWY_AFTER_NAMESPACE();

#endif  // per target
