// A block of entries of one query row, widened while they are read. Once per SIMD target.
#if defined(TIDEPOOL_NN_CPU_ATTENTION_NARROW_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIDEPOOL_NN_CPU_ATTENTION_NARROW_H_
#undef TIDEPOOL_NN_CPU_ATTENTION_NARROW_H_
#else
#define TIDEPOOL_NN_CPU_ATTENTION_NARROW_H_
#endif

#include <cstring>

#include "nn/cpu/attention_block.h"
#include "nn/shared_rows.h"

HWY_BEFORE_NAMESPACE();
namespace tidepool::nn {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int32_t kAhead = 4;  // rows between a prefetch and its use

// Where the rows of one query row's block lie; on the stack.
struct NarrowRows {
  int32_t count;
  const std::byte* latent[kAttentionBlock + kAhead];
  const std::byte* rope[kAttentionBlock + kAhead];
};

void add_row(const SparseAttentionParams& p, RowLocation at, NarrowRows& rows) {
  rows.latent[rows.count] = p.places[at.place].latent.row(at.index);
  rows.rope[rows.count++] = p.places[at.place].rope.row(at.index);
}

// The next rows of the list stand behind the block's, for prefetching only.
void add_ahead(const SparseAttentionParams& p, int32_t m, int32_t block, NarrowRows& rows) {
  const RowLocation* list = row_list(p, m);
  const int32_t n = rows.count, end = (block + 1) * kAttentionBlock;
  for (int32_t i = 0; i < kAhead && n > 0; ++i) {
    const RowLocation next = end + i < p.num_selected[m] ? list[end + i] : RowLocation{};
    rows.latent[n + i] = next.place == Place::kNone ? rows.latent[n - 1] : p.places[next.place].latent.row(next.index);
    rows.rope[n + i] = next.place == Place::kNone ? rows.rope[n - 1] : p.places[next.place].rope.row(next.index);
  }
}

// Where a block's rows lie.
void find_rows(const SparseAttentionParams& p, int32_t m, int32_t block, NarrowRows& rows) {
  const RowLocation* list = row_list(p, m);
  const int32_t begin = block * kAttentionBlock, end = HWY_MIN(begin + kAttentionBlock, p.num_selected[m]);
  rows.count = 0;
  for (int32_t i = begin; i < end; ++i) {
    if (list[i].place != Place::kNone) add_row(p, list[i], rows);
  }
  add_ahead(p, m, block, rows);
}

// Where those of query row m, number q of its run, are read by the whole run: the first to read one has it come from
// memory, the others from the cache.
void find_rows(const SparseAttentionParams& p, int32_t m, int32_t block, const SharedRows& shared, int32_t q,
               NarrowRows& rows) {
  rows.count = 0;
  for (int32_t e = 0; e < shared.num_entries[q]; ++e) add_row(p, shared.at[shared.row_of[q][e]], rows);
  add_ahead(p, m, block, rows);
}

// sums += rows . queries over one plane of two rows, rows[0] and rows[second]; those kAhead further on are prefetched.
template <typename Values, int32_t kHeads>
HWY_INLINE void dot_plane(const std::byte* const* rows, int32_t second, int32_t values, const float* query,
                          int32_t heads, DotSums<kHeads>& sums) {
  const int32_t whole = values / kChunk, tail = values % kChunk;
  dot_chunks<Values>(rows[0], rows[second], rows[kAhead], rows[kAhead + second], values, whole, query, heads, sums);
  if (HWY_LIKELY(tail == 0)) return;
  HWY_ALIGN std::byte padded[kRowBlock][kChunk * sizeof(float)] = {};
  const size_t from = static_cast<size_t>(whole * kChunk * Values::kBytes),
               bytes = static_cast<size_t>(tail * Values::kBytes);
  const std::byte* row[kRowBlock] = {rows[0], rows[second]};
  for (int32_t r = 0; r < kRowBlock; ++r) {
    std::memcpy(padded[r], row[r] + from, bytes);
    if (Values::kCoded) std::memcpy(padded[r] + kChunk, scale_of(row[r], values, values - tail), sizeof(float));
  }
  dot_chunks<Values>(padded[0], padded[1], padded[0], padded[1], kChunk, 1, query + whole * heads * kChunk, heads,
                     sums);
}

// Scores of the block's entries for heads [head, head + kHeads).
template <class Row, int32_t kHeads>
HWY_NOINLINE void score_heads(const SparseAttentionParams& p, int32_t head, const NarrowRows& rows, Scratch& s) {
  const int32_t latent = p.format.latent_values;
  const float* query = s.query + head * kChunk;
  for (int32_t i = 0; i < rows.count; i += kRowBlock) {
    const int32_t second = i + 1 < rows.count ? 1 : 0;  // an odd row is its own partner
    DotSums<kHeads> sums;
#pragma GCC unroll 8
    for (int32_t h = 0; h < kHeads; ++h) sums.of[0][h] = sums.of[1][h] = hn::Zero(D());
    dot_plane<typename Row::Latent>(rows.latent + i, second, latent, query, s.heads, sums);
    dot_plane<typename Row::Rope>(rows.rope + i, second, p.format.rope_values, query + round_to_chunk(latent) * s.heads,
                                  s.heads, sums);
    store_scores(sums, p.scale, i, i + second, head, s);
  }
}

// a[head][i .. i + kChunk) for kHeads heads: chains over the entries, ascending.
template <typename Values, int32_t kHeads, bool kTail>
HWY_INLINE void add_values(const NarrowRows& rows, const Scratch& s, int32_t head, int32_t i, int32_t latent,
                           V (&sum0)[kHeads], V (&sum1)[kHeads]) {
  const D d;
#pragma GCC unroll 8
  for (int32_t h = 0; h < kHeads; ++h) sum0[h] = sum1[h] = hn::Zero(d);
  const float* weight = s.weight + head;
  for (int32_t e = 0; e < rows.count; ++e, weight += s.heads) {
    V v0, v1;
    load_chunk<Values, kTail>(rows.latent[e], latent, i, v0, v1);
#pragma GCC unroll 8
    for (int32_t h = 0; h < kHeads; ++h) {
      const V w = hn::Set(d, weight[h]);
      sum0[h] = hn::MulAdd(v0, w, sum0[h]);
      sum1[h] = hn::MulAdd(v1, w, sum1[h]);
    }
  }
}

template <typename Values, int32_t kHeads, class Sink>
HWY_NOINLINE void sum_values(const NarrowRows& rows, const Scratch& s, int32_t head, int32_t end, int32_t latent,
                             Sink sink) {
  V sum0[kHeads], sum1[kHeads];
  int32_t i = 0;
  for (; i + kChunk <= latent; i += kChunk) {
    add_values<Values, kHeads, false>(rows, s, head, i, latent, sum0, sum1);
#pragma GCC unroll 8
    for (int32_t h = 0; h < kHeads; ++h) {
      if (head + h >= end) continue;
      sink.put(sum0[h], head + h, sink.at(head + h, i));
      sink.put(sum1[h], head + h, sink.at(head + h, i + kLanes));
    }
  }
  if (i == latent) return;
  add_values<Values, kHeads, true>(rows, s, head, i, latent, sum0, sum1);
  for (int32_t h = 0; h < kHeads && head + h < end; ++h)
    put_tail<Values>(sink, sum0[h], sum1[h], head + h, i, latent - i);
}

// Scores and weights of a block. Queries are packed.
template <class Row>
void weigh_narrow(const SparseAttentionParams& p, const NarrowRows& rows, Scratch& s) {
  s.num_entries = rows.count;
  if (s.heads == 4) {
    score_heads<Row, 4>(p, 0, rows, s);
    softmax_block<4>(s);
    return;
  }
  for (int32_t h = 0; h < 8; h += kHeadBlock) score_heads<Row, kHeadBlock>(p, h, rows, s);
  softmax_block<8>(s);
}

template <typename Values, class Sink>
void sum_narrow(const SparseAttentionParams& p, const NarrowRows& rows, const Scratch& s, int32_t num_heads,
                Sink sink) {
  if (s.heads == 4) {
    sum_values<Values, 4>(rows, s, 0, num_heads, p.format.latent_values, sink);
    return;
  }
  for (int32_t h = 0; h < 8; h += kHeadBlock)
    sum_values<Values, kHeadBlock>(rows, s, h, num_heads, p.format.latent_values, sink);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tidepool::nn
HWY_AFTER_NAMESPACE();

#endif  // per target
