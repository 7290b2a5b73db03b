// tidepool dump: what a run computed, for comparing engines.
#include <sys/resource.h>

#include <chrono>

#include "base/check.h"
#include "commands.h"
#include "config_option.h"
#include "dump_recording.h"
#include "engine_flags.h"
#include "output.h"
#include "prompt.h"
#include "tidepool/checkpoint.h"

namespace tidepool::cli {
namespace {

struct Options {
  EngineFlags engine;
  std::string ids, out;
  int32_t num_tokens = 0;
  bool json = false;
};

EngineOptions dump_options(const Options& o, int64_t prompt_len, int64_t max_position) {
  EngineOptions options = engine_options(o.engine);
  const int64_t needed = prompt_len + o.num_tokens + 1;
  if (options.max_model_len > 0 && needed > options.max_model_len) {
    throw base::UsageError(fmt::format("--max-model-len {}: {} prompt tokens and --num-tokens {} take {} tokens",
                                       options.max_model_len, prompt_len, o.num_tokens, needed));
  }
  if (needed > max_position) {
    throw base::UsageError(
        fmt::format("--num-tokens {}: with {} prompt tokens that takes {}, the model's maximum is {}", o.num_tokens,
                    prompt_len, needed, max_position));
  }
  if (options.max_model_len == 0) options.max_model_len = static_cast<int32_t>(needed);
  options.record_hidden = true;
  return options;
}

Recording run(EngineOptions options, const std::vector<int32_t>& prompt, int32_t num_tokens) {
  Progress loading("loading", "bytes"), running("running", "tokens");
  options.load_progress = [&](uint64_t done, uint64_t total) { loading.update(done, total); };
  Engine engine(options);
  loading.clear();
  Recording recording(engine.model(), prompt, num_tokens, options.num_draft_tokens);
  RequestOptions request;
  request.prompt = prompt;
  request.max_tokens = num_tokens + 1;  // so that the last wanted token is fed back and has its row
  request.ignore_eos = true;
  const Verdict verdict = engine.submit(request);
  tidepool_check(verdict.admitted, "the request was refused: {}", verdict.reason);
  const InterruptGuard guard;
  uint64_t prefilled = 0;
  while (engine.has_work()) {
    if (interrupted()) throw Interrupted();  // a part of a dump compares with nothing: none is kept
    const StepResult step = engine.step();
    for (const Output& out : step.outputs) {
      tidepool_check(out.finish != FinishReason::kError, "the request failed: {}", out.error);
    }
    recording.add(step);
    prefilled += static_cast<uint64_t>(step.prefill_tokens);
    running.update(prefilled + static_cast<uint64_t>(recording.num_generated()),
                   prompt.size() + static_cast<uint64_t>(num_tokens));
  }
  tidepool_check(recording.has_all_rows(), "the run did not record every row");
  return recording;
}

}  // namespace

int run_dump(const Arguments& arguments) {
  Options o;
  base::FlagSet flags("tidepool dump", "logits, hidden states and selections of a greedy run, as safetensors");
  flags.text("--ids", &o.ids, "F.json").input_file().required().help("the prompt: [1,2,3] or {\"ids\": [1,2,3]}");
  flags.integer("--num-tokens", &o.num_tokens)
      .unit("tokens")
      .range(1, 1 << 30)
      .required()
      .help("greedy tokens to make and feed");
  flags.text("--out", &o.out, "F.safetensors").output_file().required().help("the file to write");
  flags.toggle("--json", &o.json).help("print one JSON object");
  declare_engine_flags(flags, o.engine, "prompt + --num-tokens + 1", "1");
  if (flags.parse(arguments) == base::FlagSet::kHelp) return print(flags.help_text()), 0;
  const std::optional<PublishedConfig> config = apply_config(flags, o.engine);
  engine_options(o.engine);  // contradicting options are refused before files are read
  const auto start = std::chrono::steady_clock::now();
  const CheckpointInfo checkpoint = describe_checkpoint(o.engine.model);
  const std::vector<int32_t> prompt = read_ids(o.ids, checkpoint.vocab_size);
  const EngineOptions options = dump_options(o, static_cast<int64_t>(prompt.size()), checkpoint.max_position);
  const Recording recording = run(options, prompt, o.num_tokens);
  {
    const InterruptGuard guard;  // or half a file stays behind under its temporary name
    recording.write(o.out);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  const int64_t max_memory_bytes = int64_t{usage.ru_maxrss} * 1024;
  if (o.json) {
    base::Json out = base::Json::object();
    out.set("max_memory_bytes", max_memory_bytes);
    out.set("seconds", seconds);
    print_json(out);
  } else {
    print(fmt::format("{}: {} prompt tokens, {} generated; {:.2f} s, at most {} of memory\n", o.out, prompt.size(),
                      o.num_tokens, seconds, bytes_text(static_cast<uint64_t>(max_memory_bytes))));
  }
  note_options_without_effect(config);
  return 0;
}

}  // namespace tidepool::cli
