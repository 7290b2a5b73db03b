// Exact top-k. Scores are mapped to integers of the same order; the K-th largest key is found bit by bit, each by
// counting a whole vector at a time. Long rows first drop what is surely not selected: a pivot below the cut, guessed
// from a sample, leaves a few thousand candidates that fit in L1. A bad guess costs time, never exactness.
#include "nn/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/cpu/topk.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <cmath>
#include <cstring>

#include "nn/indexer.h"
#include "nn/key_walk.h"

HWY_BEFORE_NAMESPACE();
namespace tidepool::nn {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::ScalableTag<int32_t>;
using VI = hn::Vec<DI>;
constexpr int32_t kLanes = HWY_LANES(float);
constexpr bool kCheapCompress = HWY_TARGET == HWY_AVX3;  // cheaper than a branch that is often wrong
constexpr int32_t kSmallest = INT32_MIN;                 // the key of NaN; no number has it

// Order preserving: larger score, larger key; -0 and 0 share a key, all NaN share the smallest.
HWY_INLINE VI key_of(hn::Vec<DF> score) {
  const DF df;
  const DI di;
  const auto bits = hn::BitCast(di, hn::Add(score, hn::Zero(df)));
  const auto magnitude = hn::And(hn::ShiftRight<31>(bits), hn::Set(di, INT32_MAX));
  return hn::IfThenElse(hn::RebindMask(di, hn::Eq(score, score)), hn::Xor(bits, magnitude), hn::Set(di, kSmallest));
}

// Keys of a row of scores, or ready keys.
struct ScoreKeys {
  const float* scores;
  HWY_INLINE VI at(int32_t i) const { return key_of(hn::LoadU(DF(), scores + i)); }
  HWY_INLINE int32_t one(int32_t i) const { return hn::GetLane(key_of(hn::Set(DF(), scores[i]))); }
};
struct ReadyKeys {
  const int32_t* keys;
  HWY_INLINE VI at(int32_t i) const { return hn::LoadU(DI(), keys + i); }
  HWY_INLINE int32_t one(int32_t i) const { return keys[i]; }
};

template <typename Keys>
HWY_NOINLINE int32_t count_at_least(Keys keys, int32_t n, int32_t pivot) {
  const DI di;
  const VI at = hn::Set(di, pivot), one = hn::Set(di, 1);
  VI fewer0 = hn::Zero(di), fewer1 = hn::Zero(di);
  int32_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    fewer0 = hn::Add(fewer0, hn::IfThenElseZero(hn::Lt(keys.at(i), at), one));
    fewer1 = hn::Add(fewer1, hn::IfThenElseZero(hn::Lt(keys.at(i + kLanes), at), one));
  }
  int32_t fewer = hn::GetLane(hn::SumOfLanes(di, hn::Add(fewer0, fewer1)));
  for (; i < n; ++i) fewer += keys.one(i) < pivot;
  return n - fewer;
}

// A pivot that at least rank keys reach and fewer than rank exceed (rank >= 1): the rank-th largest key, or a value
// between it and the next smaller one.
template <typename Keys>
int32_t nth_largest(Keys keys, int32_t n, int32_t rank) {
  uint32_t found = 0;  // with the sign bit flipped, so that bits are decided from the top in unsigned order
  for (int32_t bit = 31; bit >= 0; --bit) {
    const uint32_t tried = found | (1u << bit);
    const int32_t count = count_at_least(keys, n, static_cast<int32_t>(tried ^ 0x80000000u));
    if (count >= rank) found = tried;
    if (count == rank) break;
  }
  return static_cast<int32_t>(found ^ 0x80000000u);
}

// Where selected positions go: whole vectors while they fit, so that nothing behind the list is touched.
struct Output {
  int32_t* out;
  int32_t capacity;
  int32_t count = 0;

  HWY_INLINE void append(VI positions, hn::Mask<DI> mask) {
    const DI di;
    const VI packed = hn::Compress(positions, mask);
    const int32_t more = static_cast<int32_t>(hn::CountTrue(di, mask));
    if (count + kLanes <= capacity) {
      hn::StoreU(packed, di, out + count);
    } else {
      HWY_ALIGN int32_t lanes[kLanes];
      hn::Store(packed, di, lanes);
      std::memcpy(out + count, lanes, static_cast<size_t>(more) * sizeof(int32_t));
    }
    count += more;
  }
};

