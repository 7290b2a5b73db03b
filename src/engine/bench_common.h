// What the benchmarks share: medians, parts of a step from its timeline, their floors, made prompts and top-k lists.
//
// Floor of a part = max(bytes / read bandwidth, multiply-adds / peak), bytes and multiply-adds summed over its
// operations. Bytes are what the operations declare to read; parts that copy rows (serve, install, spill) count the
// bytes copied, over the copy bandwidth. Floor of a step = sum over projections, indexer, attention, experts and head:
// what a model step cannot do without, on any route. Pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "device/executor.h"
#include "tidepool/bench.h"

namespace tidepool::engine {

double median(std::vector<double> values);  // of an even number: the mean of the middle two; 0 when empty

// Ids in [0, vocab_size), the same for the same seed.
std::vector<int32_t> seeded_ids(int32_t vocab_size, uint64_t seed, int32_t count);

inline constexpr size_t kNumParts = static_cast<size_t>(device::Part::kSpill) + 1;

// One part of one step, or one operator.
struct PartSum {
  double ms = 0;
  uint64_t bytes = 0;
  uint64_t multiply_adds = 0;
};

struct StepSums {
  std::array<PartSum, kNumParts> parts{};  // by device::Part, operations of all streams
  double busy_ms = 0;                      // time in which at least one operation ran
  double kernel_ms = 0;                    // the same of operations of nn and ops: all but device copies
  double wall_ms = 0;                      // from before the first to after the last; sum_step leaves it
  void add(const StepSums& other);
};
StepSums sum_step(std::span<const device::TimelineEntry> entries);

// Medians over `steps` of 1 - busy_ms / wall_ms and of 1 - kernel_ms / wall_ms, at least 0.
void set_shares(const std::vector<StepSums>& steps, BenchRow& row);

uint64_t floor_bytes(device::Part part, const device::Cost& cost);
double floor_ms(device::Part part, const PartSum& sum, const MachineRates& rates);

// Fills parts (those that ran), floor_ms and ratio_to_floor from the medians over `steps`; step_ms is set before.
void set_parts(const std::vector<StepSums>& steps, const MachineRates& rates, BenchRow& row);

// Selections of decode rows with a given step-to-step overlap: random positions, ascending, -1 as suffix. Half of what
// is new in a step was selected within the last steps (kRecentSteps), the rest is drawn from all positions: a pool of a
// few lists then hits about half of what is new. Warm steps see the first num_filled positions; step s sees num_filled
// + s + 1 of them and selects its own, the newest. A context of at most topk positions is selected whole.
class TopkLists {
 public:
  static constexpr int32_t kRecentSteps = 8;
  struct Options {
    int32_t num_groups = 1, batch = 1, topk = 0;
    int32_t num_filled = 0;
    int32_t num_warm = 0, num_steps = 0;
    double overlap = 0.8;
    uint64_t seed = 0;
  };
  explicit TopkLists(const Options& options);
  // [batch, topk]; steps -num_warm .. num_steps - 1.
  const int32_t* lists(int32_t step, int32_t group) const;
  int32_t num_warm() const { return options_.num_warm; }

 private:
  void make_row(int32_t group, int32_t row);
  int32_t* list(int32_t step, int32_t group, int32_t row);

  Options options_;
  std::vector<int32_t> lists_;  // [num_warm + num_steps, num_groups, batch, topk]
};

}  // namespace tidepool::engine
