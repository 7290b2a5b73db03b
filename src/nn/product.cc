#include "nn/product.h"

#include "nn/access.h"
#include "nn/product_ops.h"

namespace tidepool::nn {
namespace {

using device::AccessList;
using device::Cost;
using device::OpType;
using device::Part;

void declare_product(const ProductParams& p, AccessList& list) {
  read_range(p.rows, list);
  for (int32_t i = 0; i < p.num_segments; ++i) {
    const ProductSegment& segment = p.segments[i];
    read_matrix(segment.w, list);
    read_rows(p.x, p.rows.max_rows, p.x_stride, segment.w.k, list);
    if (segment.add) read_rows(segment.y, p.rows.max_rows, segment.y_stride, segment.w.n, list);
    write_rows(segment.y, p.rows.max_rows, segment.y_stride, segment.w.n, list);
  }
}

Cost product_cost(const ProductParams& p) {
  Cost cost;
  const uint64_t rows = row_count(p.rows);
  if (rows == 0) return cost;
  int32_t widest = 0;
  for (int32_t i = 0; i < p.num_segments; ++i) {
    const ProductSegment& segment = p.segments[i];
    add_matrix_cost(segment.w, rows, cost);
    const uint64_t y_bytes = rows * static_cast<uint64_t>(segment.w.n) * sizeof(float);
    if (segment.add) cost.read_bytes += y_bytes;
    cost.write_bytes += y_bytes;
    if (segment.w.k > widest) widest = segment.w.k;
  }
  cost.read_bytes += rows * static_cast<uint64_t>(widest) * sizeof(float);
  return cost;
}

void declare_head_product(const HeadProductParams& p, AccessList& list) {
  read_range(p.rows, list);
  list.read(p.heads, static_cast<size_t>(p.num_heads) * sizeof(PackedMatrix));
  for (int32_t h = 0; h < p.num_heads; ++h) {
    const PackedMatrix& w = p.heads[h];
    read_matrix(w, list);
    read_rows(p.x + static_cast<ptrdiff_t>(h) * p.x_head_stride, p.rows.max_rows, p.x_stride, w.k, list);
    write_rows(p.y + static_cast<ptrdiff_t>(h) * p.y_head_stride, p.rows.max_rows, p.y_stride, w.n, list);
  }
}

Cost head_product_cost(const HeadProductParams& p) {
  Cost cost;
  const uint64_t rows = row_count(p.rows);
  for (int32_t h = 0; h < p.num_heads && rows > 0; ++h) {
    const PackedMatrix& w = p.heads[h];
    add_matrix_cost(w, rows, cost);
    cost.read_bytes += rows * static_cast<uint64_t>(w.k) * sizeof(float);
    cost.write_bytes += rows * static_cast<uint64_t>(w.n) * sizeof(float);
  }
  return cost;
}

template <int32_t (*NumPieces)(const ProductParams&), void (*Run)(const ProductParams&, int32_t, int32_t)>
const OpType& product_of(Part part) {
  static constexpr auto make = device::make_op_type<ProductParams, NumPieces, Run, declare_product, product_cost>;
  static constexpr OpType kProjection = make("product", Part::kProjection);
  static constexpr OpType kIndexer = make("index_product", Part::kIndexer);
  static constexpr OpType kHead = make("head_logits", Part::kHead);
  return part == Part::kHead ? kHead : part == Part::kIndexer ? kIndexer : kProjection;
}

}  // namespace

const OpType& product(Backend backend, Part part) {
  return backend == Backend::kRef ? product_of<ref::product_pieces, ref::product_run>(part)
                                  : product_of<cpu::product_pieces, cpu::product_run>(part);
}

const OpType& head_product(Backend backend) {
  static constexpr OpType kRef =
      device::make_op_type<HeadProductParams, ref::head_product_pieces, ref::head_product_run, declare_head_product,
                           head_product_cost>("head_product", Part::kProjection);
  static constexpr OpType kCpu =
      device::make_op_type<HeadProductParams, cpu::head_product_pieces, cpu::head_product_run, declare_head_product,
                           head_product_cost>("head_product", Part::kProjection);
  return backend == Backend::kRef ? kRef : kCpu;
}

}  // namespace tidepool::nn
