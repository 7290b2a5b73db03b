// Which rows of a step an operator works on: rows [range[0], range[1]) of its arrays, read from memory when it starts.
// max_rows is the capacity the arrays were made for.
#pragma once

#include <cstdint>

namespace tidepool::nn {

struct Rows {
  const int32_t* range = nullptr;  // [2] begin, end
  int32_t max_rows = 0;
  int32_t begin() const { return range[0]; }
  int32_t end() const { return range[1]; }
  int32_t count() const { return range[1] - range[0]; }
};

// Which implementation: the plain loops, or the SIMD kernels of the CPU.
enum class Backend { kRef, kCpu };

}  // namespace tidepool::nn
