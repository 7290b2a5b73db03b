// Each operator of a decode step alone: its entry is cut out of a captured step and run again and again, the machine
// doing nothing else. Before each operator a fresh step puts the values into memory that it works on (some operators
// change their inputs in place).
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/parallel.h"
#include "device/ring.h"
#include "engine/bench_context.h"

namespace tidepool {
namespace {

using device::Entry;
using engine::BenchContext;
using engine::PartSum;

constexpr int32_t kFirstSteps = 3;  // before anything is measured
constexpr int32_t kMaxOperators = 64;
constexpr int32_t kWarmRuns = 3;

// The entries of a list that are operations.
struct Operation {
  const device::OpType* type = nullptr;
  device::Event* event = nullptr;
  int32_t stream = 0;
  std::vector<std::byte> bytes;
  // The parameters where they may be read: aligned as a ring does it.
  device::Cost cost() const {
    alignas(16) std::byte params[device::kMaxParamsBytes];
    std::memcpy(params, bytes.data() + sizeof(Entry), bytes.size() - sizeof(Entry));
    return type->cost(params);
  }
};

std::vector<Operation> operations_of(const device::OpList& list) {
  std::vector<Operation> all;
  const auto& bytes = list.bytes();
  for (size_t at = 0; at < bytes.size();) {
    Entry entry;
    std::memcpy(&entry, bytes.data() + at, sizeof(entry));
    if (entry.kind == device::EntryKind::kOp) {
      const auto begin = bytes.begin() + static_cast<ptrdiff_t>(at);
      all.push_back({entry.type, entry.event, entry.stream, {begin, begin + entry.bytes}});
    }
    at += entry.bytes;
  }
  return all;
}

// The first of each operator; operators that come in several shapes (products) count once per number of
// multiply-adds, which the name then gives in millions.
struct Distinct {
  std::string name;
  size_t index;  // in the step
  uint64_t multiply_adds;
};
std::vector<Distinct> distinct_of(const std::vector<Operation>& all) {
  std::vector<Distinct> found;
  for (size_t i = 0; i < all.size(); ++i) {
    const uint64_t multiply_adds = all[i].cost().multiply_adds;
    const std::string name = fmt::format("{} ({})", all[i].type->name, device::part_name(all[i].type->part));
    const bool is_known = std::any_of(found.begin(), found.end(), [&](const Distinct& d) {
      return d.name == name && d.multiply_adds == multiply_adds;
    });
    if (!is_known) found.push_back({name, i, multiply_adds});
  }
  for (Distinct& d : found) {
    const auto same = std::count_if(found.begin(), found.end(), [&](const Distinct& o) { return o.name == d.name; });
    if (same > 1) d.name += fmt::format(", {:.3g} M", static_cast<double>(d.multiply_adds) * 1e-6);
  }
  return found;
}

double run_alone_ms(device::Executor& executor, const Operation& operation, int32_t runs) {
  const device::OpList list(operation.bytes);
  std::vector<device::TimelineEntry> timeline;
  timeline.reserve(static_cast<size_t>(runs));
  executor.set_timeline(&timeline);
  for (int32_t i = 0; i < runs; ++i) {
    executor.replay(list);
    executor.synchronize(operation.stream);
    if (operation.event != nullptr) executor.synchronize(*operation.event);
  }
  executor.set_timeline(nullptr);
  std::vector<double> ms;
  for (size_t i = kWarmRuns; i < timeline.size(); ++i) {
    ms.push_back(static_cast<double>(timeline[i].end_ns - timeline[i].begin_ns) * 1e-6);
  }
  return engine::median(ms);
}

BenchRow measure_operators(BenchContext& context, const DecodeBenchOptions& o, int32_t num_tokens,
                           const MachineRates& rates) {
  device::OpList list;
  for (int32_t i = 0; i < kFirstSteps; ++i) context.step();
  context.captured_step(list);
  BenchRow row;
  row.what = context.is_select() ? "ops select" : "ops off";
  row.context_tokens = num_tokens;
  row.batch = o.batch;
  row.pool_size = context.pool_size();
  const auto found = distinct_of(operations_of(list));
  tidepool_check(found.size() <= kMaxOperators, "bench: a step has {} operators, at most {} are measured", found.size(),
                 kMaxOperators);
  for (const Distinct& d : found) {
    list.clear();
    context.captured_step(list);
    const Operation operation = operations_of(list)[d.index];
    const device::Cost cost = operation.cost();
    const auto part = operation.type->part;
    const PartSum sum{run_alone_ms(context.impl().executor(), operation, kWarmRuns + o.steps),
                      engine::floor_bytes(part, cost), cost.multiply_adds};
    row.parts.push_back({d.name, sum.ms, engine::floor_ms(part, sum, rates), sum.bytes, sum.multiply_adds});
  }
  return row;
}

}  // namespace

BenchResult bench_ops(const DecodeBenchOptions& options) {
  DecodeBenchOptions o = options;
  if (o.engine.num_threads == 0) o.engine.num_threads = base::available_threads();
  const auto config = model::Config::read_directory(o.engine.model);
  constexpr int32_t kSteps = kFirstSteps + 1 + kMaxOperators;
  BenchResult result;
  if (o.progress) o.progress("measuring the machine");
  result.machine = measure_machine(o.engine.num_threads);
  for (int32_t num_tokens : o.contexts) {
    tidepool_check(num_tokens > kSteps, "--contexts has {} tokens, bench ops needs more than {}", num_tokens, kSteps);
    engine::BenchContextOptions context;
    context.engine = o.engine;
    context.engine.exec = ExecMode::kEager;  // every step pushes its operations
    context.batch = o.batch;
    context.num_filled = num_tokens - kSteps;
    context.num_steps = kSteps;
    std::unique_ptr<engine::TopkLists> lists;
    if (o.topk_overlap >= 0) {
      lists = std::make_unique<engine::TopkLists>(
          engine::TopkLists::Options{static_cast<int32_t>(config.layer_groups().size()), o.batch, config.index_topk,
                                     context.num_filled, 40, kSteps, o.topk_overlap, o.engine.seed});
      context.lists = lists.get();
    }
    for (OffloadRoute route : {OffloadRoute::kOff, OffloadRoute::kSelect}) {
      context.engine.route = route;
      if (!o.pool_sizes.empty()) context.engine.pool_size = o.pool_sizes[0];
      if (o.progress)
        o.progress(
            fmt::format("operators at {} tokens, {}", num_tokens, route == OffloadRoute::kOff ? "off" : "select"));
      BenchContext filled(context);
      filled.fill();
      filled.warm_pool();
      result.rows.push_back(measure_operators(filled, o, num_tokens, result.machine));
    }
  }
  return result;
}

}  // namespace tidepool
