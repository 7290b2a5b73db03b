// The forward pass of a DSA model (GLM-5.2, GLM-5, DeepSeek-V3.2) as operations on a stream: reads like the paper, does
// no pointer arithmetic of the cache and asks nothing of a device.
//
// Row m of a step is one token; decode rows come first (with drafts 1 + num_draft_tokens of each request), then the
// prompt chunk. A row's result depends only on its
// request's tokens, never on what else is in the step: every operator is row-invariant and attention walks positions in
// ascending order (docs/architecture.md, "Invariant"). Thread safety: the executor's host thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "cache/kv_cache.h"
#include "device/executor.h"
#include "model/weights.h"
#include "nn/indexer.h"
#include "nn/moe.h"
#include "nn/rows.h"
#include "nn/sparse_attention.h"

namespace tidepool::model {

struct ModelLimits {
  int32_t max_requests = 1;
  int32_t max_decode_rows = 1;   // max_requests x (1 + num_draft_tokens)
  int32_t num_draft_tokens = 0;  // > 0: the weights have an MTP layer
  bool mtp_gather_reuse = true;  // draft steps that keep the first one's lists do not serve them again
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
  std::vector<int32_t> logit_rows;     // rows whose logits are wanted, ascending
  std::vector<int32_t> mtp_token_ids;  // of the first chunk.mtp_count rows of the chunk: the token behind each
};

// What the host gives the MTP layer after the main pass; index = row of the pass, request-major.
struct MtpTokens {
  std::vector<int32_t> token_ids;   // [requests * (1 + num_draft_tokens)] the token behind each row; 0: a pad
  std::vector<int32_t> logit_rows;  // [as above] which logit row of the main pass has its hidden state
};

// Where a step leaves what a test or dump wants to see; host memory. Empty vectors: not wanted.
struct Taps {
  std::vector<std::vector<float>> hidden;  // [num_layers][max_rows * hidden]
  std::vector<std::vector<int32_t>> topk;  // [num_layers][max_rows * topk], full layers only
  // Of the first draft's row of each request; with drafts.
  std::vector<float> draft_hidden;  // [max_requests * hidden] behind shared_head.norm
  std::vector<int32_t> draft_topk;  // [max_requests * topk]
};

class DsaModel {
 public:
  DsaModel(const Config& config, const Weights& weights, const ModelLimits& limits, device::Executor& executor);
  ~DsaModel();
  // What the activations of a model with these limits take; known before its weights are.
  static uint64_t activation_bytes(const Config& config, const ModelLimits& limits);

  // Writes the step's inputs; main stream idle. cache.begin_step comes before.
  void begin_step(const cache::StepRows& rows, const StepTokens& tokens);
  // Pushes every operation of the main pass, the cache's included (not cache.end_pass).
  void push_step(cache::KvCache& cache, Taps* taps);

  // --- drafts (multi-token prediction, as in GLM-5.2 and DeepSeek-V3.2) ---
  // The MTP layer at position i: u = eh_proj [RMSNorm(Embed[x_{i+1}]; enorm) ; RMSNorm(h_i; hnorm)], then a decoder
  // layer at position i, then g = RMSNorm(u; shared_head.norm), logits = lm_head g for x_{i+2}. h_i is the hidden state
  // behind the final norm; in draft steps after the first it is the g before. Like push_step; each is a pass of the
  // cache (cache.use, and its inputs, come before; cache.end_pass after).
  void push_mtp_prompt(cache::KvCache& cache);  // rows of the chunk
  void begin_mtp_rows(const std::vector<cache::MtpRows>& requests, const MtpTokens& tokens);
  void push_mtp_rows(cache::KvCache& cache, Taps* taps);  // first drafts: logits at draft_logits
  // Draft step number `draft` >= 1 on the tokens of the step before, one of each request.
  void begin_mtp_draft(const std::vector<cache::MtpRows>& requests, const std::vector<int32_t>& token_ids,
                       int32_t draft);
  void push_mtp_draft(cache::KvCache& cache, bool is_last);
  // Later draft steps attend to the first one's lists (index_share_for_mtp_iteration).
  bool keeps_draft_lists() const { return config_.index_share_for_mtp_iteration; }
  const float* draft_logits(int32_t request) const {
    return draft_logits_host_.data() + static_cast<int64_t>(request) * config_.vocab_size;
  }
  // Logits of logit row i, after the main stream is done.
  const float* logits(int32_t i) const { return logits_host_.data() + static_cast<int64_t>(i) * config_.vocab_size; }

