// The grids and addresses of sparse attention, shared by every backend.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nn/sparse_attention.h"

namespace tidepool::nn {

// Heads of one piece: each row is widened once for all of them.
inline constexpr int32_t kAttentionHeads = 8;

inline int32_t num_head_groups(const SparseAttentionParams& p) {
  return (p.num_heads + kAttentionHeads - 1) / kAttentionHeads;
}
inline int32_t num_list_blocks(int32_t entries) { return (entries + kAttentionBlock - 1) / kAttentionBlock; }

struct HeadRange {
  int32_t begin, end;
};
inline HeadRange head_range(const SparseAttentionParams& p, int32_t group) {
  const int32_t begin = group * kAttentionHeads, end = begin + kAttentionHeads;
  return {begin, end < p.num_heads ? end : p.num_heads};
}

inline const RowLocation* row_list(const SparseAttentionParams& p, int32_t m) {
  return p.locations + static_cast<int64_t>(m - p.location_begin) * p.topk;
}
inline const float* query_of(const SparseAttentionParams& p, int32_t m, int32_t h) {
  return p.qa + (static_cast<int64_t>(m) * p.num_heads + h) * (p.format.latent_values + p.format.rope_values);
}
inline float* output_of(const SparseAttentionParams& p, int32_t m, int32_t h) {
  return p.u + (static_cast<int64_t>(m) * p.num_heads + h) * p.format.latent_values;
}
// a, then m and l.
inline float* partial_of(const SparseAttentionParams& p, int32_t m, int32_t block, int32_t h) {
  const int64_t blocks = num_list_blocks(p.topk), width = p.format.latent_values + 2;
  return p.partial + (((m - p.rows.begin()) * blocks + block) * p.num_heads + h) * width;
}

// Query rows of one piece of attention_split.
inline int32_t run_len(const SparseAttentionParams& p) {
  return p.q_len >= 1 && p.q_len <= kMaxSharedRows ? p.q_len : 1;
}
inline int32_t num_runs(const SparseAttentionParams& p) { return (p.rows.count() + run_len(p) - 1) / run_len(p); }

// Pieces of attention_split: runs of rows x blocks x groups of heads; rows with shorter lists have pieces without work.
struct SplitPiece {
  int32_t row, num_rows, block, group;
};
inline SplitPiece split_piece(const SparseAttentionParams& p, int32_t piece, int32_t num_pieces) {
  const int32_t groups = num_head_groups(p), blocks = num_pieces / (num_runs(p) * groups);
  const int32_t row = p.rows.begin() + piece / (blocks * groups) * run_len(p), left = p.rows.end() - row;
  return {row, left < run_len(p) ? left : run_len(p), piece / groups % blocks, piece % groups};
}

// The pieces, one function per backend; sparse_attention.cc makes operators of them.
void ref_attention_whole(const SparseAttentionParams& p, int32_t piece, int32_t num_pieces);
void ref_attention_split(const SparseAttentionParams& p, int32_t piece, int32_t num_pieces);
void ref_attention_merge(const SparseAttentionParams& p, int32_t piece, int32_t num_pieces);
void cpu_attention_whole(const SparseAttentionParams& p, int32_t piece, int32_t num_pieces);
void cpu_attention_split(const SparseAttentionParams& p, int32_t piece, int32_t num_pieces);
void cpu_attention_merge(const SparseAttentionParams& p, int32_t piece, int32_t num_pieces);

}  // namespace tidepool::nn
