// The engine behind include/tidepool/engine.h: admission, the schedule of steps, sampling.
//
// A step holds one row for every request that decodes and at most one chunk of one prompt (the oldest that is not
// done). Which requests share a step changes no result: only when they get it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "cache/kv_cache.h"
#include "device/executor.h"
#include "engine/request.h"
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

  const ModelInfo& info() const { return info_; }
  const model::Config& config() const { return config_; }
  model::DsaModel& model() { return *model_; }
  cache::KvCache& cache() { return *cache_; }
  device::Executor& executor() { return *executor_; }
  const model::Weights& weights() const { return *weights_; }
  const EngineOptions& options() const { return options_; }
  const std::vector<device::TimelineEntry>& timeline() const { return timeline_; }

 private:
  friend class DecodeBench;
  void make_cache(const EngineHooks& hooks);
  model::ModelLimits model_limits() const;
  void check_memory(uint64_t weight_bytes) const;
  void make_model();
  void check_request(const RequestOptions& request) const;
  void admit();
  void end_cancelled(StepResult& result);
  void schedule(StepResult& result);
  void run_step();
  void collect(StepResult& result);
  void record_rows(StepResult& result) const;
  bool choose_token(engine::Request& request, const float* logits, Output& out);
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
  std::vector<engine::Request*> row_request_;    // of each row of the step
  std::vector<engine::Request*> logit_request_;  // who gets a token from logit row i; null: only recorded
  model::Taps taps_;
  device::OpList* capture_ = nullptr;
  const device::OpList* replay_ = nullptr;
  std::vector<int32_t> sample_ids_;
  std::vector<double> sample_p_;
};

}  // namespace tidepool
