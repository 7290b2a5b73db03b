// Copies rows between memories as an operation of a stream: how the host sees what the device computed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tidepool/op.h"

namespace tidepool::device {

struct CopyParams {
  const int32_t* rows = nullptr;  // [2] begin and end row, read when the copy starts
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;  // row m at m * row_bytes
  int64_t row_bytes = 0;
  // Row m is a copy of row source_row[m]; null: of row m. Source and destination then differ.
  const int32_t* source_row = nullptr;  // [rows end]
  int32_t source_rows = 0;              // rows of the source, with source_row
};
const OpType& copy_rows();

}  // namespace tidepool::device
