// Sparse attention on SIMD: rows are read through the location table, widened on the fly or ahead. A value never
// depends on its lane, on the other rows of its register block, or on the launch shape.
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

template <class Row>
void whole_piece(const SparseAttentionParams& p, int32_t piece) {
  const int32_t m = p.rows.begin() + piece / num_head_groups(p);
  const HeadRange heads = head_range(p, piece % num_head_groups(p));
  NarrowRows rows;
  Scratch s;
  Folded folded;
  if (p.num_selected[m] > 0) pack_queries<Row>(p, m, heads, s);
  for (int32_t block = 0; block < num_list_blocks(p.num_selected[m]); ++block) {
    find_rows(p, m, block, rows);
    if (rows.count == 0) continue;
    weigh_narrow<Row>(p, rows, s);
    fold_sums(s.block_max, s.block_sum, folded);
    sum_narrow<typename Row::Latent>(p, rows, s, heads.end - heads.begin,
                                     FoldSink{output_of(p, m, heads.begin), p.format.latent_values, folded});
  }
  finish<typename Row::Latent>(p, m, heads, folded);
}

// The workspace of a row's block: the sums of heads go to its sink, here m and l. A block without entries has l = 0.
StoreSink store_block(const SparseAttentionParams& p, int32_t m, int32_t block, HeadRange heads, const Scratch& s) {
  float* partial = partial_of(p, m, block, heads.begin);
  const int32_t stride = p.format.latent_values + 2;
  for (int32_t h = 0; h < heads.end - heads.begin; ++h) {
    partial[h * stride + stride - 2] = s.num_entries == 0 ? 0 : s.block_max[h];
    partial[h * stride + stride - 1] = s.num_entries == 0 ? 0 : s.block_sum[h];
  }
  return {partial, stride};
}

template <class Row>
void split_row(const SparseAttentionParams& p, int32_t m, int32_t block, HeadRange heads, const NarrowRows& rows) {
  if (block >= num_list_blocks(p.num_selected[m])) return;
  Scratch s;
  s.num_entries = rows.count;
  if (rows.count > 0) {
    pack_queries<Row>(p, m, heads, s);
    weigh_narrow<Row>(p, rows, s);
  }
  const StoreSink sink = store_block(p, m, block, heads, s);
  if (rows.count > 0) sum_narrow<typename Row::Latent>(p, rows, s, heads.end - heads.begin, sink);
}

// The query rows of a piece at once.
template <class Row>
void split_wide(const SparseAttentionParams& p, const SplitPiece& part, HeadRange heads, const SharedRows& shared) {
  WideRows rows;
  Scratch s[kMaxSharedRows];
  StoreSink sink[kMaxSharedRows];
  find_rows(p, shared, rows);
  for (int32_t q = 0; q < part.num_rows; ++q) {
    s[q].num_entries = shared.num_entries[q];
    if (s[q].num_entries > 0) pack_queries<Row>(p, part.row + q, heads, s[q]);
  }
  weigh_wide<Row>(p, part.num_rows, rows, s);
  for (int32_t q = 0; q < part.num_rows; ++q) {
    if (part.block < num_list_blocks(p.num_selected[part.row + q]))
      sink[q] = store_block(p, part.row + q, part.block, heads, s[q]);
  }
  sum_wide<typename Row::Latent>(p, shared, part.num_rows, rows, s, heads.end - heads.begin, sink);
}

template <class Row>
void split_piece_of(const SparseAttentionParams& p, const SplitPiece& part) {
  const HeadRange heads = head_range(p, part.group);
  NarrowRows rows;
  if (part.num_rows == 1) {
    find_rows(p, part.row, part.block, rows);
    return split_row<Row>(p, part.row, part.block, heads, rows);
  }
  SharedRows shared;
  share_rows(p, part.row, part.num_rows, part.block, shared);
  if constexpr (Row::Latent::kCoded) {  // lists with little in common gain nothing from it
    if (4 * shared.num_rows <= 3 * shared.total_entries()) return split_wide<Row>(p, part, heads, shared);
  }
  for (int32_t q = 0; q < part.num_rows; ++q) {
    find_rows(p, part.row + q, part.block, shared, q, rows);
    split_row<Row>(p, part.row + q, part.block, heads, rows);
  }
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
