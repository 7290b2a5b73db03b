#include <cstring>

#include "nn/cpu/product_block.h"
#include "nn/cpu/row_cut.h"
#include "nn/product_ops.h"

namespace tidepool::nn::cpu {
namespace {

// Writes or adds the sums of one panel of one row; the last panel may have fewer than 32 outputs.
void put_sums(const float* sums, float* y, int32_t count, bool add) {
  if (!add) {
    std::memcpy(y, sums, static_cast<size_t>(count) * sizeof(float));
  } else {
    for (int32_t i = 0; i < count; ++i) y[i] += sums[i];
  }
}

// Panels [first, last) of w for the block's rows; y of row m at y + m * y_stride.
void run_panels(ProductBlock& block, const PackedMatrix& w, int32_t first, int32_t last, float* y, int64_t y_stride,
                bool add) {
  BlockSums sums;
  for (; first < last; first += kBlockPanels) {
    const int32_t stop = std::min(last, first + kBlockPanels);
    block.num_panels = 0;
    for (int32_t panel = first; panel < stop; ++panel) add_panel(block, w, panel);
    product_block(block, sums);
    for (int32_t m = 0; m < block.num_rows; ++m) {
      for (int32_t panel = first; panel < stop; ++panel) {
        const int32_t n = panel * kPanelRows;
        put_sums(sums.row(block, panel - first, m), y + m * y_stride + n, std::min(kPanelRows, w.n - n), add);
      }
    }
  }
}

int32_t product_panels(const ProductParams& p, int32_t rows) {
  int32_t total = 0;
  for (int32_t i = 0; i < p.num_segments; ++i) total += p.segments[i].w.num_panels();
  return panels_per_piece(total, rows, p.segments[0].w.panel_bytes());
}

int32_t num_groups(const ProductParams& p, int32_t panels) {
  int32_t groups = 0;
  for (int32_t i = 0; i < p.num_segments; ++i) groups += ceil_div(p.segments[i].w.num_panels(), panels);
  return groups;
}

int32_t head_panels(const HeadProductParams& p, int32_t rows) {
  return panels_per_piece(p.num_heads * p.heads[0].num_panels(), rows, p.heads[0].panel_bytes());
}

}  // namespace

// Pieces: (segment, group of panels, block of rows), rows fastest: the pieces that share weights run together.
int32_t product_pieces(const ProductParams& p) {
  const RowCut cut(p.rows.count());
  return num_groups(p, product_panels(p, cut.rows)) * cut.num_blocks;
}

void product_run(const ProductParams& p, int32_t piece, int32_t) {
  const RowCut cut(p.rows.count());
  const int32_t panels = product_panels(p, cut.rows), row_block = piece % cut.num_blocks;
  int32_t group = piece / cut.num_blocks, i = 0;
  for (;; ++i) {
    const int32_t groups = ceil_div(p.segments[i].w.num_panels(), panels);
    if (group < groups) break;
    group -= groups;
  }
  const ProductSegment& segment = p.segments[i];
  const int64_t begin = p.rows.begin() + cut.begin(row_block);
  ProductBlock block;
  block.num_rows = cut.end(row_block) - cut.begin(row_block);
  for (int32_t m = 0; m < block.num_rows; ++m) block.x[m] = p.x + (begin + m) * p.x_stride;
  run_panels(block, segment.w, group * panels, std::min(group * panels + panels, segment.w.num_panels()),
             segment.y + begin * segment.y_stride, segment.y_stride, segment.add != 0);
}

// Pieces: (head, group of panels, block of rows).
int32_t head_product_pieces(const HeadProductParams& p) {
  const RowCut cut(p.rows.count());
  if (p.num_heads == 0) return 0;
  return p.num_heads * ceil_div(p.heads[0].num_panels(), head_panels(p, cut.rows)) * cut.num_blocks;
}

void head_product_run(const HeadProductParams& p, int32_t piece, int32_t) {
  const RowCut cut(p.rows.count());
  const int32_t panels = head_panels(p, cut.rows);
  const int32_t groups = ceil_div(p.heads[0].num_panels(), panels);
  const int64_t head = piece / cut.num_blocks / groups;
  const int32_t group = piece / cut.num_blocks % groups;
  const int64_t begin = p.rows.begin() + cut.begin(piece % cut.num_blocks);
  ProductBlock block;
  block.num_rows = static_cast<int32_t>(p.rows.begin() + cut.end(piece % cut.num_blocks) - begin);
  for (int32_t m = 0; m < block.num_rows; ++m) {
    block.x[m] = p.x + (begin + m) * p.x_stride + head * p.x_head_stride;
  }
  const PackedMatrix& w = p.heads[head];
  run_panels(block, w, group * panels, std::min(group * panels + panels, w.num_panels()),
             p.y + begin * p.y_stride + head * p.y_head_stride, p.y_stride, false);
}

}  // namespace tidepool::nn::cpu
