#include "engine/bench_common.h"

#include <algorithm>
#include <deque>
#include <random>

#include "device/copy.h"

namespace tidepool::engine {
namespace {

using device::Part;

// Rows move from memory to memory.
bool is_copy(Part part) { return part == Part::kServe || part == Part::kInstall || part == Part::kSpill; }

// With more than one thread these wait for a worker and to be noticed while main runs: their times are no work.
bool is_on_side(Part part) { return part == Part::kInstall || part == Part::kSpill; }

bool is_in_step_floor(Part part) {
  return part == Part::kProjection || part == Part::kIndexer || part == Part::kAttention || part == Part::kExperts ||
         part == Part::kHead;
}

using Intervals = std::vector<std::pair<int64_t, int64_t>>;

// Time within at least one of them.
double covered_ms(Intervals intervals) {
  std::sort(intervals.begin(), intervals.end());
  int64_t covered_ns = 0, seen_until = INT64_MIN;
  for (const auto& [begin, end] : intervals) {
    covered_ns += std::max<int64_t>(0, end - std::max(begin, seen_until));
    seen_until = std::max(seen_until, end);
  }
  return static_cast<double>(covered_ns) * 1e-6;
}

double median_of(const std::vector<StepSums>& steps, size_t part, double (*value)(const PartSum&)) {
  std::vector<double> values;
  for (const StepSums& step : steps) values.push_back(value(step.parts[part]));
  return median(std::move(values));
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::vector<int32_t> seeded_ids(int32_t vocab_size, uint64_t seed, int32_t count) {
  std::vector<int32_t> ids;
  uint64_t state = seed;
  for (int32_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's generator of MMIX
    ids.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab_size)));
  }
  return ids;
}

uint64_t floor_bytes(Part part, const device::Cost& cost) {
  return is_copy(part) ? std::max(cost.write_bytes, cost.link_bytes) : cost.read_bytes + cost.link_bytes;
}

double floor_ms(Part part, const PartSum& sum, const MachineRates& rates) {
  const double bytes_per_s = is_copy(part) ? rates.copy_bytes_per_s : rates.read_bytes_per_s;
  return 1e3 * std::max(static_cast<double>(sum.bytes) / bytes_per_s,
                        static_cast<double>(sum.multiply_adds) / rates.multiply_adds_per_s);
}

void StepSums::add(const StepSums& other) {
  for (size_t i = 0; i < kNumParts; ++i) {
    parts[i].ms += other.parts[i].ms;
    parts[i].bytes += other.parts[i].bytes;
    parts[i].multiply_adds += other.parts[i].multiply_adds;
  }
  busy_ms += other.busy_ms;
  kernel_ms += other.kernel_ms;
  wall_ms += other.wall_ms;
}

StepSums sum_step(std::span<const device::TimelineEntry> entries) {
  StepSums sums;
  Intervals all, kernels;
  for (const device::TimelineEntry& entry : entries) {
    const Part part = entry.type->part;
    PartSum& sum = sums.parts[static_cast<size_t>(part)];
    sum.ms += static_cast<double>(entry.end_ns - entry.begin_ns) * 1e-6;
    sum.bytes += floor_bytes(part, entry.cost);
    sum.multiply_adds += entry.cost.multiply_adds;
    all.emplace_back(entry.begin_ns, entry.end_ns);
    if (entry.type != &device::copy_rows()) kernels.push_back(all.back());
  }
  sums.busy_ms = covered_ms(std::move(all));
  sums.kernel_ms = covered_ms(std::move(kernels));
  return sums;
}

void set_shares(const std::vector<StepSums>& steps, BenchRow& row) {
  std::vector<double> overheads, outsides;
  for (const StepSums& step : steps) {
    overheads.push_back(std::max(0.0, 1 - step.busy_ms / step.wall_ms));
    outsides.push_back(std::max(0.0, 1 - step.kernel_ms / step.wall_ms));
  }
  row.overhead_share = median(std::move(overheads));
  row.outside_share = median(std::move(outsides));
}

