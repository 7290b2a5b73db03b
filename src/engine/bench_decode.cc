// Decode steps with and without offload, side by side: engines of all configurations live at once and take turns in
// blocks of steps, so that what else the machine does meets all of them. Every step's logits are compared with off's.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "engine/bench_context.h"

namespace tidepool {
namespace {

using engine::BenchContext;
using engine::BenchContextOptions;
using engine::StepSums;
using engine::TopkLists;

// A block: one step to get the caches back from the other engines, steps whose wall time counts, steps with a timeline.
constexpr int32_t kWallSteps = 3, kTimedSteps = 2, kBlockSteps = 1 + kWallSteps + kTimedSteps;
constexpr int32_t kDropped = 2;     // steps before the first block
constexpr int32_t kWarmLists = 40;  // fill a pool of 8,192 rows several times over
constexpr int32_t kSmallPool = 8192;

struct Configuration {
  std::unique_ptr<BenchContext> context;
  std::vector<double> wall_ms;
  std::vector<StepSums> timed;
  cache::Counts before;
};

void say(const DecodeBenchOptions& options, const std::string& line) {
  if (options.progress) options.progress(line);
}

int32_t num_blocks(const DecodeBenchOptions& o) { return (o.steps + kWallSteps - 1) / kWallSteps; }
int32_t num_steps(const DecodeBenchOptions& o) { return kDropped + num_blocks(o) * kBlockSteps; }

// The smallest that holds `context` rows; and 8,192, or less where that is everything.
std::vector<int32_t> default_pools(int32_t context, int32_t num_ways) {
  int32_t all = num_ways;
  while (all < context) all *= 2;
  int32_t small = num_ways;
  while (2 * small <= kSmallPool && 2 * small < all) small *= 2;
  return small < all ? std::vector<int32_t>{all, small} : std::vector<int32_t>{all};
}

std::vector<Configuration> make_configurations(const DecodeBenchOptions& o, int32_t context, const TopkLists* lists) {
  const auto pools = o.pool_sizes.empty() ? default_pools(context, o.engine.num_ways) : o.pool_sizes;
  BenchContextOptions options;
  options.engine = o.engine;
  options.batch = o.batch;
  options.num_steps = num_steps(o);
  options.num_filled = context - options.num_steps;
  options.lists = lists;
  std::vector<Configuration> all;
  uint64_t bytes = 0;
  for (size_t i = 0; i <= pools.size(); ++i) {
    options.engine.route = i == 0 ? OffloadRoute::kOff : OffloadRoute::kSelect;
    if (i > 0) options.engine.pool_size = pools[i - 1];
    all.push_back({std::make_unique<BenchContext>(options), {}, {}, {}});
    bytes += all.back().context->memory_bytes();
  }
  const uint64_t available = base::available_memory_bytes();
  tidepool_check(bytes < available, "bench: {} engines side by side at {} tokens need {:.1f} GiB, {:.1f} GiB are free",
                 all.size(), context, static_cast<double>(bytes) / (1 << 30),
                 static_cast<double>(available) / (1 << 30));
  return all;
}

// Every engine runs the block's steps; all must agree with the first, bit for bit.
class BlockRunner {
 public:
  explicit BlockRunner(std::vector<Configuration>& all) : all_(all) {}

  void run(int32_t dropped, int32_t walls, int32_t timed) {
    expected_.clear();
    for (size_t i = 0; i < all_.size(); ++i) {
      Configuration& c = all_[i];
      next_ = 0;
      for (int32_t s = 0; s < dropped; ++s) c.context->step(), check(c, i == 0);
      for (int32_t s = 0; s < walls; ++s) c.wall_ms.push_back(c.context->step()), check(c, i == 0);
      for (int32_t s = 0; s < timed; ++s) c.timed.push_back(c.context->timed_step()), check(c, i == 0);
    }
  }

