// How rows and panels are cut into pieces. The cut never changes a result, only who computes it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "nn/cpu/product_block.h"

namespace tidepool::nn::cpu {

constexpr int32_t ceil_div(int32_t a, int32_t b) { return (a + b - 1) / b; }

// Rows in equal blocks of at most kBlockRows.
struct RowCut {
  int32_t rows = 0, num_blocks = 0;
  explicit RowCut(int32_t num_rows) : rows(std::max(0, num_rows)), num_blocks(ceil_div(rows, kBlockRows)) {}
  int32_t begin(int32_t block) const { return static_cast<int32_t>(int64_t{rows} * block / num_blocks); }
  int32_t end(int32_t block) const { return begin(block + 1); }
};

// Panels per piece. Few rows: the weights are the work, and kPieceBytes of them amortize starting a piece. Many rows: a
// block of panels, each of which reuses the rows of x that the kernel has copied. At least kMinPieces pieces where
// there are panels for it.
inline constexpr int32_t kMinPieces = 16;
inline constexpr size_t kPieceBytes = 512 << 10;
inline int32_t panels_per_piece(int32_t total_panels, int32_t rows, size_t panel_bytes) {
  int32_t panels = kBlockPanels;
  if (rows <= 12) {
    panels = 1;
    while (panels < 16 && static_cast<size_t>(panels) * panel_bytes < kPieceBytes) panels *= 2;
  }
  while (panels > 1 && total_panels / panels * ceil_div(rows, kBlockRows) < kMinPieces) panels /= 2;
  return panels;
}

}  // namespace tidepool::nn::cpu
