// Requests on their way in, and those that are called off.
#include <algorithm>

#include "base/check.h"
#include "engine/engine_impl.h"

namespace tidepool {

void EngineImpl::check_request(const RequestOptions& r) const {
  tidepool_check(!r.prompt.empty(), "the prompt is empty");
  tidepool_check(r.max_tokens > 0, "--max-tokens is {}, must be at least 1", r.max_tokens);
  const auto total = static_cast<int64_t>(r.prompt.size()) + r.max_tokens;
  tidepool_check(total <= options_.max_model_len,
                 "the prompt of {} tokens and {} new ones are {} tokens, --max-model-len is {}", r.prompt.size(),
                 r.max_tokens, total, options_.max_model_len);
  for (const auto* list : {&r.prompt, &r.forced}) {
    for (size_t i = 0; i < list->size(); ++i) {
      tidepool_check((*list)[i] >= 0 && (*list)[i] < config_.vocab_size,
                     "token id {} at place {} is outside the vocabulary of {}", (*list)[i], i, config_.vocab_size);
    }
  }
  tidepool_check(r.temperature >= 0 && r.temperature <= 1e6, "--temperature is {}, must be 0 to 1000000",
                 r.temperature);
  tidepool_check(r.top_p > 0 && r.top_p <= 1, "--top-p is {}, must be above 0 and at most 1", r.top_p);
  tidepool_check(r.top_k >= 0, "--top-k is {}, must be 0 (all) or more", r.top_k);
}

Verdict EngineImpl::submit(const RequestOptions& options) {
  check_request(options);
  const auto total = static_cast<int64_t>(options.prompt.size()) + options.max_tokens;
  const cache::Fit fit = cache_->fit(total + num_draft_rows());
  if (fit.answer == cache::Fit::Answer::kNever) return {false, -1, fit.short_budget};
  auto request = std::make_unique<engine::Request>();
  request->id = next_id_++;
  request->options = options;
  request->tokens.reserve(static_cast<size_t>(total));
  request->tokens = options.prompt;
  request->drafts.reserve(num_drafts());
  if (options.temperature > 0) request->draft_p.resize(num_drafts() * static_cast<size_t>(config_.vocab_size));
  const RequestId id = request->id;
  waiting_.push_back(std::move(request));
  return {true, id, fit.answer == cache::Fit::Answer::kLater ? "queued: " + fit.short_budget : ""};
}

void EngineImpl::cancel(RequestId id) {
  for (auto& r : waiting_) r->cancelled |= r->id == id;
  for (auto& r : running_) r->cancelled |= r->id == id;
}

void EngineImpl::end_cancelled(StepResult& result) {
  std::erase_if(waiting_, [&](auto& r) {
    if (r->cancelled) result.outputs.push_back({r->id, -1, FinishReason::kCancelled, "", {}});
    return r->cancelled;
  });
  for (auto& r : running_) {
    if (r->cancelled) end_request(*r, {r->id, -1, FinishReason::kCancelled, "", {}}, result);
  }
  std::erase_if(running_, [](auto& r) { return r->cache_slot < 0; });
}

// In order of arrival: a later request never overtakes one that waits for room.
void EngineImpl::admit() {
  while (!waiting_.empty()) {
    auto& front = *waiting_.front();
    const int64_t tokens = front.most_tokens() + num_draft_rows();
    if (cache_->fit(tokens).answer != cache::Fit::Answer::kNow) cache_->settle();
    if (cache_->fit(tokens).answer != cache::Fit::Answer::kNow) return;
    front.cache_slot = cache_->open(tokens);
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

}  // namespace tidepool
