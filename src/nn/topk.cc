// The operator topk: grid, declared accesses, cost. The selection is in ref/ and cpu/.
#include "nn/indexer.h"
#include "nn/key_walk.h"

namespace tidepool::nn {
namespace {

int32_t num_topk_pieces(const TopkParams& p) { return p.rows.count(); }

void declare_topk(const TopkParams& p, device::AccessList& list) {
  list.read(p.rows.range, 2 * sizeof(int32_t));
  const int64_t begin = p.rows.begin(), count = p.rows.count();
  if (count <= 0) return;
  list.read(p.table.position + begin, static_cast<size_t>(count) * sizeof(int32_t));
  list.write(p.num_selected + begin, static_cast<size_t>(count) * sizeof(int32_t));
  list.write(p.topk_indices + begin * p.topk, static_cast<size_t>(count * p.topk) * sizeof(int32_t));
  for (int32_t m = p.rows.begin(); m < p.rows.end(); ++m) {
    const int64_t visible = list.every_step() ? p.score_stride : num_visible(p.table, m);
    if (visible <= p.topk) continue;
    list.read(p.scores + static_cast<int64_t>(m - p.rows.begin()) * p.score_stride,
              static_cast<size_t>(visible) * sizeof(float));
  }
}

device::Cost topk_cost(const TopkParams& p) {
  device::Cost cost;
  for (int32_t m = p.rows.begin(); m < p.rows.end(); ++m) {
    const int32_t visible = num_visible(p.table, m);
    cost.read_bytes += sizeof(int32_t) + (visible > p.topk ? static_cast<uint64_t>(visible) * sizeof(float) : 0);
    cost.write_bytes += (static_cast<uint64_t>(p.topk) + 1) * sizeof(int32_t);
  }
  return cost;
}

}  // namespace

const device::OpType& topk(Backend backend) {
  static constexpr device::OpType kRef =
      device::make_op_type<TopkParams, num_topk_pieces, ref_topk, declare_topk, topk_cost>("topk", device::Part::kTopk);
  static constexpr device::OpType kCpu =
      device::make_op_type<TopkParams, num_topk_pieces, cpu_topk, declare_topk, topk_cost>("topk", device::Part::kTopk);
  return backend == Backend::kRef ? kRef : kCpu;
}

}  // namespace tidepool::nn
