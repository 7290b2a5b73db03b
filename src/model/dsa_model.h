// The forward pass of a DSA model (GLM-5.2, GLM-5, DeepSeek-V3.2) as operations on a stream: reads like the paper, does
// no pointer arithmetic of the cache and asks nothing of a device.
//
// Row m of a step is one token; decode rows come first, then the prompt chunk. A row's result depends only on its
// request's tokens, never on what else is in the step: every operator is row-invariant and attention walks positions in
// ascending order (docs/architecture.md, "Invariant"). Thread safety: the executor's host thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cache/kv_cache.h"
#include "device/executor.h"
#include "model/weights.h"
#include "nn/indexer.h"
#include "nn/moe.h"
#include "nn/rows.h"

namespace tidepool::model {

struct ModelLimits {
  int32_t max_decode_rows = 1;
  int32_t max_chunk_rows = 0;
  int32_t max_logit_rows = 1;
  int32_t max_model_len = 0;
  nn::Backend backend = nn::Backend::kCpu;
  device::Guard guard = device::Guard::kNone;
};

// What the host gives a step beside cache::StepRows; index = row of the step.
struct StepTokens {
  std::vector<int32_t> token_ids;
  std::vector<int32_t> positions;
  std::vector<int32_t> logit_rows;  // rows whose logits are wanted, ascending
};

// Where a step leaves what a test or dump wants to see; host memory. Empty vectors: not wanted.
struct Taps {
  std::vector<std::vector<float>> hidden;  // [num_layers][max_rows * hidden]
  std::vector<std::vector<int32_t>> topk;  // [num_layers][max_rows * topk], full layers only
};

class DsaModel {
 public:
  DsaModel(const Config& config, const Weights& weights, const ModelLimits& limits, device::Executor& executor);
  ~DsaModel();
  // What the activations of a model with these limits take; known before its weights are.
  static uint64_t activation_bytes(const Config& config, const ModelLimits& limits);

  // Writes the step's inputs; main stream idle. cache.begin_step comes before.
  void begin_step(const cache::StepRows& rows, const StepTokens& tokens);
  // Pushes every operation of the step, the cache's included (not cache.end_step).
  void push_step(cache::KvCache& cache, Taps* taps);
  // Logits of logit row i, after the main stream is done.
  const float* logits(int32_t i) const { return logits_host_.data() + static_cast<int64_t>(i) * config_.vocab_size; }

  const Config& config() const { return config_; }
  // Replaces the indexer's choice of decode rows (benchmarks): called when the lists of a full layer would be computed;
  // returns the list to use for all decode rows [max_decode_rows, topk] in host memory, or null.
  using TopkSource = const int32_t* (*)(void* context, int32_t layer);
  void set_topk_source(TopkSource source, void* context);
  uint64_t workspace_bytes() const { return arena_->used_bytes(); }
  device::Arena& arena() { return *arena_; }

 private:
  struct Buffers;
  struct Rows {  // of a step, and of a tile of its index scores
    int32_t max_rows = 0, score_rows = 0;
    int64_t score_stride = 0;
    explicit Rows(const ModelLimits& limits);
  };
  void push_attention_inputs(int32_t layer, cache::KvCache& cache);
  void push_indexer(int32_t layer, cache::KvCache& cache);
  void push_attention(int32_t layer, cache::KvCache& cache);
  void push_mlp(int32_t layer);
  void push_head();
  void push_taps(int32_t layer, Taps& taps);
  template <typename Params>
  void push(const device::OpType& type, const Params& params) {
    executor_.push(device::kMainStream, type, params);
  }
  nn::Rows all_rows() const { return {all_.data(), max_rows_}; }

  const Config& config_;
  const Weights& weights_;
  ModelLimits limits_;
  device::Executor& executor_;
  std::unique_ptr<device::Arena> arena_;
  std::unique_ptr<Buffers> buffers_;
  int32_t max_rows_ = 0;
  int32_t score_rows_ = 0;
  int64_t score_stride_ = 0;
  std::vector<float> inv_freq_;
  std::vector<std::vector<nn::ExpertMatrices>> experts_;  // [num_layers]
  std::vector<int32_t> token_ids_, positions_, logit_rows_;
  std::vector<int32_t> all_, decode_, chunk_, logit_range_;  // [2] each
  std::vector<int32_t> score_tiles_;                         // [num_tiles, 2]
  int32_t num_score_tiles_ = 0;
  std::vector<float> logits_host_;
  TopkSource topk_source_ = nullptr;
  void* topk_context_ = nullptr;
};

}  // namespace tidepool::model
