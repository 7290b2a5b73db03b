// tidepool bench decode|prefill|ops: wall time of this machine beside its floor.
#include <array>

#include "base/check.h"
#include "commands.h"
#include "config_option.h"
#include "engine_flags.h"
#include "output.h"
#include "tidepool/bench.h"
#include "tidepool/checkpoint.h"

namespace tidepool::cli {
namespace {

using base::Json;

struct Options {
  EngineFlags engine;
  std::vector<int32_t> contexts, pool_sizes;
  int32_t batch = 1, steps = 12;
  std::string topk_from = "model";
  double overlap = 0.8;
  bool json = false;
};

void declare(base::FlagSet& flags, Options& o, const std::string& what) {
  flags.integers("--contexts", &o.contexts).unit("tokens").range(1, 1 << 24).help("context lengths to measure");
  if (what != "prefill") {
    flags.integer("--batch", &o.batch).unit("requests").range(1, kMaxNumSeqs).help("requests in a step");
    flags.integer("--steps", &o.steps).unit("steps").range(1, 1 << 20).help("measured per row; the median is shown");
    flags.integers("--pool-sizes", &o.pool_sizes)
        .unit("rows")
        .range(1, 1 << 30)
        .default_text("one that holds everything, one at about 90 % hits")
        .help("device pools of the select rows");
    flags.choice("--topk-from", &o.topk_from, {"model", "list"}).help("selections: the model's own, or made lists");
    flags.number("--overlap", &o.overlap).range(0, 1).help("share that made lists keep from step to step");
  }
  flags.toggle("--json", &o.json).help("print one JSON object");
  declare_engine_flags(flags, o.engine, "from --contexts", what == "prefill" ? "1" : "--batch");
}

Json row_json(const BenchRow& row) {
  Json out = Json::object();
  out.set("what", row.what);
  out.set("context_tokens", row.context_tokens);
  out.set("batch", row.batch);
  out.set("pool_size", row.pool_size);
  out.set("step_ms", row.step_ms);
  out.set("floor_ms", row.floor_ms);
  out.set("ratio_to_floor", row.ratio_to_floor);
  out.set("ratio_to_off", row.ratio_to_off);
  out.set("hit_rate", row.hit_rate);
  out.set("peak_share", row.peak_share);
  out.set("overhead_share", row.overhead_share);
  Json parts = Json::array();
  for (const BenchPart& part : row.parts) {
    Json one = Json::object();
    one.set("name", part.name);
    one.set("ms", part.ms);
    one.set("floor_ms", part.floor_ms);
    one.set("bytes", part.bytes);
    one.set("multiply_adds", part.multiply_adds);
    parts.push_back(std::move(one));
  }
  out.set("parts", std::move(parts));
  return out;
}

Json result_json(const BenchResult& result) {
  Json rows = Json::array();
  for (const BenchRow& row : result.rows) rows.push_back(row_json(row));
  Json floor = Json::object();
  floor.set("read_bytes_per_s", result.machine.read_bytes_per_s);
  floor.set("copy_bytes_per_s", result.machine.copy_bytes_per_s);
  floor.set("multiply_adds_per_s", result.machine.multiply_adds_per_s);
  floor.set("simd_target", result.machine.simd_target);
  floor.set("num_threads", result.machine.num_threads);
  Json out = Json::object();
  out.set("rows", std::move(rows));
  out.set("floor", std::move(floor));
  return out;
}

std::string heading(const BenchRow& row) {
  std::string out = fmt::format("{}, {} tokens, batch {}", row.what, count_text(row.context_tokens), row.batch);
  if (row.pool_size > 0) out += fmt::format(", pool {} rows", count_text(row.pool_size));
  if (row.hit_rate > 0) out += fmt::format(", {:.1f} % hits", 100 * row.hit_rate);
  if (row.ratio_to_off > 0) out += fmt::format(", {:.2f} times off", row.ratio_to_off);
  if (row.peak_share > 0) out += fmt::format(", {:.0f} % of the multiply-add peak", 100 * row.peak_share);
  return out;
}

std::string row_text(const BenchRow& row) {
  const bool is_prefill = row.peak_share > 0;
  const int digits = row.step_ms > 0 ? 3 : 5;  // single operators are short
  std::string out =
      fmt::format("\n{}\n  {:<32} {:>11} {:>11} {:>7}{}\n", heading(row), "part", "ms", "floor ms", "ratio",
                  is_prefill        ? "   ns per 1,000 multiply-adds"
                  : row.step_ms > 0 ? "  share"
                                    : "");
  const auto line = [&](const std::string& name, double ms, double floor_ms) {
    out += fmt::format("  {:<32} {:>11.{}f} {:>11.{}f} ", name, ms, digits, floor_ms, digits);
    out += floor_ms > 0 ? fmt::format("{:>7.2f}", ms / floor_ms) : fmt::format("{:>7}", "");
  };
  for (const BenchPart& part : row.parts) {
    line(part.name, part.ms, part.floor_ms);
    if (is_prefill && part.multiply_adds > 0) {
      out += fmt::format(" {:>28.2f}", 1e9 * part.ms / static_cast<double>(part.multiply_adds));
    } else if (!is_prefill && row.step_ms > 0 && !part.name.ends_with("(in flight)")) {
      out += fmt::format(" {:>4.0f} %", 100 * part.ms / row.step_ms);
    }
    out += "\n";
  }
  if (row.step_ms == 0) return out;
  line(is_prefill ? "whole prompt" : "step", row.step_ms, row.floor_ms);
  return out + fmt::format("\n  in no operation: {:.1f} %\n", 100 * row.overhead_share);
}

std::string result_text(const BenchResult& result) {
  const MachineRates& m = result.machine;
  std::string out = fmt::format(
      "machine: {} threads, {}; reads {:.1f} GB/s, copies {:.1f} GB/s, {:.1f} G multiply-adds/s\n", m.num_threads,
      m.simd_target, m.read_bytes_per_s / 1e9, m.copy_bytes_per_s / 1e9, m.multiply_adds_per_s / 1e9);
  for (const BenchRow& row : result.rows) out += row_text(row);
  return out;
}

// Options that this kind of bench sets itself; taking them in silence would let the caller believe otherwise.
void refuse_what_is_not_used(const base::FlagSet& flags, const Options& o, const std::string& what) {
  std::vector<std::pair<const char*, const char*>> unused{{"--max-model-len", "--contexts says it"}};
  if (what == "prefill") {
    unused.emplace_back("--max-num-seqs", "one prompt runs at a time");
  } else {
    unused.emplace_back("--max-num-seqs", "--batch says it");
    unused.emplace_back("--max-num-batched-tokens", "no prompt runs");
    unused.emplace_back("--offload", "off and select are measured side by side");
    unused.emplace_back("--pool-size", "--pool-sizes says it");
  }
  for (const auto& [name, reason] : unused) {
    if (flags.given(name)) throw base::UsageError(fmt::format("{}: not for bench {}: {}", name, what, reason));
  }
  if (o.engine.num_draft_tokens > 0) {
    throw base::UsageError(fmt::format("--num-draft-tokens {}: not for bench {}: the main model is measured alone",
                                       o.engine.num_draft_tokens, what));
  }
  if (flags.given("--overlap") && what != "prefill" && !flags.given("--topk-from")) {
    throw base::UsageError("--overlap: is for --topk-from list");
  }
}

// Of the file of --config what this bench measures: the model, the mode, the block size, and beside prompts the batch
// and the pool.
std::optional<PublishedConfig> read_config(const base::FlagSet& flags, Options& o, const std::string& what) {
  std::optional<PublishedConfig> config = apply_config(flags, o.engine);
  o.engine.num_draft_tokens = 0;
  if (!config || what == "prefill") return config;
  if (!flags.given("--batch")) o.batch = config->batch_size;
  if (!flags.given("--pool-sizes") && config->shared_indexer_offload) o.pool_sizes = {o.engine.pool_size};
  return config;
}

void check_sizes(const Options& o, const EngineOptions& engine, const std::string& what) {
  for (const int32_t rows : o.pool_sizes) check_pool("--pool-sizes", rows, engine.num_ways);
  if (what == "ops" && o.pool_sizes.size() > 1) throw base::UsageError("--pool-sizes: bench ops takes one");
  const int64_t longest = describe_checkpoint(engine.model).max_position - (what == "prefill" ? 1 : 0);
  for (const int32_t tokens : o.contexts) {
    if (tokens > longest) {
      throw base::UsageError(
          fmt::format("--contexts {}: the value must be at most {} tokens for this model", tokens, longest));
    }
  }
}

BenchResult measure(const Options& o, const EngineOptions& engine, const std::string& what) {
  const auto progress = [](const std::string& line) { note(line); };
  if (what == "prefill") {
    PrefillBenchOptions options;
    options.engine = engine;
    options.contexts = o.contexts;
    options.progress = progress;
    return bench_prefill(options);
  }
  DecodeBenchOptions options;
  options.engine = engine;
  options.contexts = o.contexts;
  options.batch = o.batch;
  options.steps = o.steps;
  options.pool_sizes = o.pool_sizes;
  options.topk_overlap = o.topk_from == "list" ? o.overlap : -1;
  options.progress = progress;
  return what == "decode" ? bench_decode(options) : bench_ops(options);
}

constexpr std::array<const char*, 3> kSummaries{"a decode step with and without offload, by parts",
                                                "the prefill of a prompt, by parts", "each operator alone"};
const std::vector<std::string> kKinds{"decode", "prefill", "ops"};

}  // namespace

int run_bench(const Arguments& arguments) {
  const std::string usage = "tidepool bench: decode | prefill | ops; tidepool bench KIND --help lists the options";
  const std::string what = arguments.empty() ? "" : arguments[0];
  if (what == "--help" || what == "-h") return print(usage + "\n"), 0;
  if (what == "experiment") throw base::UsageError("bench experiment is not available yet");
  size_t kind = 0;
  while (kind < kKinds.size() && kKinds[kind] != what) ++kind;
  if (kind == kKinds.size()) {
    throw base::UsageError(
        fmt::format("\"{}\" is not a kind of bench; the kinds are {}", what, fmt::join(kKinds, ", ")));
  }
  Options o;
  o.contexts = what == "prefill" ? PrefillBenchOptions().contexts : DecodeBenchOptions().contexts;
  base::FlagSet flags("tidepool bench " + what, kSummaries[kind]);
  declare(flags, o, what);
  if (flags.parse(Arguments(arguments.begin() + 1, arguments.end())) == base::FlagSet::kHelp)
    return print(flags.help_text()), 0;
  refuse_what_is_not_used(flags, o, what);
  const std::optional<PublishedConfig> config = read_config(flags, o, what);
  const EngineOptions engine = engine_options(o.engine);
  check_sizes(o, engine, what);
  const BenchResult result = measure(o, engine, what);
  o.json ? print_json(result_json(result)) : print(result_text(result));
  note_options_without_effect(config);
  return 0;
}

}  // namespace tidepool::cli