  const Config& config() const { return config_; }
  // Replaces the indexer's choice of decode rows (benchmarks): called when the lists of a full layer would be computed;
  // returns the list to use for all decode rows [max_decode_rows, topk] in host memory, or null.
  using TopkSource = const int32_t* (*)(void* context, int32_t layer);
  void set_topk_source(TopkSource source, void* context);
  uint64_t workspace_bytes() const { return arena_->used_bytes(); }
  device::Arena& arena() { return *arena_; }
  // Activations that one pass leaves for the next; null without drafts, when there are none. Those of arena() hold
  // nothing once a pass has ended.
  device::Arena* kept_arena() { return kept_arena_.get(); }

 private:
  struct Buffers;
  struct Rows {  // of a step, and of a tile of its index scores
    int32_t max_rows = 0, score_rows = 0;
    int64_t score_stride = 0;
    explicit Rows(const ModelLimits& limits);
  };
  struct PassInputs {                           // host memory that operations read
    std::vector<int32_t> token_ids, positions;  // [max_rows]
    std::vector<int32_t> source_row;            // [max_rows] kMtpRows: logit row of the main pass
    std::vector<int32_t> logit_rows;
    std::array<int32_t, 2> all{}, decode{}, chunk{}, logit_range{};
    std::vector<int32_t> score_tiles;  // [num_tiles, 2]
    int32_t num_score_tiles = 0;
    void allocate(int32_t max_rows, int32_t score_rows, int32_t max_logit_rows);
  };
  PassInputs& in() { return inputs_[static_cast<size_t>(pass_)]; }
  const PassInputs& in() const { return inputs_[static_cast<size_t>(pass_)]; }
  void use(cache::Pass pass) { pass_ = pass; }
  void set_ranges(PassInputs& p, int32_t num_decode, int32_t chunk_begin, int32_t chunk_count);
  const LayerWeights& layer_weights(int32_t layer) const;
  bool installs_after_serve() const;
  bool runs_indexer(int32_t layer) const {
    return layer_weights(layer).is_full && !(pass_ == cache::Pass::kMtpDraft && keeps_draft_lists());
  }
  void push_rope_table();
  void push_layer(int32_t layer, cache::KvCache& cache);
  void push_mtp_input(const float* hidden, const int32_t* source_row, int32_t source_rows);
  void push_mtp_head(const int32_t* source_row);
  void push_keep_lists(cache::KvCache& cache);
  void push_draft_attention(cache::KvCache& cache);
  void push_attention_output(int32_t layer);
  nn::Rows request_rows() const { return {in().logit_range.data(), limits_.max_requests}; }
  void push_attention_inputs(int32_t layer, cache::KvCache& cache);
  void push_indexer(int32_t layer, cache::KvCache& cache);
  nn::SparseAttentionParams attention_params(int32_t layer, cache::KvCache& cache) const;
  void push_attention(int32_t layer, cache::KvCache& cache);
  void push_mlp(int32_t layer);
  void push_head();
  void push_taps(int32_t layer, Taps& taps);
  template <typename Params>
  void push(const device::OpType& type, const Params& params) {
    executor_.push(device::kMainStream, type, params);
  }
  nn::Rows all_rows() const { return {in().all.data(), max_rows_}; }

  const Config& config_;
  const Weights& weights_;
  ModelLimits limits_;
  device::Executor& executor_;
  std::unique_ptr<device::Arena> arena_, kept_arena_;
  std::unique_ptr<Buffers> buffers_;
  int32_t max_rows_ = 0;
  int32_t score_rows_ = 0;
  int64_t score_stride_ = 0;
  std::vector<float> inv_freq_;
  std::vector<std::vector<nn::ExpertMatrices>> experts_;  // [num_layers], then the MTP layer
  cache::Pass pass_ = cache::Pass::kMain;
  std::array<PassInputs, cache::kNumPasses> inputs_;
  std::vector<int32_t> last_row_;  // [max_requests] row of kMtpRows that the first draft comes from
  std::vector<float> logits_host_, draft_logits_host_;
  TopkSource topk_source_ = nullptr;
  void* topk_context_ = nullptr;
};

}  // namespace tidepool::model
