// tidepool bench decode|prefill|ops|drafts: wall time of this machine beside its floor.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "bench_report.h"
#include "commands.h"
#include "config_option.h"
#include "engine_flags.h"
#include "output.h"
#include "prompt.h"
#include "tidepool/bench.h"
#include "tidepool/checkpoint.h"

namespace tidepool::cli {
namespace {

constexpr std::array<ExecMode, 3> kModes{ExecMode::kEager, ExecMode::kCapture, ExecMode::kCompile};

struct Options {
  EngineFlags engine;
  std::vector<int32_t> contexts, pool_sizes;
  int32_t batch = 1, steps = 12, rows = 1, max_tokens = 128;
  std::string topk_from = "model", modes = "eager", prompt_ids;
  double overlap = 0.8;
  bool json = false;
};

bool measures_steps(const std::string& what) { return what == "decode" || what == "ops"; }

void declare(base::FlagSet& flags, Options& o, const std::string& what) {
  flags.integers("--contexts", &o.contexts).unit("tokens").range(1, 1 << 24).help("context lengths to measure");
  if (what == "drafts") {
    flags.text("--prompt-ids", &o.prompt_ids, "F.json")
        .input_file()
        .default_text("seeded ids")
        .help("token ids; each context is its first tokens");
    flags.integer("--max-tokens", &o.max_tokens).unit("tokens").range(24, 1 << 20).help("new ones");
  }
  if (what == "decode") {
    flags.text("--modes", &o.modes, "NAME")
        .help("eager, capture, compile, or some of them separated by commas: how steps are launched");
    flags.integer("--rows", &o.rows)
        .unit("rows")
        .range(1, 1 + kMaxDraftTokens)
        .help("of each request in a step, as with drafts that all stand; more than 1 is measured beside 1");
  }
  if (measures_steps(what)) {
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
  declare_engine_flags(flags, o.engine, "from --contexts", measures_steps(what) ? "--batch" : "1");
}

// Options that this kind of bench sets itself; taking them in silence would let the caller believe otherwise.
void refuse_what_is_not_used(const base::FlagSet& flags, const Options& o, const std::string& what) {
  std::vector<std::pair<const char*, const char*>> unused{{"--max-model-len", "--contexts says it"}};
  if (what == "decode") {
    unused.emplace_back("--exec", "--modes says it");
  } else if (what == "ops") {
    unused.emplace_back("--exec", "each operation runs alone");
  } else if (what == "drafts") {
    unused.emplace_back("--num-draft-tokens", "0 to 3 are measured side by side");
  }
  if (!measures_steps(what)) {
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
    throw base::UsageError(fmt::format("--num-draft-tokens {}: not for bench {}: the main model is measured alone{}",
                                       o.engine.num_draft_tokens, what,
                                       what == "decode" ? "; --rows gives it the rows that drafts would" : ""));
  }
  if (flags.given("--overlap") && measures_steps(what) && !flags.given("--topk-from")) {
    throw base::UsageError("--overlap: is for --topk-from list");
  }
}

// Of the file of --config what this bench measures: the model, the mode, the block size, and beside prompts the batch
// and the pool.
std::optional<PublishedConfig> read_config(const base::FlagSet& flags, Options& o, const std::string& what) {
  std::optional<PublishedConfig> config = apply_config(flags, o.engine);
  o.engine.num_draft_tokens = 0;
  if (!config || !measures_steps(what)) return config;
  if (!flags.given("--modes")) o.modes = o.engine.exec;
  if (!flags.given("--batch")) o.batch = config->batch_size;
  if (!flags.given("--pool-sizes") && config->shared_indexer_offload) o.pool_sizes = {o.engine.pool_size};
  return config;
}

void check_sizes(const Options& o, const EngineOptions& engine, const std::string& what) {
  for (const int32_t rows : o.pool_sizes) check_pool("--pool-sizes", rows, engine.num_ways);
  if (what == "ops" && o.pool_sizes.size() > 1) throw base::UsageError("--pool-sizes: bench ops takes one");
  const int64_t room = what == "prefill" ? 1 : what == "drafts" ? o.max_tokens + DraftsBenchOptions::kExtraTokens : 0;
  const int64_t longest = describe_checkpoint(engine.model).max_position - room;
  for (const int32_t tokens : o.contexts) {
    if (tokens > longest) {
      throw base::UsageError(
          fmt::format("--contexts {}: the value must be at most {} tokens for this model", tokens, longest));
    }
  }
}

std::vector<ExecMode> parse_modes(const std::string& text) {
  std::vector<ExecMode> modes;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    const auto* mode =
        std::find_if(kModes.begin(), kModes.end(), [&](ExecMode m) { return name == exec_mode_name(m); });
    if (mode == kModes.end()) {
      throw base::UsageError(fmt::format("--modes {}: \"{}\" is none of eager, capture and compile", text, name));
    }
    if (std::find(modes.begin(), modes.end(), *mode) != modes.end()) {
      throw base::UsageError(fmt::format("--modes {}: \"{}\" is there twice", text, name));
    }
    modes.push_back(*mode);
    begin = end + 1;
  }
  return modes;
}

BenchResult measure(const Options& o, const EngineOptions& engine, const std::string& what) {
  const auto progress = [](const std::string& line) { note(line); };
  if (what == "drafts") {
    DraftsBenchOptions options;
    options.engine = engine;
    if (!o.prompt_ids.empty()) options.prompt = read_ids(o.prompt_ids, describe_checkpoint(engine.model).vocab_size);
    options.contexts = o.contexts;
    options.max_tokens = o.max_tokens;
    options.progress = progress;
    return bench_drafts(options);
  }
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
  options.rows = o.rows;
  options.modes = parse_modes(o.modes);
  options.pool_sizes = o.pool_sizes;
  options.topk_overlap = o.topk_from == "list" ? o.overlap : -1;
  options.progress = progress;
  return what == "decode" ? bench_decode(options) : bench_ops(options);
}

constexpr std::array<const char*, 4> kSummaries{"a decode step with and without offload, by parts",
                                                "the prefill of a prompt, by parts", "each operator alone",
                                                "a text written with 0 to 3 drafts"};
const std::vector<std::string> kKinds{"decode", "prefill", "ops", "drafts"};

}  // namespace

int run_bench(const Arguments& arguments) {
  const std::string usage =
      "tidepool bench: decode | prefill | ops | drafts; tidepool bench KIND --help lists the options";
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
  o.contexts = what == "prefill"  ? PrefillBenchOptions().contexts
               : what == "drafts" ? DraftsBenchOptions().contexts
                                  : DecodeBenchOptions().contexts;
  base::FlagSet flags("tidepool bench " + what, kSummaries[kind]);
  declare(flags, o, what);
  if (flags.parse(Arguments(arguments.begin() + 1, arguments.end())) == base::FlagSet::kHelp)
    return print(flags.help_text()), 0;
  refuse_what_is_not_used(flags, o, what);
  const std::optional<PublishedConfig> config = read_config(flags, o, what);
  const EngineOptions engine = engine_options(o.engine);
  check_sizes(o, engine, what);
  const BenchResult result = measure(o, engine, what);
  o.json ? print_json(bench_json(result)) : print(bench_text(result));
  note_options_without_effect(config);
  return 0;
}

}  // namespace tidepool::cli
