// Sparse attention on SIMD: rows are read through the location table, each widened once per group of heads or on the
// fly. A value never depends on its lane, on the other rows of its register block, or on the launch shape.
#include "nn/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/cpu/sparse_attention.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "nn/cpu/attention_narrow.h"
#include "nn/cpu/attention_wide.h"

HWY_BEFORE_NAMESPACE();
namespace tidepool::nn {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// The rows of one query row's block.
void find_rows(const SparseAttentionParams& p, int32_t m, int32_t block, WideRows& rows) {
  const RowLocation* list = row_list(p, m);
  const int32_t begin = block * kAttentionBlock, end = HWY_MIN(begin + kAttentionBlock, p.num_selected[m]);
  int32_t n = 0;
  for (int32_t i = begin; i < end; ++i) {
    if (list[i].place == Place::kNone) continue;
    const RowPlanes& planes = p.places[list[i].place];
    rows.latent[n] = planes.latent.row(list[i].index);
    rows.rope[n] = planes.rope.row(list[i].index);
    rows.row_of[0][n] = static_cast<uint16_t>(n);
    rows.entry_of[0][n] = static_cast<uint8_t>(n);
    ++n;
  }
  rows.count = n;
}

template <class Row>
constexpr bool kWide = Row::Latent::kCoded;

// How one query row's block is walked.
template <class Row>
struct Walk {
  std::conditional_t<kWide<Row>, WideRows, NarrowRows> rows;
  Scratch s;

  int32_t find(const SparseAttentionParams& p, int32_t m, int32_t block) {
    find_rows(p, m, block, rows);
    return s.num_entries = rows.count;
  }
  void weigh(const SparseAttentionParams& p) {
    if constexpr (kWide<Row>) {
      weigh_wide<Row>(p, 1, rows, &s);
    } else {
      weigh_narrow<Row>(p, rows, s);
    }
  }
  template <class Sink>
  void sum(const SparseAttentionParams& p, int32_t num_heads, const Sink& sink) {
    if constexpr (kWide<Row>) {
      sum_wide<typename Row::Latent>(p, 1, rows, &s, num_heads, &sink);
    } else {
      sum_narrow<typename Row::Latent>(p, rows, s, num_heads, sink);
    }
  }
};

template <class Row>
void whole_piece(const SparseAttentionParams& p, int32_t piece) {
  const int32_t m = p.rows.begin() + piece / num_head_groups(p);
  const HeadRange heads = head_range(p, piece % num_head_groups(p));
  Walk<Row> walk;
  Folded folded;
  if (p.num_selected[m] > 0) pack_queries<Row>(p, m, heads, walk.s);
  for (int32_t block = 0; block < num_list_blocks(p.num_selected[m]); ++block) {
    if (walk.find(p, m, block) == 0) continue;
    walk.weigh(p);
    fold_sums(walk.s.block_max, walk.s.block_sum, folded);
    walk.sum(p, heads.end - heads.begin, FoldSink{output_of(p, m, heads.begin), p.format.latent_values, folded});
  }
  finish<typename Row::Latent>(p, m, heads, folded);
}

template <class Row>
void split_piece_of(const SparseAttentionParams& p, SplitPiece part) {
  if (part.block >= num_list_blocks(p.num_selected[part.row])) return;
  const HeadRange heads = head_range(p, part.group);
  const int32_t num_heads = heads.end - heads.begin, latent = p.format.latent_values;
  float* partial = partial_of(p, part.row, part.block, heads.begin);
  Walk<Row> walk;
  if (walk.find(p, part.row, part.block) == 0) {
    for (int32_t h = 0; h < num_heads; ++h) partial[h * (latent + 2) + latent + 1] = 0;
    return;
  }
  pack_queries<Row>(p, part.row, heads, walk.s);
  walk.weigh(p);
  for (int32_t h = 0; h < num_heads; ++h) {
    partial[h * (latent + 2) + latent] = walk.s.block_max[h];
    partial[h * (latent + 2) + latent + 1] = walk.s.block_sum[h];
  }
  walk.sum(p, num_heads, StoreSink{partial, latent + 2});
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

template <class Row>
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
  finish<typename Row::Latent>(p, m, heads, folded);
}

// Calls f with the format of the rows.
template <class F>
void with_format(const SparseAttentionParams& p, F f) {
  switch (p.format.type) {
    case DType::kF32:
      return f(F32Row());
    case DType::kI8:
      return f(I8Row());
    case DType::kF8E4M3:
      return f(F8Row());
    default:
      return f(Bf16Row());
  }
}

void attention_whole_piece(const SparseAttentionParams& p, int32_t piece) {
  with_format(p, [&]<class Row>(Row) { whole_piece<Row>(p, piece); });
}
void attention_split_piece(const SparseAttentionParams& p, int32_t piece, int32_t num_pieces) {
  with_format(p, [&]<class Row>(Row) { split_piece_of<Row>(p, split_piece(p, piece, num_pieces)); });
}
void attention_merge_piece(const SparseAttentionParams& p, int32_t piece) {
  with_format(p, [&]<class Row>(Row) { merge_piece<Row>(p, piece); });
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
