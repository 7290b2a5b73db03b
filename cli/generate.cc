// tidepool generate: completes prompts.
#include <algorithm>
#include <optional>

#include "base/check.h"
#include "commands.h"
#include "config_option.h"
#include "engine_flags.h"
#include "generate_prompts.h"
#include "generate_report.h"
#include "generation.h"
#include "output.h"
#include "prompt.h"
#include "tidepool/checkpoint.h"

namespace tidepool::cli {
namespace {

struct Options {
  EngineFlags engine;
  PromptFlags prompts;
  std::string timeline, dump_graph;
  int32_t max_tokens = 16;
  RequestOptions sampling;
  bool compare_offload = false, json = false;
};

void declare(base::FlagSet& flags, Options& o) {
  declare_prompt_flags(flags, o.prompts);
  flags.later("--chat", "").help("apply the chat template");
  flags.section("Output");
  flags.integer("--max-tokens", &o.max_tokens).unit("tokens").range(1, 1 << 30).help("longest completion");
  flags.number("--temperature", &o.sampling.temperature).range(0, 100).help("0 is greedy");
  flags.number("--top-p", &o.sampling.top_p)
      .above(0, 1)
      .help("sample from the likeliest tokens of this total probability");
  flags.integer("--top-k", &o.sampling.top_k).unit("tokens").range(0, 1 << 30).help("sample from so many; 0: from all");
  flags.toggle("--ignore-eos", &o.sampling.ignore_eos).help("go on after an end-of-text token");
  flags.toggle("--compare-offload", &o.compare_offload)
      .help("run again with --offload off; exit code 1 unless all tokens and all logits are bit-identical");
  flags.text("--timeline", &o.timeline, "F.json").output_stream().help("a Chrome trace of the run");
  flags.text("--dump-graph", &o.dump_graph, "DIR")
      .output_directory()
      .help("the graph of a decode step before and after each pass, as dot files; with --exec compile");
  flags.later("--record-topk", "F.tptrace").help("record the selections");
  flags.toggle("--json", &o.json).help("print one JSON object instead of the text");
  declare_engine_flags(flags, o.engine, "prompt + --max-tokens", "the number of prompts");
}

// The file of --config, its batch and its number of new tokens taken where no option says another.
std::optional<PublishedConfig> read_config(const base::FlagSet& flags, Options& o) {
  std::optional<PublishedConfig> config = apply_config(flags, o.engine);
  if (!config) return config;
  if (!flags.given("--batch")) o.prompts.batch = config->batch_size;
  if (!flags.given("--max-tokens")) o.max_tokens = config->max_new_tokens;
  config->batch_size = o.prompts.batch;
  config->max_new_tokens = o.max_tokens;
  return config;
}

EngineOptions checked_options(const Options& o) {
  EngineOptions options = engine_options(o.engine);
  if (o.compare_offload && options.route == OffloadRoute::kOff) {
    throw base::UsageError("--compare-offload compares with --offload off; give another --offload route");
  }
  if (!o.dump_graph.empty() && options.exec != ExecMode::kCompile) {
    throw base::UsageError(fmt::format("--dump-graph {}: only --exec compile makes a graph, and --exec is {}",
                                       o.dump_graph, o.engine.exec));
  }
  options.dump_graph = o.dump_graph;
  options.record_logits = o.compare_offload;
  return options;
}

// The longest request that the run must have room for; checked against what the caller and the model allow. With a data
// set it is what the published runner reserves, which covers the longest prompt that the data set could have had.
int32_t needed_len(const Options& o, const Prompts& prompts, const std::optional<PublishedConfig>& config,
                   int64_t max_position) {
  const int64_t needed = prompts.longest() + o.max_tokens;
  const auto refuse = [&](const std::string& limit) {
    throw base::UsageError(fmt::format("{}: the prompt has {} tokens and --max-tokens is {}, {} together", limit,
                                       prompts.longest(), o.max_tokens, needed));
  };
  if (o.engine.max_model_len > 0 && needed > o.engine.max_model_len) {
    refuse(fmt::format("--max-model-len {} tokens is exceeded", o.engine.max_model_len));
  }
  if (needed > max_position) refuse(fmt::format("the model's maximum of {} tokens is exceeded", max_position));
  if (!prompts.is_dataset || o.engine.max_model_len > 0) return static_cast<int32_t>(needed);
  const int64_t reserved = config->pa_max_length();
  if (reserved > max_position) {
    throw base::UsageError(fmt::format(
        "{} {}: with {} new tokens and {} drafts a request takes {} positions, the model has {}; --max-model-len N "
        "takes less",
        config->at("input_max_len"), config->input_max_len, o.max_tokens, config->next_n, reserved, max_position));
  }
  return static_cast<int32_t>(std::max(needed, reserved));
}

// What follows from the prompts where no option says it.
void fit_to_prompts(EngineOptions& options, const base::FlagSet& flags, const Options& o, const Prompts& prompts,
                    const std::optional<PublishedConfig>& config, int64_t max_position) {
  const int32_t len = needed_len(o, prompts, config, max_position);
  if (options.max_model_len == 0) options.max_model_len = len;
  if (o.engine.max_num_seqs == 0) options.max_num_seqs = static_cast<int32_t>(prompts.ids.size());
  // The published runner prefills whole prompts, and all of them before it decodes the batch.
  options.prefill_first = config.has_value();
  if (config && !flags.given("--max-num-batched-tokens")) {
    const int64_t rows = prompts.longest() + std::ssize(prompts.ids) * (1 + options.num_draft_tokens);
    options.max_num_batched_tokens =
        static_cast<int32_t>(std::clamp<int64_t>(rows, options.max_num_batched_tokens, kMaxNumBatchedTokens));
  }
}

std::vector<RequestOptions> make_requests(const Options& o, const Prompts& prompts) {
  std::vector<RequestOptions> requests;
  for (const auto& ids : prompts.ids) {
    RequestOptions request = o.sampling;
    request.prompt = ids;
    request.max_tokens = o.max_tokens;
    request.sampling_stream = requests.size();
    requests.push_back(std::move(request));
  }
  return requests;
}

RunResult run_and_stream(const Options& o, const EngineOptions& options, const std::vector<RequestOptions>& requests,
                         const text::Tokenizer* tokenizer) {
  const bool is_streamed = !o.json && tokenizer != nullptr && requests.size() == 1;
  std::optional<TextStream> stream;
  if (is_streamed) stream.emplace(*tokenizer);
  RunSettings settings;
  settings.on_token = [&](size_t, int32_t token) {
    if (stream) print(stream->push(token));
  };
  settings.timeline = o.timeline;
  settings.warm_up = !o.engine.config.empty();
  RunResult run = run_requests(options, requests, settings);
  if (stream) print(stream->finish() + "\n");
  if (o.json || is_streamed) return run;
  for (size_t i = 0; i < run.requests.size(); ++i) {
    const std::vector<int32_t>& ids = run.requests[i].ids;
    if (run.requests.size() > 1) print(fmt::format("--- request {}\n", i));
    print((tokenizer != nullptr ? ids_text(*tokenizer, ids) : fmt::format("[{}]", fmt::join(ids, ","))) + "\n");
  }
  return run;
}

// The same requests without offload, and what differs; nothing when interrupted.
std::optional<Comparison> compare(const Options& o, const EngineOptions& options, const RunResult& run,
                                  const std::vector<RequestOptions>& requests) {
  EngineOptions off = options;
  off.route = OffloadRoute::kOff;
  off.device_kv_bytes = 0;  // the budget is that of the offloaded run
  off.dump_graph.clear();
  RunSettings settings;
  settings.warm_up = !o.engine.config.empty();
  try {
    Comparison comparison;
    comparison.off = run_requests(off, requests, settings);
    comparison.difference = first_difference(run, comparison.off);
    if (comparison.off.interrupted) return std::nullopt;
    return comparison;
  } catch (const Interrupted&) {
    return std::nullopt;
  }
}

}  // namespace

int run_generate(const Arguments& arguments) {
  Options o;
  base::FlagSet flags("tidepool generate", "completes a prompt and streams the text");
  declare(flags, o);
  if (flags.parse(arguments) == base::FlagSet::kHelp) return print(flags.help_text()), 0;
  const std::optional<PublishedConfig> config = read_config(flags, o);
  EngineOptions options = checked_options(o);
  const CheckpointInfo checkpoint = describe_checkpoint(options.model);
  const Prompts prompts = read_prompts(flags, o.prompts, options.model, checkpoint.vocab_size, config);
  fit_to_prompts(options, flags, o, prompts, config, checkpoint.max_position);
  const std::vector<RequestOptions> requests = make_requests(o, prompts);
  const text::Tokenizer* tokenizer = prompts.tokenizer ? &*prompts.tokenizer : nullptr;

  const RunResult run = run_and_stream(o, options, requests, tokenizer);
  bool is_interrupted = run.interrupted;
  const InterruptGuard guard;  // from here on there is a result that an interrupt must not take away
  GenerateReport report{options, run};
  if (o.compare_offload && !is_interrupted) {
    report.comparison = compare(o, options, run, requests);
    is_interrupted = !report.comparison;
  }
  if (config) report.published = published_figures(options, run);
  if (o.json) {
    print_json(generate_json(report, tokenizer));
  } else {
    note(fmt::format("\n{}", generate_summary(report)));
  }
  note_options_without_effect(config);
  if (const std::string warning = draft_warning(options, run); !warning.empty()) note(warning);
  if (is_interrupted) throw Interrupted();
  return !report.comparison || report.comparison->identical() ? 0 : 1;
}

}  // namespace tidepool::cli
