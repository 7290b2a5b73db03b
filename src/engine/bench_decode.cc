// Decode steps with and without offload, in several modes, of one and more rows, side by side: engines of all
// configurations live at once and take turns in blocks of steps, so that what else the machine does meets all of them.
// The logits of a position are compared between all configurations that come to it.
#include <algorithm>
#include <cstring>
#include <map>

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

// A block: one step to get the caches back from the other engines, steps whose wall time counts, steps with a timeline
// (for what happens between operations), steps whose operations are asked for their costs, too (for the parts).
constexpr int32_t kWallSteps = 3, kTimedSteps = 2, kCostSteps = 2;
constexpr int32_t kBlockSteps = 1 + kWallSteps + kTimedSteps + kCostSteps;
constexpr int32_t kDropped = 2;     // steps before the first block
constexpr int32_t kWarmLists = 40;  // fill a pool of 8,192 rows several times over
constexpr int32_t kSmallPool = 8192;

struct Configuration {
  std::unique_ptr<BenchContext> context;
  std::vector<double> wall_ms{};
  std::vector<StepSums> timed{}, with_costs{};
  cache::Counts before{};

  std::string name() const {
    const auto& c = *context;
    const std::string route = c.is_select() ? fmt::format("a pool of {} rows", c.pool_size()) : "off";
    return fmt::format("{}, {}, {} rows", route, exec_mode_name(c.exec()), c.rows());
  }
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

std::vector<int32_t> row_counts(const DecodeBenchOptions& o) {
  return o.rows == 1 ? std::vector<int32_t>{1} : std::vector<int32_t>{1, o.rows};
}

// Of off (0) and the pools: which are measured in the i-th mode.
std::vector<int32_t> pools_of_mode(const DecodeBenchOptions& o, int32_t context, size_t mode) {
  auto pools = o.pool_sizes.empty() ? default_pools(context, o.engine.num_ways) : o.pool_sizes;
  if (mode > 0) pools = {*std::max_element(pools.begin(), pools.end())};
  pools.insert(pools.begin(), 0);
  return pools;
}

std::vector<Configuration> make_configurations(const DecodeBenchOptions& o, int32_t context, const TopkLists* lists) {
  BenchContextOptions options;
  options.engine = o.engine;
  options.batch = o.batch;
  options.num_steps = num_steps(o);
  options.num_filled = context - num_steps(o) * o.rows;
  options.lists = lists;
  std::vector<Configuration> all;
  uint64_t bytes = 0;
  for (size_t mode = 0; mode < o.modes.size(); ++mode) {
    options.engine.exec = o.modes[mode];
    for (const int32_t pool : pools_of_mode(o, context, mode)) {
      options.engine.route = pool == 0 ? OffloadRoute::kOff : OffloadRoute::kSelect;
      if (pool > 0) options.engine.pool_size = pool;
      for (const int32_t rows : row_counts(o)) {
        options.rows = rows;
        all.push_back({std::make_unique<BenchContext>(options)});
        bytes += all.back().context->memory_bytes();
      }
    }
  }
  const uint64_t available = base::available_memory_bytes();
  tidepool_check(bytes < available, "bench: {} engines side by side at {} tokens need {:.1f} GiB, {:.1f} GiB are free",
                 all.size(), context, static_cast<double>(bytes) / (1 << 30),
                 static_cast<double>(available) / (1 << 30));
  return all;
}

// The logits of positions that not every configuration has come to.
class LogitsBook {
 public:
  // Keeps them, or compares them with those of the first that came here, bit for bit.
  void check(const Configuration& c, int32_t position, int32_t request, const float* logits) {
    const auto vocab = static_cast<size_t>(c.context->impl().config().vocab_size);
    const auto [at, is_new] = pages_.try_emplace({position, request});
    if (is_new) {
      at->second = {c.name(), {logits, logits + vocab}};
      return;
    }
    tidepool_check(std::memcmp(logits, at->second.logits.data(), vocab * sizeof(float)) == 0,
                   "bench: logits of position {}, request {} differ between ({}) and ({})", position, request,
                   at->second.name, c.name());
  }
  void forget_before(int32_t position) { pages_.erase(pages_.begin(), pages_.lower_bound({position, 0})); }

 private:
  struct Page {
    std::string name;
    std::vector<float> logits;
  };
  std::map<std::pair<int32_t, int32_t>, Page> pages_;  // by position, request
};

// Every engine runs the block's steps.
class BlockRunner {
 public:
  explicit BlockRunner(std::vector<Configuration>& all) : all_(all) {}

  void run(int32_t dropped, int32_t walls, int32_t timed, int32_t with_costs) {
    int32_t slowest = INT32_MAX;
    for (Configuration& c : all_) {
      for (int32_t s = 0; s < dropped; ++s) c.context->step(), check(c);
      for (int32_t s = 0; s < walls; ++s) c.wall_ms.push_back(c.context->step()), check(c);
      for (int32_t s = 0; s < timed; ++s) c.timed.push_back(c.context->timed_step(false)), check(c);
      for (int32_t s = 0; s < with_costs; ++s) c.with_costs.push_back(c.context->timed_step(true)), check(c);
      slowest = std::min(slowest, c.context->next_position());
    }
    book_.forget_before(slowest);
  }

