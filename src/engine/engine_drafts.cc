// Drafts: which rows of a step stand, and what the MTP layer proposes behind them.
#include <algorithm>

#include "engine/engine_impl.h"
#include "engine/speculative.h"

namespace tidepool {

using cache::Pass;
using engine::Draw;

// Row `row` fed the newest token (0) or draft row - 1; its logits say what follows. Accepted: the next row stands too.
EngineImpl::Choice EngineImpl::verify_row(const engine::Request& r, const float* logits, size_t row) {
  const auto index = static_cast<size_t>(r.num_generated());
  const bool has_draft = index > 0 && row < num_drafts();
  const bool samples = r.options.temperature > 0 && index > 0 && num_drafts() > 0 && index >= r.options.forced.size();
  if (!samples) {
    const auto token = choose_token(r, logits);
    if (!token) return {};
    return {*token, has_draft && *token == r.drafts[row]};
  }
  const auto vocab = static_cast<size_t>(config_.vocab_size);
  auto& p = target_p_;
  if (!nn::probabilities({logits, vocab}, r.sampling(), sample_ids_, sample_p_, p)) return {};
  const auto uniform = [&](Draw draw) {
    return engine::uniform_of(options_.seed, r.options.sampling_stream, static_cast<int64_t>(index), draw);
  };
  if (!has_draft) return {engine::draw(p, uniform(Draw::kBonus)), false};
  const std::span<const double> q(r.draft_p.data() + row * vocab, vocab);
  const auto verdict =
      engine::verify_draft(p, q, r.drafts[row], uniform(Draw::kAccept), uniform(Draw::kResidual), residual_p_);
  return {verdict.token, verdict.accepted};
}

// Drafts follow tokens as plain sampling would choose them, from the MTP layer's distribution.
bool EngineImpl::choose_draft(engine::Request& r, const float* logits, size_t draft) {
  const auto vocab = static_cast<size_t>(config_.vocab_size);
  const std::span<const float> row(logits, vocab);
  if (r.options.temperature <= 0) {
    const auto token = nn::greedy(row);
    if (token) r.drafts.push_back(*token);
    return token.has_value();
  }
  const std::span<double> q(r.draft_p.data() + draft * vocab, vocab);
  if (!nn::probabilities(row, r.sampling(), sample_ids_, sample_p_, q)) return false;
  const auto token_number = static_cast<int64_t>(r.num_generated()) + static_cast<int64_t>(draft);
  r.drafts.push_back(
      engine::draw(q, engine::uniform_of(options_.seed, r.options.sampling_stream, token_number, Draw::kDraft)));
  return true;
}

// Every request that has tokens and goes on: the rows of this step that stand, each with the token behind it.
void EngineImpl::begin_mtp_rows() {
  mtp_requests_.clear();
  mtp_rows_.clear();
  mtp_tokens_.token_ids.clear();
  mtp_tokens_.logit_rows.clear();
  for (auto& r : running_) {
    if (r->cache_slot < 0 || r->first_logit_row < 0) continue;
    const auto end = static_cast<int32_t>(r->tokens.size()) - 1;  // rows [first, end) stand
    const int32_t first = std::max(r->prompt_len() - 1, end - r->new_tokens);
    mtp_requests_.push_back(r.get());
    mtp_rows_.push_back({r->cache_slot, first, end - first});
    for (int32_t j = 0; j <= options_.num_draft_tokens; ++j) {
      const bool stands = first + j < end;
      mtp_tokens_.token_ids.push_back(stands ? r->tokens[static_cast<size_t>(first + j + 1)] : 0);
      mtp_tokens_.logit_rows.push_back(stands ? r->first_logit_row + j : 0);
    }
    r->drafts.clear();
  }
}

void EngineImpl::choose_drafts(size_t draft, StepResult& result) {
  executor_->synchronize(device::kMainStream);
  if (observer_) observer_(draft == 0 ? Pass::kMtpRows : Pass::kMtpDraft, true);
  draft_ids_.clear();
  for (size_t i = 0; i < mtp_requests_.size(); ++i) {
    auto& r = *mtp_requests_[i];
    const bool is_ok = r.cache_slot >= 0 && choose_draft(r, model_->draft_logits(static_cast<int32_t>(i)), draft);
    if (!is_ok && r.cache_slot >= 0) fail_request(r, "the logits of a draft are not numbers", result);
    draft_ids_.push_back(is_ok ? r.drafts.back() : 0);
  }
}

void EngineImpl::run_drafts(StepResult& result) {
  begin_mtp_rows();
  if (mtp_requests_.empty()) return;
  const auto num_requests = static_cast<int32_t>(mtp_requests_.size());
  model::Taps* taps = options_.record_hidden ? &taps_ : nullptr;
  if (observer_) observer_(Pass::kMtpRows, false);
  cache_->begin_mtp_rows(mtp_rows_);
  model_->begin_mtp_rows(mtp_rows_, mtp_tokens_);
  run_pass(Pass::kMtpRows, num_requests, 0, [&] { model_->push_mtp_rows(*cache_, taps); });
  choose_drafts(0, result);
  if (options_.record_hidden) record_drafts(result);
  for (int32_t draft = 1; draft < options_.num_draft_tokens; ++draft) {
    const bool is_last = draft + 1 == options_.num_draft_tokens;
    if (observer_) observer_(Pass::kMtpDraft, false);
    cache_->begin_mtp_draft(mtp_rows_, draft, !model_->keeps_draft_lists());
    model_->begin_mtp_draft(mtp_rows_, draft_ids_, draft);
    run_pass(Pass::kMtpDraft, num_requests, is_last ? 1 : 0, [&] { model_->push_mtp_draft(*cache_, is_last); });
    choose_drafts(static_cast<size_t>(draft), result);
  }
  for (auto& r : running_) {
    const auto status = r->cache_slot >= 0 ? cache_->status(r->cache_slot) : ops::RequestStatus::kOk;
    if (status != ops::RequestStatus::kOk) fail_request(*r, status_sentence(status), result);
  }
  if (!options_.record_hidden) return;
  for (size_t i = 0; i < result.drafts.size(); ++i) result.drafts[i].draft_ids = mtp_requests_[i]->drafts;
}

void EngineImpl::record_drafts(StepResult& result) const {
  const auto hidden = static_cast<size_t>(config_.hidden_size), topk = static_cast<size_t>(config_.index_topk);
  for (size_t i = 0; i < mtp_requests_.size(); ++i) {
    DraftRecord record;
    record.request = mtp_requests_[i]->id;
    record.position = mtp_rows_[i].last() + 1;
    const float* h = taps_.draft_hidden.data() + i * hidden;
    record.hidden.assign(h, h + hidden);
    const int32_t* ids = taps_.draft_topk.data() + i * topk;
    record.topk.assign(ids, ids + topk);
    const float* logits = model_->draft_logits(static_cast<int32_t>(i));
    record.logits.assign(logits, logits + config_.vocab_size);
    result.drafts.push_back(std::move(record));
  }
}

}  // namespace tidepool
