// Search for NaN and infinity in stored tensors, at the speed of memory. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace tidepool::model {

// Index of the first value of data [num_values] that is NaN or infinite, -1 when all are finite. Integers always are.
// data need not be aligned.
int64_t first_non_finite(const std::byte* data, DType type, uint64_t num_values);

}  // namespace tidepool::model
