// Both implementations of the row-wise operators. Where no sum is involved the plain loops are the only implementation:
// they are bit-equal on every machine and the compiler vectorizes them.
#pragma once

#include "nn/norm_rope.h"

namespace tidepool::nn {

// One piece per row.
template <typename Params>
int32_t row_pieces(const Params& p) {
  return p.rows.count() > 0 ? p.rows.count() : 0;
}

// r of rms_norm for one row.
using RmsScale = float (*)(const float* x, int32_t width, float eps);
// The last steps of the sum, common to both: folds kNormLanes lanes (destroyed) and takes the root.
float finish_rms_scale(float* lanes, int32_t width, float eps);

void rms_norm_row(const RmsNormParams& p, int32_t piece, RmsScale rms_scale);
void write_row_row(const WriteRowParams& p, int32_t piece, RmsScale rms_scale);

namespace ref {
float rms_scale(const float* x, int32_t width, float eps);
void embed_run(const EmbedParams& p, int32_t piece, int32_t num_pieces);
void rms_norm_run(const RmsNormParams& p, int32_t piece, int32_t num_pieces);
void rope_table_run(const RopeTableParams& p, int32_t piece, int32_t num_pieces);
void query_rope_run(const QueryRopeParams& p, int32_t piece, int32_t num_pieces);
void write_row_run(const WriteRowParams& p, int32_t piece, int32_t num_pieces);
}  // namespace ref

namespace cpu {
float rms_scale(const float* x, int32_t width, float eps);
void rms_norm_run(const RmsNormParams& p, int32_t piece, int32_t num_pieces);
void write_row_run(const WriteRowParams& p, int32_t piece, int32_t num_pieces);
}  // namespace cpu

}  // namespace tidepool::nn
