#include <cmath>
#include <cstring>

#include "nn/norm_rope_ops.h"
#include "nn/row_codes.h"

namespace tidepool::nn {
namespace {

// Adjacent pairs (x[2j], x[2j+1]); every product is rounded before the sum.
void rotate_pairs(const float* x, const float* cos_row, const float* sin_row, int32_t half, float* out) {
  for (int32_t j = 0; j < half; ++j) {
    const float a = x[2 * j], b = x[2 * j + 1];
    out[2 * j] = a * cos_row[j] - b * sin_row[j];
    out[2 * j + 1] = b * cos_row[j] + a * sin_row[j];
  }
}

}  // namespace

float finish_rms_scale(float* lanes, int32_t width, float eps) {
  for (int32_t half = kNormLanes / 2; half >= 1; half /= 2) {
    for (int32_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return 1.0f / std::sqrt(lanes[0] / static_cast<float>(width) + eps);
}

void rms_norm_row(const RmsNormParams& p, int32_t piece, RmsScale rms_scale) {
  const int64_t m = p.rows.begin() + piece;
  const int64_t source = p.source_row == nullptr ? m : p.source_row[m];
  const float* x = p.x + source * p.x_stride;
  float* y = p.y + m * p.y_stride;
  const float scale = rms_scale(x, p.width, p.eps);
  for (int32_t i = 0; i < p.width; ++i) y[i] = (x[i] * scale) * p.weight[i];
}

void write_row_row(const WriteRowParams& p, int32_t piece, RmsScale rms_scale) {
  const int64_t m = p.rows.begin() + piece;
  const RowLocation dest = p.dest[m];
  if (dest.place == Place::kNone) return;
  const int32_t latent = p.format.latent_values, half = p.format.rope_values / 2;
  const float* z = p.z + m * (latent + p.format.rope_values);
  const RowPlanes& planes = p.places[dest.place];
  const float scale = rms_scale(z, latent, p.eps);
  constexpr int32_t kChunk = 2 * RowFormat::kScaleValues;  // store_latent takes whole groups of one scale
  float values[kChunk];
  for (int32_t begin = 0; begin < latent; begin += kChunk) {
    const int32_t count = latent - begin < kChunk ? latent - begin : kChunk;
    for (int32_t i = 0; i < count; ++i) values[i] = (z[begin + i] * scale) * p.weight[begin + i];
    store_latent(p.format, values, begin, count, planes.latent.row(dest.index));
  }
  for (int32_t begin = 0; begin < half; begin += kChunk / 2) {
    const int32_t count = half - begin < kChunk / 2 ? half - begin : kChunk / 2;
    rotate_pairs(z + latent + 2 * begin, p.cos_table + m * half + begin, p.sin_table + m * half + begin, count, values);
    store_rope(p.format, values, 2 * begin, 2 * count, planes.rope.row(dest.index));
  }
}

namespace ref {

float rms_scale(const float* x, int32_t width, float eps) {
  float lanes[kNormLanes] = {};
  for (int32_t i = 0; i < width; ++i) lanes[i % kNormLanes] = std::fma(x[i], x[i], lanes[i % kNormLanes]);
  return finish_rms_scale(lanes, width, eps);
}

void embed_run(const EmbedParams& p, int32_t piece, int32_t) {
  const int64_t m = p.rows.begin() + piece;
  const std::byte* row =
      p.table + static_cast<int64_t>(p.token_ids[m]) * p.hidden * static_cast<int64_t>(dtype_bytes(p.type));
  float* x = p.x + m * p.hidden;
  if (p.type == DType::kF32) {
    std::memcpy(x, row, static_cast<size_t>(p.hidden) * sizeof(float));
    return;
  }
  for (int32_t i = 0; i < p.hidden; ++i) {
    uint16_t bits;
    std::memcpy(&bits, row + 2 * static_cast<ptrdiff_t>(i), sizeof(bits));
    x[i] = p.type == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
}

void rms_norm_run(const RmsNormParams& p, int32_t piece, int32_t) { rms_norm_row(p, piece, rms_scale); }

void rope_table_run(const RopeTableParams& p, int32_t piece, int32_t) {
  const int64_t m = p.rows.begin() + piece;
  const float position = static_cast<float>(p.positions[m]);
  for (int32_t j = 0; j < p.half; ++j) {
    const double angle = static_cast<double>(position * p.inv_freq[j]);
    p.cos_table[m * p.half + j] = static_cast<float>(std::cos(angle)) * p.factor;
    p.sin_table[m * p.half + j] = static_cast<float>(std::sin(angle)) * p.factor;
  }
}

void query_rope_run(const QueryRopeParams& p, int32_t piece, int32_t) {
  const int64_t m = p.rows.begin() + piece;
  const int64_t half = p.rope_dim / 2, width = p.nope_dim + p.rope_dim, out_width = p.latent_dim + p.rope_dim;
  for (int64_t h = 0; h < p.num_heads; ++h) {
    rotate_pairs(p.q + (m * p.num_heads + h) * width + p.nope_dim, p.cos_table + m * half, p.sin_table + m * half,
                 p.rope_dim / 2, p.out + (m * p.num_heads + h) * out_width + p.latent_dim);
  }
}

void write_row_run(const WriteRowParams& p, int32_t piece, int32_t) { write_row_row(p, piece, rms_scale); }

}  // namespace ref
}  // namespace tidepool::nn