// The first `keep` true lanes of a mask.
HWY_NOINLINE hn::Mask<DI> first_true(hn::Mask<DI> mask, int32_t keep) {
  const DI di;
  HWY_ALIGN int32_t lanes[kLanes];
  hn::Store(hn::VecFromMask(di, mask), di, lanes);
  for (int32_t& lane : lanes) lane = lane != 0 && keep-- > 0 ? -1 : 0;
  return hn::MaskFromVec(hn::Load(di, lanes));
}

// Positions whose key exceeds the cut, and the first `ties` of those at the cut, ascending. positions: null for 0, 1,
// ...
template <typename Keys>
HWY_NOINLINE void write_selected(Keys keys, const int32_t* positions, int32_t n, int32_t cut, int32_t ties,
                                 Output& output) {
  const DI di;
  const VI at = hn::Set(di, cut), lanes = hn::Iota(di, 0);
  int32_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const VI key = keys.at(i);
    auto chosen = hn::Gt(key, at);
    if (ties > 0) {
      const auto equal = hn::Eq(key, at);
      const int32_t here = static_cast<int32_t>(hn::CountTrue(di, equal));
      chosen = hn::Or(chosen, here <= ties ? equal : first_true(equal, ties));
      ties = here <= ties ? ties - here : 0;
    }
    if (hn::AllFalse(di, chosen)) continue;
    output.append(positions ? hn::LoadU(di, positions + i) : hn::Add(lanes, hn::Set(di, i)), chosen);
  }
  for (; i < n && output.count < output.capacity; ++i) {
    const int32_t key = keys.one(i);
    if (key < cut || (key == cut && ties-- <= 0)) continue;
    output.out[output.count++] = positions ? positions[i] : i;
  }
}

template <typename Keys>
void select(Keys keys, const int32_t* positions, int32_t n, int32_t k, int32_t* out) {
  const int32_t cut = nth_largest(keys, n, k);
  const int32_t above = cut == INT32_MAX ? 0 : count_at_least(keys, n, cut + 1);
  Output output{out, k};
  write_selected(keys, positions, n, cut, k - above, output);
}

constexpr int32_t kCandidates = 6144;
struct Candidates {
  int32_t keys[kCandidates + kLanes];
  int32_t positions[kCandidates + kLanes];
};

// A pivot that somewhat more than k of the n scores should exceed, and fewer than kCandidates.
int32_t guess_pivot(const float* scores, int32_t n, int32_t k, Candidates& scratch) {
  const int32_t samples = n >= (1 << 19) ? kCandidates : kCandidates / 3;
  const int64_t step = n / samples;
  HWY_ALIGN float gathered[kLanes];
  int32_t used = 0;
  for (int32_t i = 0; i < samples; i += kLanes) {
    for (int32_t lane = 0; lane < kLanes; ++lane) gathered[lane] = scores[(i + lane) * step];
    hn::StoreU(key_of(hn::Load(DF(), gathered)), DI(), scratch.keys + i);
    used += kLanes;
  }
  // Expected rank of the cut in the sample, plus three standard deviations.
  const int32_t expected = static_cast<int32_t>(static_cast<int64_t>(k) * used / n);
  int32_t root = 1;
  while (root * root < expected) ++root;
  const int32_t rank = expected + 3 * root + 4;
  return nth_largest(ReadyKeys{scratch.keys}, used, rank < used ? rank : used);
}

// The number whose key this is; NaN where there is none.
float score_of(int32_t key) {
  const int32_t bits = key < 0 ? key ^ INT32_MAX : key;
  float score;
  std::memcpy(&score, &bits, sizeof(score));
  return key == -1 ? score_of(kSmallest) : score;  // -1 would be -0, which has the key of 0
}

