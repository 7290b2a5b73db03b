#include <cstring>

#include "nn/cpu/moe_rows.h"
#include "nn/cpu/product_block.h"
#include "nn/cpu/row_cut.h"
#include "nn/moe_ops.h"

namespace tidepool::nn::cpu {
namespace {

// The rows of one expert: list entries, or for the shared expert the rows of the step.
struct ExpertRows {
  const ExpertMatrices* mlp = nullptr;
  const int32_t* entry = nullptr;  // null: row i is begin + i
  int64_t begin = 0;
  int32_t count = 0;
  bool is_shared() const { return entry == nullptr; }
  int64_t row(int32_t i) const { return is_shared() ? begin + i : entry[i]; }
};

int32_t num_active(const ExpertParams& p) {
  int32_t active = 0;
  for (int32_t e = 0; e < p.num_experts; ++e) active += p.offset[e + 1] > p.offset[e];
  return active;
}

// Pieces: groups of panels of the shared expert (it has the most rows, so it goes first), then of each expert that has
// entries. A piece walks all rows of its expert: its weights are read from memory once.
struct ExpertCut {
  int32_t panels = 1, shared_groups = 0, groups = 0, active = 0;
  int32_t num_pieces() const { return shared_groups + groups * active; }
};

// limit: panels of each matrix that one block can hold.
ExpertCut cut_experts(const ExpertParams& p, int32_t outputs, int32_t shared_outputs, int32_t inputs, int32_t limit) {
  ExpertCut cut;
  const int32_t rows = p.rows.count();
  if (rows <= 0) return cut;
  const int32_t panels = ceil_div(outputs, kPanelRows), shared_panels = ceil_div(shared_outputs, kPanelRows);
  cut.active = num_active(p);
  const int32_t total = panels * cut.active + (p.has_shared ? shared_panels : 0);
  cut.panels =
      std::min(limit, panels_per_piece(total, std::min(rows, kBlockRows), packed_bytes(DType::kBF16, 32, inputs)));
  cut.groups = ceil_div(panels, cut.panels);
  cut.shared_groups = p.has_shared ? ceil_div(shared_panels, cut.panels) : 0;
  return cut;
}

// The expert and the group of panels of a piece.
ExpertRows rows_of_piece(const ExpertParams& p, const ExpertCut& cut, int32_t piece, int32_t& group) {
  if (piece < cut.shared_groups) {
    group = piece;
    return {p.experts + p.num_experts, nullptr, p.rows.begin(), p.rows.count()};
  }
  group = (piece - cut.shared_groups) % cut.groups;
  int32_t rank = (piece - cut.shared_groups) / cut.groups, e = 0;
  while (p.offset[e + 1] == p.offset[e] || rank-- > 0) ++e;
  return {p.experts + e, p.entry + p.offset[e], 0, p.offset[e + 1] - p.offset[e]};
}

// inner of the expert's rows [begin, begin + block.num_rows), panels [first, last).
void run_up(const ExpertParams& p, const ExpertRows& rows, int32_t first, int32_t last, int32_t begin,
            ProductBlock& block) {
  BlockSums sums;
  block.num_panels = 0;
  for (int32_t panel = first; panel < last; ++panel) {
    add_panel(block, rows.mlp->gate, panel);
    add_panel(block, rows.mlp->up, panel);
  }
  product_block(block, sums);
  for (int32_t m = 0; m < block.num_rows; ++m) {
    const int64_t row = rows.row(begin + m);
    float* inner = rows.is_shared() ? p.shared_inner + row * p.shared_width : p.inner + row * p.width;
    for (int32_t panel = first; panel < last; ++panel) {
      const int32_t n = panel * kPanelRows, i = 2 * (panel - first);
      silu_product(sums.row(block, i, m), sums.row(block, i + 1, m), inner + n,
                   std::min(kPanelRows, rows.mlp->gate.n - n));
    }
  }
}

void run_down(const ExpertParams& p, const ExpertRows& rows, int32_t first, int32_t last, int32_t begin,
              ProductBlock& block) {
  BlockSums sums;
  block.num_panels = 0;
  for (int32_t panel = first; panel < last; ++panel) add_panel(block, rows.mlp->down, panel);
  product_block(block, sums);
  for (int32_t m = 0; m < block.num_rows; ++m) {
    float* out = (rows.is_shared() ? p.shared_out : p.out) + rows.row(begin + m) * p.hidden;
    for (int32_t panel = first; panel < last; ++panel) {
      const int32_t n = panel * kPanelRows;
      std::memcpy(out + n, sums.row(block, panel - first, m),
                  static_cast<size_t>(std::min(kPanelRows, p.hidden - n)) * sizeof(float));
    }
  }
}

// The output of an expert that another rank holds.
void zero_out(const ExpertParams& p, const ExpertRows& rows, int32_t first, int32_t last) {
  const int32_t begin = first * kPanelRows, end = std::min(last * kPanelRows, p.hidden);
  for (int32_t i = 0; i < rows.count; ++i) {
    float* out = (rows.is_shared() ? p.shared_out : p.out) + rows.row(i) * p.hidden;
    std::memset(out + begin, 0, static_cast<size_t>(end - begin) * sizeof(float));
  }
}

ExpertCut cut_up(const ExpertParams& p) {
  return cut_experts(p, p.width, p.shared_width, 2 * p.hidden, kBlockPanels / 2);
}

ExpertCut cut_down(const ExpertParams& p) { return cut_experts(p, p.hidden, p.hidden, p.width, kBlockPanels); }

}  // namespace

int32_t expert_up_pieces(const ExpertParams& p) { return cut_up(p).num_pieces(); }

void expert_up_run(const ExpertParams& p, int32_t piece, int32_t) {
  const ExpertCut cut = cut_up(p);
  int32_t group = 0;
  const ExpertRows rows = rows_of_piece(p, cut, piece, group);
  const int32_t first = group * cut.panels, last = std::min(first + cut.panels, rows.mlp->gate.num_panels());
  const RowCut blocks(rows.count);
  for (int32_t b = 0; b < blocks.num_blocks && first < last; ++b) {
    ProductBlock block;
    block.num_rows = blocks.end(b) - blocks.begin(b);
    for (int32_t m = 0; m < block.num_rows; ++m) {
      const int64_t row = rows.row(blocks.begin(b) + m);
      block.x[m] = p.x + (rows.is_shared() ? row : row / p.experts_per_token) * p.hidden;
    }
    run_up(p, rows, first, last, blocks.begin(b), block);
  }
}

int32_t expert_down_pieces(const ExpertParams& p) { return cut_down(p).num_pieces(); }

void expert_down_run(const ExpertParams& p, int32_t piece, int32_t) {
  const ExpertCut cut = cut_down(p);
  int32_t group = 0;
  const ExpertRows rows = rows_of_piece(p, cut, piece, group);
  const int32_t first = group * cut.panels;
  const int32_t last = std::min(first + cut.panels, ceil_div(p.hidden, kPanelRows));
  if (rows.mlp->down.n == 0) return zero_out(p, rows, first, last);
  const RowCut blocks(rows.count);
  for (int32_t b = 0; b < blocks.num_blocks; ++b) {
    ProductBlock block;
    block.num_rows = blocks.end(b) - blocks.begin(b);
    for (int32_t m = 0; m < block.num_rows; ++m) {
      const int64_t row = rows.row(blocks.begin(b) + m);
      block.x[m] = rows.is_shared() ? p.shared_inner + row * p.shared_width : p.inner + row * p.width;
    }
    run_down(p, rows, first, last, blocks.begin(b), block);
  }
}

// Pieces: (row, run of columns).
namespace {
constexpr int32_t kCombineColumns = 2048;
}

int32_t combine_pieces(const CombineParams& p) {
  return std::max(0, p.rows.count()) * ceil_div(p.hidden, kCombineColumns);
}

void combine_run(const CombineParams& p, int32_t piece, int32_t) {
  const int32_t runs = ceil_div(p.hidden, kCombineColumns);
  const int64_t m = p.rows.begin() + piece / runs, k = p.experts_per_token;
  const int32_t begin = piece % runs * kCombineColumns, count = std::min(kCombineColumns, p.hidden - begin);
  add_weighted(p.weight + m * k, p.experts_per_token, p.out + m * k * p.hidden + begin, p.hidden,
               p.has_shared ? p.shared_out + m * p.hidden + begin : nullptr, p.x + m * p.hidden + begin, count);
}

}  // namespace tidepool::nn::cpu
