// Sparse latent attention (absorbed MLA) over listed rows only.
//
// For row m and head h over the entries i = 0..n-1 of the row's list (ascending position):
//   s_i = scale * (qa[m,h] . row_i),  p = softmax(s),  u[m,h] = sum_i p_i * latent_i
// where row_i = [latent | rope key] is read where locations[m, i] says; entries at Place::kNone are skipped.
//
// The one order (every launch shape, route and thread count): entries are cut into blocks of kAttentionBlock list
// entries. A block has m_b = max s_i, l_b = sum exp(s_i - m_b) in ascending i, a_b[d] = chain of fused multiply-adds of
// exp(s_i - m_b) * latent_i[d] in ascending i, from 0. Blocks are folded in ascending order:
//   M = max(M, m_b);  L = fma(l_b, exp(m_b - M), L * exp(M_old - M));  A likewise;   u = A / L;
// the first folded block is taken as it is.
// Skipped entries leave a block as if they were not there; a block without entries is not folded. The dot product of a
// row has one order per SIMD target.
// No entries at all: u = 0.
#pragma once

#include "nn/rows.h"
#include "tidepool/op.h"
#include "tidepool/row_table.h"

namespace tidepool::nn {

inline constexpr int32_t kAttentionBlock = 128;
inline constexpr int32_t kMaxAttentionWidth = 1024;  // largest latent + rope, each rounded up to 32
inline constexpr int32_t kMaxSharedRows = 4;         // query rows that are attended together

struct SparseAttentionParams {
  Rows rows;
  int32_t num_heads = 0;
  int32_t topk = 0;
  float scale = 0;
  RowFormat format;
  const float* qa = nullptr;  // [max_rows, num_heads, latent + rope]
  // Row m's list at locations + (m - location_begin) * topk, its length at num_selected[m].
  const RowLocation* locations = nullptr;
  int32_t location_begin = 0;
  const int32_t* num_selected = nullptr;  // [max_rows]
  PlaceTable places;                      // of this layer
  float* u = nullptr;                     // [max_rows, num_heads, latent]
  // attention_split and attention_merge: workspace for blocks, row m - rows.begin(). [split_rows, ceil(topk /
  // kAttentionBlock), num_heads, latent + 2]: a (in an order of the backend's own), m, l; l = 0: a block without
  // entries.
  float* partial = nullptr;
  int32_t split_rows = 0;
  // attention_split: rows come in runs of q_len that belong to one request, from rows.begin() on; a hint, no result
  // depends on it. Runs of up to kMaxSharedRows are attended together, cache rows that several of them list are read
  // once. Which these are is told by positions, where given ([max_rows, topk]; equal positions are equal bytes,
  // wherever they are read), or else by equal locations.
  int32_t q_len = 1;
  const int32_t* positions = nullptr;
};
// One piece per (row, group of heads): blocks are folded as they are computed. For prompts.
const device::OpType& attention_whole(Backend backend);
// One piece per (run of rows, group of heads, block), then attention_merge folds. For decode. Same bits as
// attention_whole.
const device::OpType& attention_split(Backend backend);
const device::OpType& attention_merge(Backend backend);

}  // namespace tidepool::nn