// Keeps the positions whose score exceeds the pivot, ascending. Returns how many there are, -1 when there are too many.
// Scores are compared as they are.
HWY_NOINLINE int32_t collect(const float* scores, int32_t n, float pivot, Candidates& candidates) {
  const DF df;
  const DI di;
  constexpr int32_t kGroup = 4 * kLanes;
  const auto at = hn::Set(df, pivot);
  const VI lanes = hn::Iota(di, 0);
  int32_t count = 0, i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    const auto score0 = hn::LoadU(df, scores + i), score1 = hn::LoadU(df, scores + i + kLanes),
               score2 = hn::LoadU(df, scores + i + 2 * kLanes), score3 = hn::LoadU(df, scores + i + 3 * kLanes);
    const auto mask0 = hn::Gt(score0, at), mask1 = hn::Gt(score1, at), mask2 = hn::Gt(score2, at),
               mask3 = hn::Gt(score3, at);
    if (hn::AllFalse(df, hn::Or(hn::Or(mask0, mask1), hn::Or(mask2, mask3)))) continue;
    if (count + kGroup > kCandidates) return -1;
    const auto keep = [&](hn::Vec<DF> score, hn::Mask<DF> mask, int32_t first) HWY_ATTR {
      if (!kCheapCompress && hn::AllFalse(df, mask)) return;
      const auto chosen = hn::RebindMask(di, mask);
      hn::StoreU(hn::Compress(hn::BitCast(di, score), chosen), di, candidates.keys + count);
      hn::StoreU(hn::Compress(hn::Add(lanes, hn::Set(di, first)), chosen), di, candidates.positions + count);
      count += static_cast<int32_t>(hn::CountTrue(di, chosen));
    };
    keep(score0, mask0, i);
    keep(score1, mask1, i + kLanes);
    keep(score2, mask2, i + 2 * kLanes);
    keep(score3, mask3, i + 3 * kLanes);
  }
  for (; i < n; ++i) {
    if (!(scores[i] > pivot)) continue;
    if (count == kCandidates) return -1;
    std::memcpy(&candidates.keys[count], scores + i, sizeof(float));
    candidates.positions[count++] = i;
  }
  for (int32_t k = 0; k < count; k += kLanes) {
    hn::StoreU(key_of(hn::BitCast(df, hn::LoadU(di, candidates.keys + k))), di, candidates.keys + k);
  }
  return count;
}

HWY_NOINLINE void select_long(const float* scores, int32_t n, int32_t k, int32_t* out) {
  Candidates candidates;
  if (2 * k <= kCandidates) {
    const int32_t pivot = guess_pivot(scores, n, k, candidates);
    const float pivot_score = score_of(pivot);
    const int32_t count = std::isnan(pivot_score) ? -1 : collect(scores, n, pivot_score, candidates);
    if (count >= k) {
      select(ReadyKeys{candidates.keys}, candidates.positions, count, k, out);
      return;
    }
    if (count >= 0 && count_at_least(ScoreKeys{scores}, n, pivot) >= k) {  // the cut lies on a plateau of equal scores
      Output output{out, k};
      write_selected(ScoreKeys{scores}, nullptr, n, pivot, k - count, output);
      return;
    }
  }
  select(ScoreKeys{scores}, nullptr, n, k, out);
}

HWY_NOINLINE void select_short(const float* scores, int32_t n, int32_t k, int32_t* out) {
  int32_t keys[kCandidates];
  const ScoreKeys mapped{scores};
  int32_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(mapped.at(i), DI(), keys + i);
  for (; i < n; ++i) keys[i] = mapped.one(i);
  select(ReadyKeys{keys}, nullptr, n, k, out);
}

void topk_piece(const TopkParams& p, int32_t piece) {
  const int32_t m = p.rows.begin() + piece;
  const int32_t visible = num_visible(p.table, m), k = p.topk;
  int32_t* out = p.topk_indices + static_cast<int64_t>(m) * k;
  const float* scores = p.scores + static_cast<int64_t>(piece) * p.score_stride;
  p.num_selected[m] = HWY_MIN(visible, k);
  if (visible <= k) {
    for (int32_t i = 0; i < k; ++i) out[i] = i < visible ? i : -1;
  } else if (k > 0 && visible <= kCandidates) {
    select_short(scores, visible, k, out);
  } else if (k > 0) {
    select_long(scores, visible, k, out);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tidepool::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidepool::nn {

HWY_EXPORT(topk_piece);

void cpu_topk(const TopkParams& p, int32_t piece, int32_t) { HWY_DYNAMIC_DISPATCH(topk_piece)(p, piece); }

}  // namespace tidepool::nn
#endif
