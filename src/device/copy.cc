#include "device/copy.h"

#include <cstring>

namespace tidepool::device {
namespace {

int32_t num_pieces(const CopyParams& p) { return p.rows[1] - p.rows[0]; }

void run(const CopyParams& p, int32_t piece, int32_t) {
  const int32_t row = p.rows[0] + piece, from = p.source_row != nullptr ? p.source_row[row] : row;
  std::memcpy(p.destination + row * p.row_bytes, p.source + from * p.row_bytes, static_cast<size_t>(p.row_bytes));
}

void declare(const CopyParams& p, AccessList& list) {
  const int64_t offset = p.rows[0] * p.row_bytes;
  const auto bytes = static_cast<size_t>((p.rows[1] - p.rows[0]) * p.row_bytes);
  if (p.source_row != nullptr) {
    list.read(p.source_row, static_cast<size_t>(p.rows[1]) * sizeof(int32_t));
    list.read(p.source, static_cast<size_t>(p.source_rows * p.row_bytes));
  } else {
    list.read(p.source + offset, bytes);
  }
  list.write(p.destination + offset, bytes);
}

Cost cost(const CopyParams& p) {
  const auto bytes = static_cast<uint64_t>((p.rows[1] - p.rows[0]) * p.row_bytes);
  return {bytes, bytes, 0, 0};
}

}  // namespace

const OpType& copy_rows() {
  static constexpr OpType kType = make_op_type<CopyParams, num_pieces, run, declare, cost>("copy_rows", Part::kOther);
  return kType;
}

}  // namespace tidepool::device
