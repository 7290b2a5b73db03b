// The engine behind include/tidepool/engine.h: admission, the schedule of steps, sampling.
//
// A step holds the rows of every request that decodes (its newest token, then its drafts) and at most one chunk of one
// prompt (the oldest that is not done). Which requests share a step changes no result: only when they get it.
// With drafts, the MTP layer's passes follow once the host has decided which rows stand (engine_drafts.cc).
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cache/kv_cache.h"
#include "device/executor.h"
#include "engine/request.h"
#include "graph/compile.h"
#include "model/dsa_model.h"
#include "tidepool/engine.h"

namespace tidepool {

// What tests may change and users may not.
struct EngineHooks {
  cache::StoreDecorator decorate_store;
  device::Schedule schedule = device::Schedule::kPreferMain;
  uint64_t schedule_seed = 0;
  int32_t window_rows = 0, spill_turns = 0, stage_rows = 0;  // 0: the cache's defaults
};

class EngineImpl {
 public:
  explicit EngineImpl(const EngineOptions& options, const EngineHooks& hooks = {});
  ~EngineImpl();

  Verdict submit(const RequestOptions& request);
  void cancel(RequestId request);
  bool has_work() const { return !waiting_.empty() || !running_.empty(); }
  void step(StepResult& result);  // clears result first
  CacheStats stats();
  CacheStats stats(RequestId request);

  // The operations of the next step without a prompt chunk are also appended to `list`.
  void capture_next_decode_step(device::OpList* list) { capture_ = list; }
  // From now on steps without a prompt chunk replay `list` (captured from a step with as many decode rows) instead of
  // pushing their operations; null ends it. Not owned.
  void replay_decode_steps(const device::OpList* list) { replay_ = list; }

  // For benchmarks. One main pass on these rows, launched and waited for as step() does it; nothing else happens, and
  // the cache slots are the caller's.
  void run_bench_step(const cache::StepRows& rows, const model::StepTokens& tokens);
  // Called with the main stream idle: before the inputs of a pass are written, and once it has run. What the MTP layer
  // does for a prompt counts as kMain.
  using PassObserver = std::function<void(cache::Pass pass, bool has_run)>;
  void set_pass_observer(PassObserver observer) { observer_ = std::move(observer); }

  const ModelInfo& info() const { return info_; }
  const model::Config& config() const { return config_; }
  model::DsaModel& model() { return *model_; }
  cache::KvCache& cache() { return *cache_; }
  device::Executor& executor() { return *executor_; }
  const model::Weights& weights() const { return *weights_; }
  const EngineOptions& options() const { return options_; }
  const std::vector<device::TimelineEntry>& timeline() const { return timeline_; }

 private:
  void make_cache(const EngineHooks& hooks);
  model::ModelLimits model_limits() const;
  void check_drafts() const;
  void check_memory(uint64_t weight_bytes) const;
  void make_model();
  // engine_requests.cc
  void check_request(const RequestOptions& request) const;
  void admit();
  void end_cancelled(StepResult& result);
  void schedule(StepResult& result);
  void run_main();
  // Pushes a pass, or replays what an earlier one with the same number of requests pushed. `variant` tells lists of one
  // kind of pass apart.
  void run_pass(cache::Pass pass, int32_t num_requests, int32_t variant, const std::function<void()>& push);
  using PassKey = std::array<int32_t, 3>;  // pass, requests, variant
  void record_pass(const PassKey& key, const std::function<void()>& push);
  bool repeats(cache::Pass pass) const;
  graph::CompiledStep compile_pass(const device::OpList& recorded, const std::string& name);
  void collect(StepResult& result);
  void collect_request(engine::Request& request, StepResult& result);
  // engine_drafts.cc
  struct Choice {
    int32_t token = -1;  // -1: the logits are not numbers
    bool accepted = false;
  };
  Choice verify_row(const engine::Request& request, const float* logits, size_t row);
  bool choose_draft(engine::Request& request, const float* logits, size_t draft);
  void run_drafts(StepResult& result);
  void begin_mtp_rows();
  void choose_drafts(size_t draft, StepResult& result);
  void record_drafts(StepResult& result) const;
  void record_rows(StepResult& result) const;
  std::optional<int32_t> choose_token(const engine::Request& request, const float* logits);
  // Positions that drafts may write behind the longest request.
  int32_t num_draft_rows() const { return 2 * options_.num_draft_tokens; }
  size_t num_drafts() const { return static_cast<size_t>(options_.num_draft_tokens); }
  static const char* status_sentence(ops::RequestStatus status);
  void fail_request(engine::Request& request, std::string why, StepResult& result);
  void end_request(engine::Request& request, Output out, StepResult& result);
  void remember_counts(const engine::Request& request);
  CacheStats stats_of(const std::vector<cache::Counts>& groups) const;

  EngineOptions options_;
  model::Config config_;
  ModelInfo info_;
  std::unique_ptr<model::Weights> weights_;
  std::unique_ptr<device::Executor> executor_;
  std::unique_ptr<cache::KvCache> cache_;
  std::unique_ptr<model::DsaModel> model_;
  std::vector<device::TimelineEntry> timeline_;

  RequestId next_id_ = 0;
  std::deque<std::unique_ptr<engine::Request>> waiting_;
  std::vector<std::unique_ptr<engine::Request>> running_;  // in order of admission
  std::map<RequestId, std::vector<cache::Counts>> ended_;  // the last few thousand
  std::vector<cache::Counts> ended_total_;                 // by group

  // The step being built.
  cache::StepRows rows_;
  model::StepTokens tokens_;
  std::vector<engine::Request*> row_request_;  // of each row of the step
  model::Taps taps_;
  // The passes of the MTP layer behind it: requests that go on.
  std::vector<engine::Request*> mtp_requests_;
  std::vector<cache::MtpRows> mtp_rows_;
  model::MtpTokens mtp_tokens_;
  std::vector<int32_t> draft_ids_;
  struct PassList {
    device::OpList recorded;
    std::unique_ptr<graph::CompiledStep> compiled;  // ExecMode::kCompile
  };
  std::map<PassKey, PassList> lists_;
  PassObserver observer_;
  device::OpList* capture_ = nullptr;
  const device::OpList* replay_ = nullptr;
  std::vector<int32_t> sample_ids_;
  std::vector<double> sample_p_;
  std::vector<double> target_p_, residual_p_;  // [vocab], with drafts
};

}  // namespace tidepool
