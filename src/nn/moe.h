// Mixture of experts, and the dense MLP as its case without routed experts.
//
// Router (grouped, sigmoid, "noaux_tc"): s = sigmoid(logits), b = s + bias; with groups: group score = sum of its two
// largest b, the best groups_kept groups stay (ties: lower group), others are excluded (-inf); the top
// experts_per_token of b (ties: lower expert id); weight_j = s_j / (sum_j s_j + 1e-20) * scaling when norm_topk_prob,
// else s_j * scaling. Chosen experts are listed by descending b. Output: x[m] += (((g_0 y_0 + g_1 y_1) + ...) +
// shared), chain of fused multiply-adds in list order from 0, then shared.
#pragma once

#include "nn/packed_matrix.h"
#include "nn/rows.h"
#include "tidepool/op.h"

namespace tidepool::nn {

struct RouteParams {
  Rows rows;
  int32_t num_experts = 0, experts_per_token = 0;
  int32_t num_groups = 1, groups_kept = 1;
  int32_t norm_topk_prob = 1;
  float scaling = 1.0f;
  const float* logits = nullptr;  // [max_rows, num_experts]
  const float* bias = nullptr;    // [num_experts]
  int32_t* expert = nullptr;      // [max_rows, experts_per_token]
  float* weight = nullptr;        // [max_rows, experts_per_token]
};
const device::OpType& route(Backend backend);

// Which (row, choice) pairs each expert has: expert e owns entries [offset[e], offset[e + 1]) of `entry`, each entry =
// row * experts_per_token + choice, ascending.
struct ExpertListParams {
  Rows rows;
  int32_t num_experts = 0, experts_per_token = 0;
  const int32_t* expert = nullptr;  // [max_rows, experts_per_token]
  int32_t* offset = nullptr;        // [num_experts + 1]
  int32_t* entry = nullptr;         // [max_rows * experts_per_token]
};
const device::OpType& expert_list(Backend backend);

struct ExpertMatrices {
  PackedMatrix gate, up, down;  // [I, H], [I, H], [H, I]
};

// Routed experts (num_experts may be 0) and the always-on MLP (has_shared; the shared expert, or the dense MLP of a
// dense layer). Each expert's weights are read once for all its rows.
struct ExpertParams {
  Rows rows;
  int32_t num_experts = 0, experts_per_token = 0;
  int32_t has_shared = 0;
  int32_t hidden = 0, width = 0, shared_width = 0;
  const ExpertMatrices* experts = nullptr;  // [num_experts + has_shared], the shared one last; empty ones (n == 0) are
                                            // another rank's: their output rows are zero
  const int32_t* offset = nullptr;
  const int32_t* entry = nullptr;
  const float* x = nullptr;       // [max_rows, hidden]
  float* inner = nullptr;         // [max_rows * experts_per_token, width]   silu(gate x) * (up x)
  float* shared_inner = nullptr;  // [max_rows, shared_width]
  float* out = nullptr;           // [max_rows * experts_per_token, hidden]  down inner
  float* shared_out = nullptr;    // [max_rows, hidden]
};
const device::OpType& expert_up(Backend backend);    // x -> inner
const device::OpType& expert_down(Backend backend);  // inner -> out

struct CombineParams {
  Rows rows;
  int32_t hidden = 0, experts_per_token = 0;  // 0: no routed experts
  int32_t has_shared = 0;
  const float* weight = nullptr;
  const float* out = nullptr;
  const float* shared_out = nullptr;
  float* x = nullptr;  // [max_rows, hidden] residual stream
};
const device::OpType& combine(Backend backend);

}  // namespace tidepool::nn