 private:
  void check(Configuration& c, bool is_first) {
    const auto vocab = static_cast<size_t>(c.context->impl().config().vocab_size);
    for (int32_t b = 0; b < c.context->batch(); ++b, next_ += vocab) {
      const float* logits = c.context->logits(b);
      if (is_first) {
        expected_.insert(expected_.end(), logits, logits + vocab);
        continue;
      }
      tidepool_check(std::memcmp(logits, expected_.data() + next_, vocab * sizeof(float)) == 0,
                     "bench: logits of step {}, request {} with a pool of {} rows differ from those without offload",
                     c.context->num_steps_run() - 1, b, c.context->pool_size());
    }
  }

  std::vector<Configuration>& all_;
  std::vector<float> expected_;  // of the block, by step and request
  size_t next_ = 0;
};

BenchRow make_row(Configuration& c, const DecodeBenchOptions& o, int32_t context, const MachineRates& rates,
                  double off_ms) {
  BenchRow row;
  row.what = c.context->is_select() ? "decode select" : "decode off";
  row.context_tokens = context;
  row.batch = o.batch;
  row.pool_size = c.context->pool_size();
  row.step_ms = engine::median(c.wall_ms);
  engine::set_parts(c.timed, rates, row);
  std::vector<double> busy;
  for (const StepSums& step : c.timed) busy.push_back(step.busy_ms);
  row.overhead_share = std::max(0.0, 1 - engine::median(busy) / row.step_ms);
  if (!c.context->is_select()) return row;
  row.ratio_to_off = row.step_ms / off_ms;
  const cache::Counts now = c.context->counts();
  const auto hits = static_cast<double>(now.hits - c.before.hits);
  const auto others = static_cast<double>(now.misses - c.before.misses + now.window - c.before.window);
  row.hit_rate = hits + others > 0 ? hits / (hits + others) : 0;
  return row;
}

void measure_context(const DecodeBenchOptions& o, int32_t context, BenchResult& result) {
  const auto config = model::Config::read_directory(o.engine.model);
  std::unique_ptr<TopkLists> lists;
  if (o.topk_overlap >= 0) {
    TopkLists::Options list;
    list.num_groups = static_cast<int32_t>(config.layer_groups().size());
    list.batch = o.batch;
    list.topk = config.index_topk;
    list.num_steps = num_steps(o);
    list.num_filled = context - list.num_steps;
    list.num_warm = kWarmLists;
    list.overlap = o.topk_overlap;
    list.seed = o.engine.seed;
    lists = std::make_unique<TopkLists>(list);
  }
  say(o, fmt::format("decode at {} tokens: filling the contexts", context));
  auto all = make_configurations(o, context, lists.get());
  for (Configuration& c : all) {
    c.context->fill();
    c.context->warm_pool();
  }
  say(o, fmt::format("decode at {} tokens: {} configurations, {} steps each", context, all.size(), num_steps(o)));
  BlockRunner runner(all);
  runner.run(kDropped, 0, 0);
  for (Configuration& c : all) c.before = c.context->counts();
  for (int32_t block = 0; block < num_blocks(o); ++block) runner.run(1, kWallSteps, kTimedSteps);
  const double off_ms = engine::median(all[0].wall_ms);
  for (Configuration& c : all) result.rows.push_back(make_row(c, o, context, result.machine, off_ms));
  say(o, fmt::format("decode at {} tokens: logits of all steps are bit-identical to those without offload", context));
}

}  // namespace

BenchResult bench_decode(const DecodeBenchOptions& options) {
  DecodeBenchOptions o = options;
  if (o.engine.num_threads == 0) o.engine.num_threads = base::available_threads();
  tidepool_check(o.batch >= 1 && o.steps >= 1, "bench: batch {} and {} steps must be at least 1", o.batch, o.steps);
  for (int32_t context : o.contexts) {
    tidepool_check(context > num_steps(o), "--contexts has {} tokens: {} measured steps need a context of more than {}",
                   context, o.steps, num_steps(o));
  }
  BenchResult result;
  say(o, "measuring the machine");
  result.machine = measure_machine(o.engine.num_threads);
  for (int32_t context : o.contexts) measure_context(o, context, result);
  return result;
}

}  // namespace tidepool
