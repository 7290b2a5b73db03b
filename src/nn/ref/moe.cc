#include <algorithm>
#include <cmath>

#include "nn/moe_ops.h"
#include "nn/ref/dot.h"

namespace tidepool::nn::ref {
namespace {

float silu(float v) { return v / (1.0f + std::exp(-v)); }

void mlp_up(const ExpertMatrices& mlp, const float* x, float* inner) {
  for (int32_t i = 0; i < mlp.gate.n; ++i) inner[i] = silu(dot(mlp.gate, i, x)) * dot(mlp.up, i, x);
}

void mlp_down(const ExpertMatrices& mlp, const float* inner, int32_t hidden, float* out) {
  for (int32_t i = 0; i < hidden; ++i) out[i] = mlp.down.n == 0 ? 0.0f : dot(mlp.down, i, inner);
}

int32_t num_entries(const ExpertParams& p) { return p.num_experts == 0 ? 0 : p.offset[p.num_experts]; }

int32_t expert_of(const ExpertParams& p, int32_t position) {
  int32_t e = 0;
  while (p.offset[e + 1] <= position) ++e;
  return e;
}

}  // namespace

// Pieces: list entries, then rows of the shared expert.
int32_t expert_pieces(const ExpertParams& p) {
  return num_entries(p) + (p.has_shared ? std::max(0, p.rows.count()) : 0);
}

void expert_up_run(const ExpertParams& p, int32_t piece, int32_t) {
  if (piece < num_entries(p)) {
    const int64_t entry = p.entry[piece];
    mlp_up(p.experts[expert_of(p, piece)], p.x + entry / p.experts_per_token * p.hidden, p.inner + entry * p.width);
  } else {
    const int64_t m = p.rows.begin() + piece - num_entries(p);
    mlp_up(p.experts[p.num_experts], p.x + m * p.hidden, p.shared_inner + m * p.shared_width);
  }
}

void expert_down_run(const ExpertParams& p, int32_t piece, int32_t) {
  if (piece < num_entries(p)) {
    const int64_t entry = p.entry[piece];
    mlp_down(p.experts[expert_of(p, piece)], p.inner + entry * p.width, p.hidden, p.out + entry * p.hidden);
  } else {
    const int64_t m = p.rows.begin() + piece - num_entries(p);
    mlp_down(p.experts[p.num_experts], p.shared_inner + m * p.shared_width, p.hidden, p.shared_out + m * p.hidden);
  }
}

int32_t combine_pieces(const CombineParams& p) { return std::max(0, p.rows.count()); }

void combine_run(const CombineParams& p, int32_t piece, int32_t) {
  const int64_t m = p.rows.begin() + piece;
  for (int32_t i = 0; i < p.hidden; ++i) {
    float sum = 0;
    for (int64_t j = m * p.experts_per_token; j < (m + 1) * p.experts_per_token; ++j) {
      sum = std::fma(p.weight[j], p.out[j * p.hidden + i], sum);
    }
    if (p.has_shared) sum += p.shared_out[m * p.hidden + i];
    p.x[m * p.hidden + i] += sum;
  }
}

}  // namespace tidepool::nn::ref
