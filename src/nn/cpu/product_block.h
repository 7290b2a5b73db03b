// The inner product kernel: sums of up to kBlockPanels weight panels for up to kBlockRows rows of x, in the order that
// packed_matrix.h declares. Every operator that multiplies by weights is cut into such blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nn/packed_matrix.h"

namespace tidepool::nn::cpu {

inline constexpr int32_t kBlockRows = 64;
inline constexpr int32_t kBlockPanels = 4;

struct ProductBlock {
  DType type = DType::kBF16;
  int32_t k = 0;
  int32_t num_panels = 0;  // <= kBlockPanels; of one or several matrices of the same type and k
  const std::byte* panels[kBlockPanels];
  const float* scales[kBlockPanels];  // fp8: the panel's [ceil(k/128)] block scales
  bool no_nan = true;                 // of every panel (PackedMatrix::no_nan)
  int32_t num_rows = 0;               // <= kBlockRows
  const float* x[kBlockRows];         // k values each
};

// Sums of one block; 64-byte aligned scratch, 32 KiB.
struct BlockSums {
  alignas(64) float values[kBlockPanels * kBlockRows * kPanelRows];
  float* row(const ProductBlock& block, int32_t panel, int32_t m) {
    return values + (static_cast<ptrdiff_t>(panel) * block.num_rows + m) * kPanelRows;
  }
};

// Adds a panel of `w` to the block. All panels of a block have one type and one k.
void add_panel(ProductBlock& block, const PackedMatrix& w, int32_t panel);

// sums.row(block, p, m)[lane] = panel p, lane . x[m]. At most 26 KiB of stack.
void product_block(const ProductBlock& block, BlockSums& sums);

}  // namespace tidepool::nn::cpu
