#include "nn/moe.h"

#include "nn/access.h"
#include "nn/moe_ops.h"

namespace tidepool::nn {
namespace {

using device::AccessList;
using device::Cost;
using device::make_op_type;
using device::OpType;
using device::Part;

uint64_t floats(int64_t count) { return static_cast<uint64_t>(count) * sizeof(float); }

void declare_route(const RouteParams& p, AccessList& list) {
  const int32_t rows = p.rows.max_rows, k = p.experts_per_token;
  read_range(p.rows, list);
  read_rows(p.logits, rows, p.num_experts, p.num_experts, list);
  read_rows(p.bias, 1, p.num_experts, p.num_experts, list);
  write_rows(p.expert, rows, k, k, list);
  write_rows(p.weight, rows, k, k, list);
}

Cost route_cost(const RouteParams& p) {
  const uint64_t rows = row_count(p.rows);
  if (rows == 0) return {};
  return {.read_bytes = (rows + 1) * floats(p.num_experts), .write_bytes = 2 * rows * floats(p.experts_per_token)};
}

void declare_expert_list(const ExpertListParams& p, AccessList& list) {
  const int32_t rows = p.rows.max_rows, k = p.experts_per_token;
  read_range(p.rows, list);
  read_rows(p.expert, rows, k, k, list);
  write_rows(p.offset, 1, p.num_experts + 1, p.num_experts + 1, list);  // and reads only what it has written there
  write_rows(p.entry, rows, k, k, list);
}

Cost expert_list_cost(const ExpertListParams& p) {
  const uint64_t entries = row_count(p.rows) * static_cast<uint64_t>(p.experts_per_token);
  return {.read_bytes = entries * sizeof(int32_t),
          .write_bytes = (entries + static_cast<uint64_t>(p.num_experts) + 1) * sizeof(int32_t)};
}

void declare_lists(const ExpertParams& p, AccessList& list) {
  const int32_t num_mlps = p.num_experts + p.has_shared;
  read_range(p.rows, list);
  list.read(p.experts, static_cast<size_t>(num_mlps) * sizeof(ExpertMatrices));
  if (p.num_experts == 0) return;
  read_rows(p.offset, 1, p.num_experts + 1, p.num_experts + 1, list);
  read_rows(p.entry, p.rows.max_rows, p.experts_per_token, p.experts_per_token, list);
}

void declare_expert_up(const ExpertParams& p, AccessList& list) {
  const int64_t rows = p.rows.max_rows, entries = p.num_experts > 0 ? rows * p.experts_per_token : 0;
  declare_lists(p, list);
  for (int32_t e = 0; e < p.num_experts + p.has_shared; ++e) {
    read_matrix(p.experts[e].gate, list);
    read_matrix(p.experts[e].up, list);
  }
  read_rows(p.x, rows, p.hidden, p.hidden, list);
  write_rows(p.inner, entries, p.width, p.width, list);
  if (p.has_shared) write_rows(p.shared_inner, rows, p.shared_width, p.shared_width, list);
}

void declare_expert_down(const ExpertParams& p, AccessList& list) {
  const int64_t rows = p.rows.max_rows, entries = p.num_experts > 0 ? rows * p.experts_per_token : 0;
  declare_lists(p, list);
  for (int32_t e = 0; e < p.num_experts + p.has_shared; ++e) read_matrix(p.experts[e].down, list);
  read_rows(p.inner, entries, p.width, p.width, list);
  write_rows(p.out, entries, p.hidden, p.hidden, list);
  if (!p.has_shared) return;
  read_rows(p.shared_inner, rows, p.shared_width, p.shared_width, list);
  write_rows(p.shared_out, rows, p.hidden, p.hidden, list);
}

// Calls visit(matrices, rows) for every expert that has rows and is held here, the shared one last.
template <typename Visit>
void for_active(const ExpertParams& p, Visit visit) {
  const uint64_t rows = row_count(p.rows);
  if (rows == 0) return;
  for (int32_t e = 0; e < p.num_experts; ++e) {
    const int32_t entries = p.offset[e + 1] - p.offset[e];
    if (entries > 0 && p.experts[e].gate.n > 0) visit(p.experts[e], static_cast<uint64_t>(entries));
  }
  if (p.has_shared && p.experts[p.num_experts].gate.n > 0) visit(p.experts[p.num_experts], rows);
}

uint64_t list_bytes(const ExpertParams& p) {
  if (p.num_experts == 0 || row_count(p.rows) == 0) return 0;
  return static_cast<uint64_t>(p.num_experts + 1 + p.offset[p.num_experts]) * sizeof(int32_t);
}

Cost expert_up_cost(const ExpertParams& p) {
  Cost cost{.read_bytes = list_bytes(p)};
  for_active(p, [&](const ExpertMatrices& mlp, uint64_t rows) {
    add_matrix_cost(mlp.gate, rows, cost);
    add_matrix_cost(mlp.up, rows, cost);
    cost.read_bytes += rows * floats(p.hidden);
    cost.write_bytes += rows * floats(mlp.gate.n);
  });
  return cost;
}

Cost expert_down_cost(const ExpertParams& p) {
  Cost cost{.read_bytes = list_bytes(p)};
  for_active(p, [&](const ExpertMatrices& mlp, uint64_t rows) {
    add_matrix_cost(mlp.down, rows, cost);
    cost.read_bytes += rows * floats(mlp.down.k);
  });
  const uint64_t entries = list_bytes(p) == 0 ? 0 : static_cast<uint64_t>(p.offset[p.num_experts]);
  cost.write_bytes = (entries + (p.has_shared ? row_count(p.rows) : 0)) * floats(p.hidden);
  return cost;
}

void declare_combine(const CombineParams& p, AccessList& list) {
  const int64_t rows = p.rows.max_rows, k = p.experts_per_token;
  read_range(p.rows, list);
  read_rows(p.weight, rows, k, k, list);
  read_rows(p.out, rows * k, p.hidden, p.hidden, list);
  if (p.has_shared) read_rows(p.shared_out, rows, p.hidden, p.hidden, list);
  read_rows(p.x, rows, p.hidden, p.hidden, list);
  write_rows(p.x, rows, p.hidden, p.hidden, list);
}

Cost combine_cost(const CombineParams& p) {
  const uint64_t rows = row_count(p.rows), k = static_cast<uint64_t>(p.experts_per_token);
  const uint64_t values = rows * static_cast<uint64_t>(p.hidden);
  return {.read_bytes = (values * (k + 1 + (p.has_shared ? 1 : 0)) + rows * k) * sizeof(float),
          .write_bytes = values * sizeof(float),
          .multiply_adds = values * k};
}

}  // namespace

const OpType& route(Backend) {
  static constexpr OpType kType =
      make_op_type<RouteParams, ref::route_pieces, ref::route_run, declare_route, route_cost>("route", Part::kExperts);
  return kType;
}

const OpType& expert_list(Backend) {
  static constexpr OpType kType = make_op_type<ExpertListParams, ref::expert_list_pieces, ref::expert_list_run,
                                               declare_expert_list, expert_list_cost>("expert_list", Part::kExperts);
  return kType;
}

const OpType& expert_up(Backend backend) {
  using P = ExpertParams;
  static constexpr OpType kRef =
      make_op_type<P, ref::expert_pieces, ref::expert_up_run, declare_expert_up, expert_up_cost>("expert_up",
                                                                                                 Part::kExperts);
  static constexpr OpType kCpu =
      make_op_type<P, cpu::expert_up_pieces, cpu::expert_up_run, declare_expert_up, expert_up_cost>("expert_up",
                                                                                                    Part::kExperts);
  return backend == Backend::kRef ? kRef : kCpu;
}

const OpType& expert_down(Backend backend) {
  using P = ExpertParams;
  static constexpr OpType kRef =
      make_op_type<P, ref::expert_pieces, ref::expert_down_run, declare_expert_down, expert_down_cost>("expert_down",
                                                                                                       Part::kExperts);
  static constexpr OpType kCpu =
      make_op_type<P, cpu::expert_down_pieces, cpu::expert_down_run, declare_expert_down, expert_down_cost>(
          "expert_down", Part::kExperts);
  return backend == Backend::kRef ? kRef : kCpu;
}

const OpType& combine(Backend backend) {
  using P = CombineParams;
  static constexpr OpType kRef =
      make_op_type<P, ref::combine_pieces, ref::combine_run, declare_combine, combine_cost>("combine", Part::kExperts);
  static constexpr OpType kCpu =
      make_op_type<P, cpu::combine_pieces, cpu::combine_run, declare_combine, combine_cost>("combine", Part::kExperts);
  return backend == Backend::kRef ? kRef : kCpu;
}

}  // namespace tidepool::nn