 private:
  void check(Configuration& c) {
    BenchContext& context = *c.context;
    for (int32_t b = 0; b < context.batch(); ++b) {
      for (int32_t j = 0; j < context.rows(); ++j) {
        book_.check(c, context.next_position() - context.rows() + j, b, context.logits(b, j));
      }
    }
  }

  std::vector<Configuration>& all_;
  LogitsBook book_;
};

BenchRow make_row(Configuration& c, int32_t context, const MachineRates& rates) {
  BenchRow row;
  row.what = c.context->is_select() ? "decode select" : "decode off";
  row.exec = c.context->exec();
  row.context_tokens = context;
  row.batch = c.context->batch();
  row.rows = c.context->rows();
  row.pool_size = c.context->pool_size();
  row.step_ms = engine::median(c.wall_ms);
  engine::set_parts(c.with_costs, rates, row);
  engine::set_shares(c.timed, row);
  if (!c.context->is_select()) return row;
  const cache::Counts now = c.context->counts();
  const auto hits = static_cast<double>(now.hits - c.before.hits);
  const auto others = static_cast<double>(now.misses - c.before.misses + now.window - c.before.window);
  row.hit_rate = hits + others > 0 ? hits / (hits + others) : 0;
  return row;
}

// rows: of one context.
void set_ratios(std::vector<BenchRow>& rows) {
  const auto find = [&](const BenchRow& like, int32_t num_rows, int32_t pool_size) -> const BenchRow& {
    return *std::find_if(rows.begin(), rows.end(), [&](const BenchRow& r) {
      return r.exec == like.exec && r.rows == num_rows && r.pool_size == pool_size;
    });
  };
  for (BenchRow& row : rows) {
    if (row.pool_size > 0) row.ratio_to_off = row.step_ms / find(row, row.rows, 0).step_ms;
    if (row.rows == 1) continue;
    const BenchRow& one = find(row, 1, row.pool_size);
    row.step_to_one_row = row.step_ms / one.step_ms;
    row.floor_to_one_row = row.floor_ms / one.floor_ms;
  }
}

std::unique_ptr<TopkLists> make_lists(const DecodeBenchOptions& o, int32_t context) {
  if (o.topk_overlap < 0) return nullptr;
  const auto config = model::Config::read_directory(o.engine.model);
  TopkLists::Options list;
  list.num_groups = static_cast<int32_t>(config.layer_groups().size());
  list.batch = o.batch;
  list.topk = config.index_topk;
  list.num_steps = num_steps(o) * o.rows;
  list.num_filled = context - list.num_steps;
  list.num_warm = kWarmLists;
  list.overlap = o.topk_overlap;
  list.seed = o.engine.seed;
  return std::make_unique<TopkLists>(list);
}

void measure_context(const DecodeBenchOptions& o, int32_t context, BenchResult& result) {
  const std::unique_ptr<TopkLists> lists = make_lists(o, context);
  say(o, fmt::format("decode at {} tokens: filling the contexts", context));
  auto all = make_configurations(o, context, lists.get());
  for (Configuration& c : all) {
    c.context->fill();
    c.context->warm_pool();
  }
  say(o, fmt::format("decode at {} tokens: {} configurations, {} steps each", context, all.size(), num_steps(o)));
  BlockRunner runner(all);
  runner.run(kDropped, 0, 0, 0);
  for (Configuration& c : all) c.before = c.context->counts();
  for (int32_t block = 0; block < num_blocks(o); ++block) runner.run(1, kWallSteps, kTimedSteps, kCostSteps);
  std::vector<BenchRow> rows;
  for (Configuration& c : all) rows.push_back(make_row(c, context, result.machine));
  set_ratios(rows);
  result.rows.insert(result.rows.end(), rows.begin(), rows.end());
  say(o, fmt::format("decode at {} tokens: logits of all configurations are bit-identical", context));
}

void check_options(const DecodeBenchOptions& o) {
  tidepool_check(o.batch >= 1 && o.steps >= 1, "bench: batch {} and {} steps must be at least 1", o.batch, o.steps);
  tidepool_check(o.rows >= 1 && o.rows <= 1 + kMaxDraftTokens, "--rows {}: the value must be 1 to {}", o.rows,
                 1 + kMaxDraftTokens);
  tidepool_check(!o.modes.empty(), "bench: no mode to measure");
  if (o.rows > 1) {
    const auto config = model::Config::read_directory(o.engine.model);
    tidepool_check(config.num_mtp_layers > 0, "--rows {}: more than one row needs a model with an MTP layer", o.rows);
  }
  for (int32_t context : o.contexts) {
    tidepool_check(context > num_steps(o) * o.rows,
                   "--contexts has {} tokens: {} measured steps need a context of more than {}", context, o.steps,
                   num_steps(o) * o.rows);
  }
}

}  // namespace

BenchResult bench_decode(const DecodeBenchOptions& options) {
  DecodeBenchOptions o = options;
  if (o.engine.num_threads == 0) o.engine.num_threads = base::available_threads();
  check_options(o);
  BenchResult result;
  if (!o.machine) say(o, "measuring the machine");
  result.machine = o.machine ? *o.machine : measure_machine(o.engine.num_threads);
  for (int32_t context : o.contexts) measure_context(o, context, result);
  return result;
}

}  // namespace tidepool
