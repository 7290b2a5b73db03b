// Row-wise operators: embedding, norms, rotary embedding, writing cache rows. Activations fp32, tables fp32.
// Sources: RMSNorm, LayerNorm and the two RoPE layouts as in the GLM-5.2 / DeepSeek-V3.2 models (docs/architecture.md).
#pragma once

#include <cstddef>

#include "nn/rows.h"
#include "tidepool/op.h"
#include "tidepool/row_table.h"

namespace tidepool::nn {

struct EmbedParams {
  Rows rows;
  const int32_t* token_ids = nullptr;  // [max_rows], each in [0, vocab)
  const std::byte* table = nullptr;    // [vocab, hidden] of type
  DType type = DType::kBF16;           // kBF16, kF16, kF32
  int32_t hidden = 0;
  int32_t vocab = 0;   // rows of the table, for declare(); 0: the table is not declared
  float* x = nullptr;  // [max_rows, hidden]
};
const device::OpType& embed(Backend backend);

// y = (x * r) * weight, r = 1 / sqrt(mean(x^2) + eps), each step rounded to fp32. The order of the sum: kNormLanes
// lanes, lane j the chain of fused multiply-adds over x[j], x[j + kNormLanes], ... from 0; then halves are added, lane
// j and j + h for h = 32, 16, ..., 1.
inline constexpr int32_t kNormLanes = 64;
struct RmsNormParams {
  Rows rows;
  const float* x = nullptr;  // [.., x_stride]
  int32_t x_stride = 0;
  const int32_t* source_row =
      nullptr;                    // [max_rows] row of x for row m of y; null: m. (Picks the rows that get logits.)
  int32_t x_rows = 0;             // rows of x with source_row, for declare(); 0: max_rows
  const float* weight = nullptr;  // [width]
  int32_t width = 0;
  float eps = 0;
  float* y = nullptr;  // [max_rows, y_stride]; may be x (in place, only without source_row)
  int32_t y_stride = 0;
};
const device::OpType& rms_norm(Backend backend);

// cos/sin of position * inv_freq[j], the product rounded to fp32 as published implementations do, times factor.
struct RopeTableParams {
  Rows rows;
  const int32_t* positions = nullptr;  // [max_rows]
  const float* inv_freq = nullptr;     // [half]
  int32_t half = 0;                    // rope_dim / 2
  float factor = 1.0f;
  float* cos_table = nullptr;  // [max_rows, half]
  float* sin_table = nullptr;  // [max_rows, half]
};
const device::OpType& rope_table(Backend backend);

// Queries of latent attention: the rope part of each head (last rope_dim of nope + rope), rotated as adjacent pairs
// (x[2j], x[2j+1]), goes behind the absorbed latent part: out[m, h, latent .. latent + rope_dim).
struct QueryRopeParams {
  Rows rows;
  int32_t num_heads = 0, nope_dim = 0, rope_dim = 0, latent_dim = 0;
  const float* q = nullptr;  // [max_rows, num_heads * (nope_dim + rope_dim)]
  const float* cos_table = nullptr;
  const float* sin_table = nullptr;
  float* out = nullptr;  // [max_rows, num_heads, latent_dim + rope_dim]
};
const device::OpType& query_rope(Backend backend);

// A cache row from z = kv_a x: latent = RMSNorm(z[0:latent]) and rope part = adjacent-pair RoPE(z[latent:]) (not
// normed), converted to the row format and written where dest says.
struct WriteRowParams {
  Rows rows;
  const float* z = nullptr;       // [max_rows, latent + rope]
  const float* weight = nullptr;  // [latent] kv_a_layernorm
  float eps = 0;
  const float* cos_table = nullptr;
  const float* sin_table = nullptr;
  RowFormat format;
  const RowLocation* dest = nullptr;  // [max_rows]; kNone: the row is not kept
  PlaceTable places;                  // of this layer
};
const device::OpType& write_row(Backend backend);

}  // namespace tidepool::nn
