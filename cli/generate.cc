// tidepool generate: completes prompts.
#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "commands.h"
#include "engine_flags.h"
#include "generate_report.h"
#include "generation.h"
#include "output.h"
#include "prompt.h"
#include "tidepool/checkpoint.h"

namespace tidepool::cli {
namespace {

struct Options {
  EngineFlags engine;
  std::string prompt, prompt_ids, timeline;
  std::vector<std::string> prompt_files;
  int32_t max_tokens = 16, batch = 1;
  RequestOptions sampling;
  bool compare_offload = false, json = false;
};

void declare(base::FlagSet& flags, Options& o) {
  flags.section("Prompt (one of these, or standard input)");
  flags.text("--prompt", &o.prompt).help("the text itself");
  flags.texts("--prompt-file", &o.prompt_files, "F").input_file().help("a UTF-8 text; given several times: a batch");
  flags.text("--prompt-ids", &o.prompt_ids, "F.json").input_file().help("token ids: [1,2,3] or {\"ids\": [1,2,3]}");
  flags.integer("--batch", &o.batch).unit("requests").range(1, kMaxNumSeqs).help("copies of the prompt, run together");
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
  flags.later("--record-topk", "F.tptrace").help("record the selections");
  flags.toggle("--json", &o.json).help("print one JSON object instead of the text");
  declare_engine_flags(flags, o.engine, "prompt + --max-tokens", "the number of prompts");
}

struct Prompts {
  std::vector<std::vector<int32_t>> ids;
  std::optional<text::Tokenizer> tokenizer;
};

Prompts read_prompts(const base::FlagSet& flags, const Options& o, int64_t vocab_size) {
  const int sources = flags.given("--prompt") + !o.prompt_files.empty() + flags.given("--prompt-ids");
  if (sources > 1) throw base::UsageError("--prompt, --prompt-file and --prompt-ids exclude each other");
  if (sources == 0 && isatty(STDIN_FILENO) != 0) {
    throw base::UsageError("a prompt is missing: --prompt T, --prompt-file F, --prompt-ids F.json or standard input");
  }
  Prompts prompts;
  if (flags.given("--prompt-ids")) {
    prompts.ids.push_back(read_ids(o.prompt_ids, vocab_size));
    prompts.tokenizer = find_tokenizer(o.engine.model);
  } else {
    std::vector<std::pair<std::string, std::string>> texts;  // where from, text
    for (const std::string& file : o.prompt_files) texts.emplace_back(file, read_file(file));
    if (flags.given("--prompt")) texts.emplace_back("--prompt", o.prompt);
    if (sources == 0) texts.emplace_back("standard input", read_stdin());
    for (const auto& [what, text] : texts) check_text(text, what);
    prompts.tokenizer = load_tokenizer(o.engine.model);
    for (const auto& [what, text] : texts) {
      prompts.ids.push_back(prompts.tokenizer->encode(text));
      for (const int32_t id : prompts.ids.back()) {
        tidepool_check(id < vocab_size,
                       "{}/tokenizer.json: does not belong to this model: it makes id {}, the model has {} tokens",
                       o.engine.model, id, vocab_size);
      }
    }
  }
  if (prompts.ids.size() > 1 && o.batch > 1)
    throw base::UsageError("--batch and several --prompt-file exclude each other");
  for (int32_t copy = 1; copy < o.batch; ++copy) prompts.ids.push_back(prompts.ids.front());
  return prompts;
}

// The length that the longest prompt and its completion take; checked against what the caller and the model allow.
int32_t needed_len(const Options& o, const Prompts& prompts, int64_t max_position) {
  int64_t longest = 0;
  for (const auto& ids : prompts.ids) {
    tidepool_check(!ids.empty(), "the prompt has no tokens");
    longest = std::max(longest, static_cast<int64_t>(ids.size()));
  }
  const int64_t needed = longest + o.max_tokens;
  const auto refuse = [&](const std::string& limit) {
    throw base::UsageError(fmt::format("{}: the prompt has {} tokens and --max-tokens is {}, {} together", limit,
                                       longest, o.max_tokens, needed));
  };
  if (o.engine.max_model_len > 0 && needed > o.engine.max_model_len) {
    refuse(fmt::format("--max-model-len {} tokens is exceeded", o.engine.max_model_len));
  }
  if (needed > max_position) refuse(fmt::format("the model's maximum of {} tokens is exceeded", max_position));
  return static_cast<int32_t>(needed);
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
  const OnToken on_token = [&](size_t, int32_t token) {
    if (stream) print(stream->push(token));
  };
  RunResult run = run_requests(options, requests, on_token, o.timeline);
  if (stream) print(stream->finish() + "\n");
  if (o.json || is_streamed) return run;
  for (size_t i = 0; i < run.requests.size(); ++i) {
    const std::vector<int32_t>& ids = run.requests[i].ids;
    if (run.requests.size() > 1) print(fmt::format("--- request {}\n", i));
    print((tokenizer != nullptr ? ids_text(*tokenizer, ids) : fmt::format("[{}]", fmt::join(ids, ","))) + "\n");
  }
  return run;
}

}  // namespace

int run_generate(const Arguments& arguments) {
  Options o;
  base::FlagSet flags("tidepool generate", "completes a prompt and streams the text");
  declare(flags, o);
  if (flags.parse(arguments) == base::FlagSet::kHelp) return print(flags.help_text()), 0;
  EngineOptions options = engine_options(o.engine);
  if (o.compare_offload && options.route == OffloadRoute::kOff) {
    throw base::UsageError("--compare-offload compares with --offload off; give another --offload route");
  }
  const CheckpointInfo checkpoint = describe_checkpoint(options.model);
  const Prompts prompts = read_prompts(flags, o, checkpoint.vocab_size);
  const int32_t len = needed_len(o, prompts, checkpoint.max_position);
  if (options.max_model_len == 0) options.max_model_len = len;
  if (o.engine.max_num_seqs == 0) options.max_num_seqs = static_cast<int32_t>(prompts.ids.size());
  options.record_logits = o.compare_offload;
  const std::vector<RequestOptions> requests = make_requests(o, prompts);
  const text::Tokenizer* tokenizer = prompts.tokenizer ? &*prompts.tokenizer : nullptr;

  const RunResult run = run_and_stream(o, options, requests, tokenizer);
  bool is_interrupted = run.interrupted;
  std::optional<Comparison> comparison;
  const InterruptGuard guard;  // from here on there is a result that an interrupt must not take away
  if (o.compare_offload && !run.interrupted) {
    EngineOptions off = options;
    off.route = OffloadRoute::kOff;
    off.device_kv_bytes = 0;  // the budget is that of the offloaded run
    try {
      comparison.emplace();
      comparison->off = run_requests(off, requests, {}, "");
      comparison->difference = first_difference(run, comparison->off);
      is_interrupted = comparison->off.interrupted;
    } catch (const Interrupted&) {
      is_interrupted = true;
    }
    if (is_interrupted) comparison.reset();
  }
  const Comparison* compared = comparison ? &*comparison : nullptr;
  if (o.json) {
    print_json(generate_json(options, run, tokenizer, compared));
  } else {
    note(fmt::format("\n{}", generate_summary(options, run, compared)));
  }
  if (is_interrupted) throw Interrupted();
  return compared == nullptr || compared->identical() ? 0 : 1;
}

}  // namespace tidepool::cli
