// Copies rows between memories as an operation of a stream: how the host sees what the device computed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tidepool/op.h"

namespace tidepool::device {

struct CopyParams {
  const int32_t* rows = nullptr;  // [2] begin and end row, read when the copy starts
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;  // row m lies at the same offset in both
  int64_t row_bytes = 0;
};
const OpType& copy_rows();

}  // namespace tidepool::device
