// The MTP layer: drafts.
#include <algorithm>

#include "base/check.h"
#include "device/copy.h"
#include "model/dsa_buffers.h"
#include "nn/norm_rope.h"
#include "nn/product.h"
#include "nn/sparse_attention.h"

namespace tidepool::model {

using cache::Pass;

// Installs of the rows pass wait for the last draft step where later ones read what it has served.
bool DsaModel::installs_after_serve() const {
  return pass_ != Pass::kMtpRows || !keeps_draft_lists() || limits_.num_draft_tokens == 1;
}

// x = eh_proj [RMSNorm(Embed[token]; enorm) ; RMSNorm(hidden; hnorm)]. `hidden` may be x.
void DsaModel::push_mtp_input(const float* hidden, const int32_t* source_row, int32_t source_rows) {
  const auto backend = limits_.backend;
  const auto& c = config_;
  const auto& w = *weights_.mtp();
  auto& b = *buffers_;
  const auto eps = static_cast<float>(c.rms_norm_eps);
  const int32_t h = c.hidden_size;
  const nn::Rows rows{in().all.data(), hidden == b.hn ? limits_.max_requests : max_rows_};
  push(nn::rms_norm(backend),
       nn::RmsNormParams{rows, hidden, h, source_row, source_rows, w.hnorm, h, eps, b.eh + h, 2 * h});
  push(nn::embed(backend), nn::EmbedParams{all_rows(), in().token_ids.data(), weights_.embedding(),
                                           weights_.embedding_type(), h, c.vocab_size, b.x});
  push(nn::rms_norm(backend), nn::RmsNormParams{all_rows(), b.x, h, nullptr, 0, w.enorm, h, eps, b.eh, 2 * h});
  nn::ProductParams product{all_rows(), b.eh, 2 * h, 1, {}};
  product.segments[0] = {w.eh_proj, b.x, h, 0};
  push(nn::product(backend, device::Part::kProjection), product);
}

// hn = RMSNorm(x; shared_head.norm) of one row a request, and its logits.
void DsaModel::push_mtp_head(const int32_t* source_row) {
  const auto backend = limits_.backend;
  const auto& c = config_;
  auto& b = *buffers_;
  push(nn::rms_norm(backend),
       nn::RmsNormParams{request_rows(), b.x, c.hidden_size, source_row, max_rows_, weights_.mtp()->shared_head_norm,
                         c.hidden_size, static_cast<float>(c.rms_norm_eps), b.hn, c.hidden_size});
  nn::ProductParams head{request_rows(), b.hn, c.hidden_size, 1, {}};
  head.segments[0] = {weights_.lm_head(), b.logits, c.vocab_size, 0};
  push(nn::product(backend, device::Part::kHead), head);
  push(device::copy_rows(), device::CopyParams{in().logit_range.data(), reinterpret_cast<const std::byte*>(b.logits),
                                               reinterpret_cast<std::byte*>(draft_logits_host_.data()),
                                               c.vocab_size * static_cast<int64_t>(sizeof(float))});
}

void DsaModel::push_mtp_prompt(cache::KvCache& cache) {
  use(Pass::kMtpPrompt);
  auto& b = *buffers_;
  push(nn::rms_norm(limits_.backend),
       nn::RmsNormParams{all_rows(), b.x, config_.hidden_size, nullptr, 0, weights_.final_norm(), config_.hidden_size,
                         static_cast<float>(config_.rms_norm_eps), b.a, config_.hidden_size});
  push_mtp_input(b.a, nullptr, 0);
  push_rope_table();
  push_layer(config_.num_layers, cache);
}

void DsaModel::begin_mtp_rows(const std::vector<cache::MtpRows>& requests, const MtpTokens& tokens) {
  use(Pass::kMtpRows);
  PassInputs& p = in();
  const int32_t q_len = 1 + limits_.num_draft_tokens;
  const auto num_requests = static_cast<int32_t>(requests.size());
  tidepool_check(num_requests <= limits_.max_requests &&
                     tokens.token_ids.size() == static_cast<size_t>(num_requests * q_len) &&
                     tokens.logit_rows.size() == tokens.token_ids.size(),
                 "model: {} requests do not fit {}", num_requests, limits_.max_requests);
  std::copy(tokens.token_ids.begin(), tokens.token_ids.end(), p.token_ids.begin());
  std::copy(tokens.logit_rows.begin(), tokens.logit_rows.end(), p.source_row.begin());
  for (int32_t r = 0; r < num_requests; ++r) {
    const cache::MtpRows& request = requests[static_cast<size_t>(r)];
    for (int32_t j = 0; j < q_len; ++j)
      p.positions[static_cast<size_t>(r * q_len + j)] = j < request.count ? request.first + j : -1;
    last_row_[static_cast<size_t>(r)] = r * q_len + request.count - 1;
  }
  p.logit_range = {0, num_requests};
  set_ranges(p, num_requests * q_len, num_requests * q_len, 0);
}

void DsaModel::push_mtp_rows(cache::KvCache& cache, Taps* taps) {
  use(Pass::kMtpRows);
  auto& b = *buffers_;
  push_mtp_input(b.g, in().source_row.data(), limits_.max_logit_rows);
  push_rope_table();
  push_layer(config_.num_layers, cache);
  push_mtp_head(last_row_.data());
  if (keeps_draft_lists() && limits_.num_draft_tokens > 1) push_keep_lists(cache);
  if (taps == nullptr) return;
  const auto copy = [&](const void* from, void* to, int64_t bytes, const int32_t* source_row) {
    push(device::copy_rows(),
         device::CopyParams{in().logit_range.data(), static_cast<const std::byte*>(from), static_cast<std::byte*>(to),
                            bytes, source_row, source_row != nullptr ? max_rows_ : 0});
  };
  copy(b.hn, taps->draft_hidden.data(), config_.hidden_size * static_cast<int64_t>(sizeof(float)), nullptr);
  copy(b.topk, taps->draft_topk.data(), config_.index_topk * static_cast<int64_t>(sizeof(int32_t)), last_row_.data());
}

// What the first draft's row attended to, where the next draft steps find it.
void DsaModel::push_keep_lists(cache::KvCache& cache) {
  auto& b = *buffers_;
  const int32_t* range = inputs_[static_cast<size_t>(Pass::kMtpRows)].logit_range.data();
  const auto keep = [&](const void* from, void* to, int64_t bytes) {
    push(device::copy_rows(),
         device::CopyParams{range, static_cast<const std::byte*>(from), static_cast<std::byte*>(to), bytes,
                            last_row_.data(), limits_.max_decode_rows});
  };
  keep(cache.decode_locations(config_.num_layers), b.draft_locations,
       config_.index_topk * static_cast<int64_t>(sizeof(RowLocation)));
  keep(b.num_selected, b.draft_selected, sizeof(int32_t));
}

void DsaModel::begin_mtp_draft(const std::vector<cache::MtpRows>& requests, const std::vector<int32_t>& token_ids,
                               int32_t draft) {
  use(Pass::kMtpDraft);
  PassInputs& p = in();
  const auto num_requests = static_cast<int32_t>(requests.size());
  std::copy(token_ids.begin(), token_ids.end(), p.token_ids.begin());
  for (size_t r = 0; r < requests.size(); ++r) p.positions[r] = requests[r].last() + draft;
  p.logit_range = {0, num_requests};
  set_ranges(p, num_requests, num_requests, 0);
}

void DsaModel::push_mtp_draft(cache::KvCache& cache, bool is_last) {
  const int32_t layer = config_.num_layers;
  if (keeps_draft_lists() && !limits_.mtp_gather_reuse) {
    cache.use(Pass::kMtpRows);
    cache.serve(layer);
    push_keep_lists(cache);
  }
  cache.use(Pass::kMtpDraft);
  use(Pass::kMtpDraft);
  push_mtp_input(buffers_->hn, nullptr, 0);
  push_rope_table();
  if (keeps_draft_lists()) {
    push_attention_inputs(layer, cache);
    push_draft_attention(cache);
    push_mlp(layer);
  } else {
    push_layer(layer, cache);
  }
  push_mtp_head(nullptr);
  if (!keeps_draft_lists() || !is_last) return;
  cache.use(Pass::kMtpRows);
  cache.install(layer);
  cache.use(Pass::kMtpDraft);
}

void DsaModel::push_draft_attention(cache::KvCache& cache) {
  const auto backend = limits_.backend;
  auto& b = *buffers_;
  nn::SparseAttentionParams p = attention_params(config_.num_layers, cache);
  p.rows = {in().decode.data(), max_rows_};
  p.num_selected = b.draft_selected;
  p.locations = b.draft_locations;
  p.places = cache.decode_places(config_.num_layers);
  push(nn::attention_split(backend), p);
  push(nn::attention_merge(backend), p);
  push_attention_output(config_.num_layers);
}

}  // namespace tidepool::model
