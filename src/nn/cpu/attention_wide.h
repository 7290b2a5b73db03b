// A block of entries through cache rows that are widened to fp32 first, each once for all query rows and heads of the
// piece: scores take tiles of whole rows, value sums take one chunk of all rows. For coded formats and several query
// rows; where widening is an instruction or two, storing what it gives costs more than doing it again. Time of 4 query
// rows against attention_narrow.h (2,048 entries of 512 + 64, 8 heads): e4m3 0.88 on AVX3, 0.79 on AVX2, 0.73 on SSE4;
// int8 1.03, 0.95, 0.85; bf16 1.22, 1.05, 1.05. Once per SIMD target.
#if defined(TIDEPOOL_NN_CPU_ATTENTION_WIDE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIDEPOOL_NN_CPU_ATTENTION_WIDE_H_
#undef TIDEPOOL_NN_CPU_ATTENTION_WIDE_H_
#else
#define TIDEPOOL_NN_CPU_ATTENTION_WIDE_H_
#endif

#include <cstring>

#include "nn/cpu/attention_block.h"
#include "nn/shared_rows.h"

HWY_BEFORE_NAMESPACE();
namespace tidepool::nn {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int32_t kTileRows = 8;  // as fp32 they and one query row's heads fit the first-level cache
constexpr int32_t kMaxBlockRows = kMaxSharedRows * kAttentionBlock;

// The rows of a block, and which of them each query row lists; on the stack.
struct WideRows {
  static constexpr uint8_t kNoEntry = 0xff;
  int32_t count = 0;
  const std::byte* latent[kMaxBlockRows];
  const std::byte* rope[kMaxBlockRows];
  uint8_t entry_of[kMaxSharedRows][kMaxBlockRows];  // row -> entry
  HWY_ALIGN float tile[kTileRows * kMaxAttentionWidth];
  HWY_ALIGN float column[kMaxBlockRows * kChunk];
};

inline void find_rows(const SparseAttentionParams& p, const SharedRows& shared, WideRows& rows) {
  rows.count = shared.num_rows;
  for (int32_t r = 0; r < rows.count; ++r) {
    const RowPlanes& planes = p.places[shared.at[r].place];
    rows.latent[r] = planes.latent.row(shared.at[r].index);
    rows.rope[r] = planes.rope.row(shared.at[r].index);
  }
  for (int32_t q = 0; q < kMaxSharedRows; ++q) {
    std::memset(rows.entry_of[q], WideRows::kNoEntry, static_cast<size_t>(rows.count));
    for (int32_t e = 0; e < shared.num_entries[q]; ++e) rows.entry_of[q][shared.row_of[q][e]] = static_cast<uint8_t>(e);
  }
}

// Rows [first, first + count) as fp32, latent and rope part each filled up to whole chunks.
template <class Row>
void widen_tile(const SparseAttentionParams& p, int32_t first, int32_t count, WideRows& rows) {
  const int32_t latent = round_to_chunk(p.format.latent_values), width = latent + round_to_chunk(p.format.rope_values);
  for (int32_t r = 0; r < count; ++r) {
    float* to = rows.tile + r * width;
    widen_plane<typename Row::Latent>(rows.latent[first + r], p.format.latent_values, to);
    widen_plane<typename Row::Rope>(rows.rope[first + r], p.format.rope_values, to + latent);
  }
}

// Two rows of the tile, the entries that they are in a list, and two rows of the block to prefetch meanwhile.
struct Pair {
  int32_t row[kRowBlock], entry[kRowBlock], ahead[kRowBlock];
};

template <class Row, int32_t kHeads>
HWY_NOINLINE void score_pair(const SparseAttentionParams& p, const WideRows& rows, const Pair& pair, int32_t head,
                             Scratch& s) {
  const int32_t latent = round_to_chunk(p.format.latent_values), rope = round_to_chunk(p.format.rope_values);
  const auto* row0 = reinterpret_cast<const std::byte*>(rows.tile + pair.row[0] * (latent + rope));
  const auto* row1 = reinterpret_cast<const std::byte*>(rows.tile + pair.row[1] * (latent + rope));
  const float* query = s.query + head * kChunk;
  const ptrdiff_t latent_bytes = static_cast<ptrdiff_t>(sizeof(float)) * latent;
  DotSums<kHeads> sums;
#pragma GCC unroll 8
  for (int32_t h = 0; h < kHeads; ++h) sums.of[0][h] = sums.of[1][h] = hn::Zero(D());
  dot_chunks<WideValues, kHeads, kChunk * Row::Latent::kBytes>(row0, row1, rows.latent[pair.ahead[0]],
                                                               rows.latent[pair.ahead[1]], latent, latent / kChunk,
                                                               query, s.heads, sums);
  dot_chunks<WideValues, kHeads, kChunk * Row::Rope::kBytes>(row0 + latent_bytes, row1 + latent_bytes,
                                                             rows.rope[pair.ahead[0]], rows.rope[pair.ahead[1]], rope,
                                                             rope / kChunk, query + latent * s.heads, s.heads, sums);
  store_scores(sums, p.scale, pair.entry[0], pair.entry[1], head, s);
}

// Scores of one query row's entries among rows [first, first + count), which are in the tile.
template <class Row>
void score_tile(const SparseAttentionParams& p, const WideRows& rows, int32_t q, int32_t first, int32_t count,
                int32_t& ahead, Scratch& s) {
  Pair pair;
  int32_t filled = 0;
  for (int32_t r = 0; r < count; ++r) {
    const uint8_t entry = rows.entry_of[q][first + r];
    if (entry != WideRows::kNoEntry) {
      pair.row[filled] = r;
      pair.entry[filled] = entry;
      ++filled;
    }
    if (filled == 0 || (filled == 1 && r + 1 < count)) continue;
    if (filled == 1) {  // an odd row is its own partner
      pair.row[1] = pair.row[0];
      pair.entry[1] = pair.entry[0];
    }
    filled = 0;
    for (int32_t& next : pair.ahead) next = ahead < rows.count ? ahead++ : first;
    if (s.heads == 4) {
      score_pair<Row, 4>(p, rows, pair, 0, s);
    } else {
      for (int32_t h = 0; h < 8; h += kHeadBlock) score_pair<Row, kHeadBlock>(p, rows, pair, h, s);
    }
  }
}

// Scores and weights of a block for num_query_rows query rows; queries are packed.
template <class Row>
void weigh_wide(const SparseAttentionParams& p, int32_t num_query_rows, WideRows& rows, Scratch* s) {
  for (int32_t first = 0; first < rows.count; first += kTileRows) {
    const int32_t count = HWY_MIN(kTileRows, rows.count - first);
    widen_tile<Row>(p, first, count, rows);
    int32_t ahead = first + count;
    for (int32_t q = 0; q < num_query_rows; ++q) score_tile<Row>(p, rows, q, first, count, ahead, s[q]);
  }
  for (int32_t q = 0; q < num_query_rows; ++q) {
    if (s[q].num_entries > 0) s[q].heads == 4 ? softmax_block<4>(s[q]) : softmax_block<8>(s[q]);
  }
}

// column: chunk i of every row.
template <typename Values, bool kTail>
HWY_NOINLINE void widen_column(int32_t latent, int32_t i, WideRows& rows) {
  for (int32_t r = 0; r < rows.count; ++r) {
    V v0, v1;
    load_chunk<Values, kTail>(rows.latent[r], latent, i, v0, v1);
    hn::Store(v0, D(), rows.column + r * kChunk);
    hn::Store(v1, D(), rows.column + r * kChunk + kLanes);
  }
}

// One chunk of a for kHeads heads of a query row: chains over its entries, ascending.
template <int32_t kHeads>
HWY_INLINE void add_column(const WideRows& rows, const uint16_t* row_of, const Scratch& s, int32_t head,
                           V (&sum0)[kHeads], V (&sum1)[kHeads]) {
  const D d;
#pragma GCC unroll 8
  for (int32_t h = 0; h < kHeads; ++h) sum0[h] = sum1[h] = hn::Zero(d);
  const float* weight = s.weight + head;
  for (int32_t e = 0; e < s.num_entries; ++e, weight += s.heads) {
    const float* at = rows.column + row_of[e] * kChunk;
    const V v0 = hn::Load(d, at), v1 = hn::Load(d, at + kLanes);
#pragma GCC unroll 8
    for (int32_t h = 0; h < kHeads; ++h) {
      const V w = hn::Set(d, weight[h]);
      sum0[h] = hn::MulAdd(v0, w, sum0[h]);
      sum1[h] = hn::MulAdd(v1, w, sum1[h]);
    }
  }
}

template <typename Values, int32_t kHeads, class Sink>
HWY_NOINLINE void sum_column(const WideRows& rows, const uint16_t* row_of, const Scratch& s, int32_t head, int32_t end,
                             int32_t i, int32_t latent, const Sink& sink) {
  V sum0[kHeads], sum1[kHeads];
  add_column<kHeads>(rows, row_of, s, head, sum0, sum1);
  if (i + kChunk > latent) {
    for (int32_t h = 0; h < kHeads && head + h < end; ++h)
      put_tail<Values>(sink, sum0[h], sum1[h], head + h, i, latent - i);
    return;
  }
#pragma GCC unroll 8
  for (int32_t h = 0; h < kHeads; ++h) {
    if (head + h >= end) continue;
    sink.put(sum0[h], head + h, sink.at(head + h, i));
    sink.put(sum1[h], head + h, sink.at(head + h, i + kLanes));
  }
}

// Value sums of a block to the sink of each query row.
template <typename Values, class Sink>
void sum_wide(const SparseAttentionParams& p, const SharedRows& shared, int32_t num_query_rows, WideRows& rows,
              const Scratch* s, int32_t num_heads, const Sink* sink) {
  const int32_t latent = p.format.latent_values;
  for (int32_t i = 0; i < latent; i += kChunk) {
    i + kChunk <= latent ? widen_column<Values, false>(latent, i, rows) : widen_column<Values, true>(latent, i, rows);
    for (int32_t q = 0; q < num_query_rows; ++q) {
      if (s[q].num_entries == 0) continue;
      if (s[q].heads == 4) {
        sum_column<Values, 4>(rows, shared.row_of[q], s[q], 0, num_heads, i, latent, sink[q]);
        continue;
      }
      for (int32_t h = 0; h < 8; h += kHeadBlock)
        sum_column<Values, kHeadBlock>(rows, shared.row_of[q], s[q], h, num_heads, i, latent, sink[q]);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tidepool::nn
HWY_AFTER_NAMESPACE();

#endif  // per target
