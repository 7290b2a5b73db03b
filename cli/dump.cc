// tidepool dump: what a run computed, for comparing engines.
#include <sys/resource.h>

#include <chrono>

#include "base/check.h"
#include "commands.h"
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

// The arrays of the file, filled row by row as steps record them. Rows: the prompt, then one for each token fed back.
class Recording {
 public:
  Recording(const ModelInfo& model, const CheckpointInfo& checkpoint, std::vector<int32_t> prompt, int32_t num_tokens)
      : model_(model), prompt_len_(static_cast<int64_t>(prompt.size())), num_tokens_(num_tokens) {
    input_ids_.assign(prompt.begin(), prompt.end());
    const auto rows = static_cast<size_t>(prompt_len_ + num_tokens);
    const auto layers = static_cast<size_t>(model.num_layers);
    logits_.resize(rows * static_cast<size_t>(checkpoint.vocab_size));
    hidden_.assign(layers, std::vector<float>(rows * static_cast<size_t>(model.hidden_size)));
    topk_.resize(layers);
    for (size_t layer = 0; layer < layers; ++layer) {
      if (model.is_full[layer]) topk_[layer].resize(rows * static_cast<size_t>(model.index_topk));
    }
  }

  bool has_all_rows() const { return num_rows_ == prompt_len_ + num_tokens_; }

  void add_token(int32_t token) {
    // The last row makes one token more than is wanted.
    if (generated_ids_.size() < static_cast<size_t>(num_tokens_)) generated_ids_.push_back(token);
  }

  void add_row(const RowRecord& row) {
    const auto at = static_cast<size_t>(row.position);
    tidepool_check(row.position >= 0 && row.position < prompt_len_ + num_tokens_, "the run recorded position {}",
                   row.position);
    copy(row.logits, logits_, at, model_.vocab_size);
    for (size_t layer = 0; layer < hidden_.size(); ++layer) {
      copy(row.hidden.at(layer), hidden_[layer], at, model_.hidden_size);
      if (!topk_[layer].empty()) copy(row.topk.at(layer), topk_[layer], at, model_.index_topk);
    }
    ++num_rows_;
  }

  void write(const std::string& path) const {
    const int64_t rows = prompt_len_ + num_tokens_, vocab = model_.vocab_size;
    std::vector<NamedTensor> tensors{
        {"input_ids", DType::kI64, {prompt_len_}, input_ids_.data()},
        {"generated_ids", DType::kI64, {num_tokens_}, generated_ids_.data()},
        {"logits.prefill", DType::kF32, {prompt_len_, vocab}, logits_.data()},
        {"logits.decode", DType::kF32, {num_tokens_, vocab}, logits_.data() + prompt_len_ * vocab}};
    for (size_t layer = 0; layer < hidden_.size(); ++layer) {
      tensors.push_back(
          {fmt::format("hidden.{}", layer), DType::kF32, {rows, model_.hidden_size}, hidden_[layer].data()});
    }
    for (size_t layer = 0; layer < topk_.size(); ++layer) {
      if (topk_[layer].empty()) continue;
      tensors.push_back({fmt::format("topk.{}", layer), DType::kI32, {rows, model_.index_topk}, topk_[layer].data()});
    }
    write_safetensors(path, tensors);
  }

 private:
  template <typename T>
  static void copy(const std::vector<T>& from, std::vector<T>& to, size_t row, int64_t width) {
    tidepool_check(static_cast<int64_t>(from.size()) == width, "a recorded row has {} values, not {}", from.size(),
                   width);
    std::copy(from.begin(), from.end(), to.begin() + static_cast<int64_t>(row) * width);
  }

  ModelInfo model_;
  int64_t prompt_len_, num_tokens_, num_rows_ = 0;
  std::vector<int64_t> input_ids_, generated_ids_;
  std::vector<float> logits_;               // [rows][vocab]
  std::vector<std::vector<float>> hidden_;  // [layers][rows][hidden]
  std::vector<std::vector<int32_t>> topk_;  // [layers][rows][index_topk]; empty for shared layers
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

Recording run(EngineOptions options, const CheckpointInfo& checkpoint, const std::vector<int32_t>& prompt,
              int32_t num_tokens) {
  Progress loading("loading", "bytes"), running("running", "tokens");
  options.load_progress = [&](uint64_t done, uint64_t total) { loading.update(done, total); };
  Engine engine(options);
  loading.clear();
  Recording recording(engine.model(), checkpoint, prompt, num_tokens);
  RequestOptions request;
  request.prompt = prompt;
  request.max_tokens = num_tokens + 1;  // so that the last wanted token is fed back and has its row
  request.ignore_eos = true;
  const Verdict verdict = engine.submit(request);
  tidepool_check(verdict.admitted, "the request was refused: {}", verdict.reason);
  const InterruptGuard guard;
  uint64_t done = 0;
  while (engine.has_work()) {
    if (interrupted()) throw Interrupted();  // a part of a dump compares with nothing: none is kept
    const StepResult step = engine.step();
    for (const RowRecord& row : step.rows) recording.add_row(row);
    for (const Output& out : step.outputs) {
      tidepool_check(out.finish != FinishReason::kError, "the request failed: {}", out.error);
      if (out.token >= 0) recording.add_token(out.token);
    }
    done += static_cast<uint64_t>(step.prefill_tokens + step.decode_tokens);
    running.update(done, prompt.size() + static_cast<uint64_t>(num_tokens));
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
  engine_options(o.engine);  // contradicting options are refused before files are read
  const auto start = std::chrono::steady_clock::now();
  const CheckpointInfo checkpoint = describe_checkpoint(o.engine.model);
  const std::vector<int32_t> prompt = read_ids(o.ids, checkpoint.vocab_size);
  const EngineOptions options = dump_options(o, static_cast<int64_t>(prompt.size()), checkpoint.max_position);
  const Recording recording = run(options, checkpoint, prompt, o.num_tokens);
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
  return 0;
}

}  // namespace tidepool::cli
