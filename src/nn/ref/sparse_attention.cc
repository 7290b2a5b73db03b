// The specification of sparse attention: plain loops in the declared order. A dot product is the chain over d,
// ascending, latent before rope key.
#include <cmath>

#include "nn/attention_walk.h"
#include "nn/row_codes.h"

namespace tidepool::nn {
namespace {

float score_of(const SparseAttentionParams& p, const float* q, RowLocation at) {
  const std::byte* latent = p.places[at.place].latent.row(at.index);
  const std::byte* rope = p.places[at.place].rope.row(at.index);
  float dot = 0;
  for (int32_t d = 0; d < p.format.latent_values; ++d) dot = std::fma(q[d], latent_value(p.format, latent, d), dot);
  q += p.format.latent_values;
  for (int32_t d = 0; d < p.format.rope_values; ++d) dot = std::fma(q[d], rope_value(p.format, rope, d), dot);
  return p.scale * dot;
}

// a[0..latent), a[latent] = m_b, a[latent + 1] = l_b; l_b = 0 without entries.
void block_of(const SparseAttentionParams& p, int32_t m, int32_t h, int32_t block, float* a) {
  const int32_t begin = block * kAttentionBlock, latent = p.format.latent_values;
  const int32_t end = begin + kAttentionBlock < p.num_selected[m] ? begin + kAttentionBlock : p.num_selected[m];
  const RowLocation* list = row_list(p, m);
  float score[kAttentionBlock], max = -INFINITY, sum = 0;
  for (int32_t d = 0; d < latent; ++d) a[d] = 0;
  for (int32_t i = begin; i < end; ++i) {
    if (list[i].place == Place::kNone) continue;
    score[i - begin] = score_of(p, query_of(p, m, h), list[i]);
    if (score[i - begin] > max) max = score[i - begin];
  }
  for (int32_t i = begin; i < end; ++i) {
    if (list[i].place == Place::kNone) continue;
    const std::byte* row = p.places[list[i].place].latent.row(list[i].index);
    const float weight = std::exp(score[i - begin] - max);
    sum += weight;
    for (int32_t d = 0; d < latent; ++d) a[d] = std::fma(weight, latent_value(p.format, row, d), a[d]);
  }
  a[latent] = max;
  a[latent + 1] = sum;
}

// A, M, L of the blocks folded so far; the sums lie in the output row.
struct Folded {
  float* sums;
  float max = 0, sum = 0;
  bool any = false;

  void fold(const float* a, int32_t latent) {
    const float block_max = a[latent], block_sum = a[latent + 1];
    if (block_sum == 0) return;
    const float new_max = !any || block_max > max ? block_max : max;
    const float old_factor = any ? std::exp(max - new_max) : 0, factor = any ? std::exp(block_max - new_max) : 1;
    for (int32_t d = 0; d < latent; ++d) sums[d] = any ? std::fma(a[d], factor, sums[d] * old_factor) : a[d];
    sum = any ? std::fma(block_sum, factor, sum * old_factor) : block_sum;
    max = new_max;
    any = true;
  }

  void finish(int32_t latent) const {
    for (int32_t d = 0; d < latent; ++d) sums[d] = any ? sums[d] / sum : 0;
  }
};

}  // namespace

void ref_attention_whole(const SparseAttentionParams& p, int32_t piece, int32_t) {
  const int32_t m = p.rows.begin() + piece / num_head_groups(p);
  const HeadRange heads = head_range(p, piece % num_head_groups(p));
  float a[kMaxAttentionWidth + 2];
  for (int32_t h = heads.begin; h < heads.end; ++h) {
    Folded folded{output_of(p, m, h)};
    for (int32_t block = 0; block < num_list_blocks(p.num_selected[m]); ++block) {
      block_of(p, m, h, block, a);
      folded.fold(a, p.format.latent_values);
    }
    folded.finish(p.format.latent_values);
  }
}

void ref_attention_split(const SparseAttentionParams& p, int32_t piece, int32_t num_pieces) {
  const SplitPiece part = split_piece(p, piece, num_pieces);
  const HeadRange heads = head_range(p, part.group);
  for (int32_t m = part.row; m < part.row + part.num_rows; ++m) {
    if (part.block >= num_list_blocks(p.num_selected[m])) continue;
    for (int32_t h = heads.begin; h < heads.end; ++h) block_of(p, m, h, part.block, partial_of(p, m, part.block, h));
  }
}

void ref_attention_merge(const SparseAttentionParams& p, int32_t piece, int32_t) {
  const int32_t m = p.rows.begin() + piece / num_head_groups(p);
  const HeadRange heads = head_range(p, piece % num_head_groups(p));
  for (int32_t h = heads.begin; h < heads.end; ++h) {
    Folded folded{output_of(p, m, h)};
    for (int32_t block = 0; block < num_list_blocks(p.num_selected[m]); ++block) {
      folded.fold(partial_of(p, m, block, h), p.format.latent_values);
    }
    folded.finish(p.format.latent_values);
  }
}

}  // namespace tidepool::nn
