// Element-wise parts of the mixture of experts; an element's value depends on its own inputs alone.
#pragma once

#include <cstdint>

namespace tidepool::nn::cpu {

// out[i] = silu(gate[i]) * up[i] for i < 32 (one panel); only the first `count` are written.
void silu_product(const float* gate, const float* up, float* out, int32_t count);

// x[i] += (chain of weight[j] * out[j * out_stride + i] from 0) + shared[i] for i < count; shared may be null.
void add_weighted(const float* weight, int32_t num_outs, const float* out, int64_t out_stride, const float* shared,
                  float* x, int32_t count);

}  // namespace tidepool::nn::cpu
