// Door 3: the engine. Requests in, tokens out; the KV cache in host memory or not.
//
//   tidepool::EngineOptions options;
//   options.model = "models/demo";
//   options.route = tidepool::OffloadRoute::kSelect;
//   options.pool_size = 1024;
//   tidepool::Engine engine(options);
//   tidepool::RequestOptions request;
//   request.prompt = ids;
//   request.max_tokens = 32;
//   auto verdict = engine.submit(request);          // an expected "no" is a value
//   while (engine.has_work()) for (const auto& out : engine.step().outputs) use(out.request, out.token);
//
// Output is bit-identical for every route, pool size, batch, chunk size and thread count (per SIMD target).
// Thread safety: one thread per Engine; two engines can live in one process.
// Errors (before memory is taken, where more is needed than the machine has too): tidepool::Error for broken contracts
// (bad options, bad checkpoint, ids outside the vocabulary).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tidepool/dtype.h"
#include "tidepool/error.h"

namespace tidepool {

enum class OffloadRoute { kOff, kSelect, kGather };  // direct: not available yet

// How a step is launched; all modes give the same bits (docs/architecture.md, "Execution modes").
enum class ExecMode {
  kEager,    // each operation is pushed as it is reached
  kCapture,  // a decode step is recorded once per number of decode rows and replayed
  kCompile,  // the recorded step becomes a functional graph, passes rewrite it, the result is replayed
};

const char* exec_mode_name(ExecMode mode);  // as --exec spells it

inline constexpr int32_t kMaxDraftTokens = 3;

// The largest values of the options of these names.
inline constexpr int32_t kMaxThreads = 1024, kMaxNumSeqs = 4096, kMaxNumBatchedTokens = 65536;

struct EngineOptions {
  std::string model;               // a Hugging Face checkpoint directory
  DType kv_dtype = DType::kBF16;   // of index keys, and of cache rows unless row_dtype says otherwise: kBF16 or kF32.
                                   // Activations are fp32 either way.
  std::optional<DType> row_dtype;  // of cache rows, host and device alike: kBF16, kF32, kI8 (c8) or kF8E4M3
                                   // (row_table.h)
  int num_threads = 0;             // 0: all the process may use
  int32_t max_model_len = 0;       // tokens of one request, prompt and output; 0: the model's maximum
  int32_t max_num_seqs = 1;        // requests that run at once (cache slots)
  int32_t max_num_batched_tokens = 512;  // rows of one step, decode rows and prompt chunk together
  int32_t block_size = 128;              // tokens per block: 128 or 256
  OffloadRoute route = OffloadRoute::kOff;
  int32_t pool_size = 8192;  // rows per request and layer (select)
  int32_t num_ways = 16;
  std::string policy = "fifo";
  int32_t num_draft_tokens = 0;  // tokens the MTP layer guesses per step, 0 to kMaxDraftTokens
  // Draft steps after the first, where they keep the first one's lists, read what it has served. False: they are served
  // again. No result depends on it.
  bool mtp_gather_reuse = true;
  // No request decodes while a prompt is not done: a static batch, as the published runner has it. No result depends on
  // it.
  bool prefill_first = false;
  ExecMode exec = ExecMode::kEager;
  std::string dump_graph;        // kCompile: directory for the graph before and after each pass (dot); "": none
  uint64_t device_kv_bytes = 0;  // budget of the device arena for KV; 0: what max_num_seqs x max_model_len needs
  uint64_t host_kv_bytes = 0;    // budget of the host store; 0: likewise
  uint64_t seed = 0;             // of sampling
  double latent_norm_eps = 0;    // > 0 overrides the checkpoint default (1e-6)
  bool allow_nan = false;
  bool reference_kernels = false;  // plain loops instead of SIMD kernels: slow, for tests
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> load_progress;
  bool record_hidden = false;   // keep each layer's output, each full layer's top-k and all logits of every row
  bool record_logits = false;   // keep the logits of each step's logit rows
  bool timeline = false;        // keep what ran when (Engine::write_timeline)
  bool check_order = false;     // check the declared reads and writes of every operation against the events
  bool protect_memory = false;  // device memory accessible only to operations that declared it; slow, for tests
};

using RequestId = int64_t;

struct RequestOptions {
  std::vector<int32_t> prompt;  // token ids, at least one
  int32_t max_tokens = 16;      // > 0
  double temperature = 0;       // 0: greedy
  int32_t top_k = 0;            // 0: all
  double top_p = 1.0;
  bool ignore_eos = false;
  uint64_t sampling_stream = 0;  // draws depend on (seed, sampling_stream, token number) only
  // Instead of sampling: feed these tokens (teacher forcing); shorter than max_tokens: sampling goes on after them.
  std::vector<int32_t> forced{};
};

// The answer to submit.
struct Verdict {
  bool admitted = false;
  RequestId request = -1;
  std::string reason;  // when not admitted: one sentence that names the short budget
};

enum class FinishReason { kNone, kStop, kLength, kCancelled, kError };
const char* finish_reason_name(FinishReason reason);

struct Output {  // one new token of one request, or its end
  RequestId request = -1;
  int32_t token = -1;                         // -1: none (the request ended by cancel or error)
  FinishReason finish = FinishReason::kNone;  // not kNone: nothing more will come
  std::string error;                          // kError: the sentence
  std::vector<float> logits;                  // [vocab] the logits the token was chosen from, when recorded
};

// What a step recorded of one row (record_hidden).
struct RowRecord {
  RequestId request = -1;
  int32_t position = 0;
  std::vector<std::vector<float>> hidden;  // [num_layers][hidden]
  std::vector<std::vector<int32_t>> topk;  // [num_layers][index_topk] ascending, -1 suffix; empty for shared layers
  std::vector<float> logits;               // [vocab]
};

// What the MTP layer proposed for one request behind the tokens of this step (record_hidden).
struct DraftRecord {
  RequestId request = -1;
  int32_t position = 0;            // of the newest token whose successor is wanted: row of the first draft, plus one
  std::vector<int32_t> draft_ids;  // [num_draft_tokens]
  // The first draft's row: hidden state behind shared_head.norm, logits, and the list it attended to.
  std::vector<float> hidden;  // [hidden]
  std::vector<float> logits;  // [vocab]
  std::vector<int32_t> topk;  // [index_topk] ascending, -1 as suffix
};

struct StepResult {
  std::vector<Output> outputs;
  std::vector<RowRecord> rows;      // record_hidden only; rows of rejected drafts included, marked by position only
  std::vector<DraftRecord> drafts;  // record_hidden only; of requests that go on
  int32_t prefill_tokens = 0;       // prompt rows of this step
  int32_t decode_tokens = 0;        // requests that decoded in this step (1 + num_draft_tokens rows each)
  int32_t drafted_tokens = 0;       // drafts verified in this step
  int32_t accepted_tokens = 0;      // and accepted
};

struct CacheCounts {  // entries of selected lists over all decode rows; hits + misses + window = all of them
  int64_t hits = 0, misses = 0, window = 0;
  int64_t unspilled = 0;     // misses whose row was read from the window ring, its spill still in flight
  int64_t fetched_rows = 0;  // rows x layers read from the host store in decode
  int64_t fetched_bytes = 0;
  int64_t installed_rows = 0;  // per group, not per layer
  int64_t evictions = 0;       // valid rows overwritten
  int64_t wraps = 0;           // installs beyond num_ways in one set and step
  double hit_rate() const {
    const int64_t all = hits + misses + window;
    return all > 0 ? static_cast<double>(hits) / static_cast<double>(all) : 0.0;
  }
};

struct CacheStats {
  CacheCounts total;
  std::vector<CacheCounts> groups;  // by layer group
  uint64_t device_kv_bytes = 0;     // allocated in the device arena
  uint64_t device_kv_budget_bytes = 0;
  uint64_t host_kv_bytes = 0;         // allocated for the host store
  int64_t prefill_fetched_bytes = 0;  // earlier rows read back for prompt chunks
  int64_t spilled_bytes = 0;
  int64_t slot_resets = 0;
};

struct ModelInfo {
  std::string architecture;
  int32_t vocab_size = 0, num_layers = 0, hidden_size = 0, index_topk = 0;
  std::vector<bool> is_full;
  std::vector<std::vector<int32_t>> layer_groups;
  std::vector<int64_t> eos_ids;
  int64_t max_position = 0;
  int64_t row_bytes = 0;
};

class EngineImpl;

class Engine {
 public:
  explicit Engine(const EngineOptions& options);
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  const ModelInfo& model() const;

  // Reserves everything the request may ever need (device and host blocks until prompt + max_tokens), or queues it when
  // it fits once others have ended, or refuses it when it never can. Throws Error for ids outside the vocabulary, an
  // empty prompt, or prompt + max_tokens beyond max_model_len.
  Verdict submit(const RequestOptions& request);
  // Ends a request at the next step boundary; unknown or finished ids are ignored.
  void cancel(RequestId request);
  bool has_work() const;
  // One step: a batch of decode rows and at most one prompt chunk. Nothing is allocated for KV in it.
  StepResult step();
  // As above into `result`, whose capacity is used again: steps that only decode then allocate nothing.
  void step(StepResult& result);

  CacheStats stats() const;
  CacheStats stats(RequestId request) const;  // of one request that has not been forgotten (the last few thousand)
  uint64_t weight_bytes() const;
  // Chrome trace JSON of the steps since the engine was made (options.timeline), written to a temporary name, renamed.
  void write_timeline(const std::string& path) const;

  EngineImpl& impl() { return *impl_; }  // for tests and benchmarks inside the library

 private:
  std::unique_ptr<EngineImpl> impl_;
};

}  // namespace tidepool
