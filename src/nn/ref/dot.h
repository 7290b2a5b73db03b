// One output of a product in the order that packed_matrix.h declares.
#pragma once

#include "nn/packed_matrix.h"

namespace tidepool::nn::ref {

// W[n, k] as the fp32 value that enters the sum.
float weight_value(const PackedMatrix& w, int32_t n, int32_t k);

// W[n, :] . x
float dot(const PackedMatrix& w, int32_t n, const float* x);

}  // namespace tidepool::nn::ref