void set_parts(const std::vector<StepSums>& steps, const MachineRates& rates, BenchRow& row) {
  row.parts.clear();
  row.floor_ms = 0;
  for (size_t i = 0; i < kNumParts; ++i) {
    const auto part = static_cast<Part>(i);
    PartSum sum;
    sum.ms = median_of(steps, i, [](const PartSum& p) { return p.ms; });
    sum.bytes =
        static_cast<uint64_t>(median_of(steps, i, [](const PartSum& p) { return static_cast<double>(p.bytes); }));
    sum.multiply_adds = static_cast<uint64_t>(
        median_of(steps, i, [](const PartSum& p) { return static_cast<double>(p.multiply_adds); }));
    if (sum.ms == 0) continue;
    const double floor = floor_ms(part, sum, rates);
    std::string name = device::part_name(part);
    if (rates.num_threads > 1 && is_on_side(part)) name += " (in flight)";
    row.parts.push_back({std::move(name), sum.ms, floor, sum.bytes, sum.multiply_adds});
    if (is_in_step_floor(part)) row.floor_ms += floor;
  }
  row.ratio_to_floor = row.floor_ms > 0 ? row.step_ms / row.floor_ms : 0;
}

TopkLists::TopkLists(const Options& options) : options_(options) {
  const auto& o = options_;
  const auto num_lists =
      static_cast<size_t>(o.num_warm + o.num_steps) * static_cast<size_t>(o.num_groups) * static_cast<size_t>(o.batch);
  lists_.assign(num_lists * static_cast<size_t>(o.topk), -1);
  for (int32_t group = 0; group < o.num_groups; ++group) {
    for (int32_t row = 0; row < o.batch; ++row) make_row(group, row);
  }
}

int32_t* TopkLists::list(int32_t step, int32_t group, int32_t row) {
  const auto& o = options_;
  const int64_t index = (int64_t{step + o.num_warm} * o.num_groups + group) * o.batch + row;
  return lists_.data() + index * o.topk;
}

const int32_t* TopkLists::lists(int32_t step, int32_t group) const {
  return const_cast<TopkLists*>(this)->list(step, group, 0);
}

void TopkLists::make_row(int32_t group, int32_t row) {
  const auto& o = options_;
  std::mt19937_64 random(o.seed * 1000003 + static_cast<uint64_t>(group) * 1009 + static_cast<uint64_t>(row));
  std::vector<bool> is_selected(static_cast<size_t>(o.num_filled + o.num_steps));
  std::vector<int32_t> selected;
  std::deque<int32_t> recent;  // dropped within the last steps
  const auto take = [&](int32_t position) {
    if (is_selected[static_cast<size_t>(position)]) return;
    is_selected[static_cast<size_t>(position)] = true;
    selected.push_back(position);
  };
  std::vector<int32_t> dropped;
  const auto release = [&] {
    for (int32_t position : dropped) is_selected[static_cast<size_t>(position)] = false;
  };
  for (int32_t step = -o.num_warm; step < o.num_steps; ++step) {
    const int32_t visible = step < 0 ? o.num_filled : o.num_filled + step + 1;
    const auto wanted = static_cast<size_t>(std::min(visible, o.topk));
    const bool all = wanted == static_cast<size_t>(visible);
    const size_t asked = all ? wanted : static_cast<size_t>(o.overlap * static_cast<double>(wanted));
    // The newest position selects itself and needs a place.
    const size_t kept = std::min({selected.size(), asked, step >= 0 ? wanted - 1 : wanted});
    std::shuffle(selected.begin(), selected.end(), random);
    dropped.assign(selected.begin() + static_cast<ptrdiff_t>(kept), selected.end());
    selected.resize(kept);
    // What is dropped does not come back at once, unless nearly everything is selected.
    const bool is_crowded = static_cast<size_t>(visible) < 2 * wanted + dropped.size() - kept;
    if (is_crowded) release();
    if (step >= 0) take(visible - 1);
    while (selected.size() < wanted) {
      const bool from_recent = !recent.empty() && random() % 2 == 0;
      take(from_recent ? recent[random() % recent.size()]
                       : static_cast<int32_t>(random() % static_cast<uint64_t>(visible)));
    }
    if (!is_crowded) release();
    recent.insert(recent.end(), dropped.begin(), dropped.end());
    while (recent.size() > static_cast<size_t>(kRecentSteps) * (wanted - kept)) recent.pop_front();
    int32_t* out = list(step, group, row);
    std::sort(std::copy(selected.begin(), selected.end(), out) - static_cast<ptrdiff_t>(selected.size()),
              out + selected.size());
  }
}

}  // namespace tidepool::engine
