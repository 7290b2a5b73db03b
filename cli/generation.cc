#include "generation.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

#include "base/check.h"
#include "output.h"

namespace tidepool::cli {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// The index of each submitted request by its id in the engine.
std::map<RequestId, size_t> submit_all(Engine& engine, const std::vector<RequestOptions>& requests) {
  std::map<RequestId, size_t> index;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Verdict verdict = engine.submit(requests[i]);
    tidepool_check(verdict.admitted, "the request was refused: {}", verdict.reason);
    index[verdict.request] = i;
  }
  return index;
}

void record(const Output& out, RequestResult& result) {
  tidepool_check(out.finish != FinishReason::kError, "a request failed: {}", out.error);
  if (out.token >= 0) {
    result.ids.push_back(out.token);
    if (!out.logits.empty()) result.logits.push_back(out.logits);
  }
  if (out.finish != FinishReason::kNone) result.finish = out.finish;
}

}  // namespace

RunResult run_requests(EngineOptions options, const std::vector<RequestOptions>& requests, const OnToken& on_token,
                       const std::string& timeline) {
  RunResult result;
  result.requests.resize(requests.size());
  uint64_t prompt_tokens = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    result.requests[i].prompt_tokens = static_cast<int64_t>(requests[i].prompt.size());
    prompt_tokens += requests[i].prompt.size();
  }
  Progress loading("loading", "bytes"), prefill("prefill", "tokens");
  options.load_progress = [&](uint64_t done, uint64_t total) {
    if (interrupted()) throw Interrupted();
    loading.update(done, total);
  };
  options.timeline = !timeline.empty();
  Engine engine(options);
  loading.clear();
  result.model = engine.model();
  const InterruptGuard guard;
  const std::map<RequestId, size_t> index = submit_all(engine, requests);
  uint64_t prefilled = 0;
  while (engine.has_work()) {
    if (interrupted() && !result.interrupted) {
      result.interrupted = true;
      for (const auto& [id, i] : index) engine.cancel(id);
    }
    const auto start = Clock::now();
    const StepResult step = engine.step();
    const double ms = ms_since(start);
    if (step.prefill_tokens > 0) {
      result.prefill_ms += ms;
      prefilled += static_cast<uint64_t>(step.prefill_tokens);
      prefill.update(prefilled, prompt_tokens);
      if (prefilled >= prompt_tokens) prefill.clear();
    } else if (step.decode_tokens > 0) {
      result.decode_ms += ms;
      ++result.decode_steps;
      result.decode_tokens += step.decode_tokens;
    }
    for (const Output& out : step.outputs) {
      const size_t i = index.at(out.request);
      record(out, result.requests[i]);
      if (out.token >= 0 && on_token) on_token(i, out.token);
    }
  }
  result.stats = engine.stats();
  for (const auto& [id, i] : index) result.requests[i].stats = engine.stats(id);
  if (!timeline.empty()) engine.write_timeline(timeline);
  return result;
}

std::string first_difference(const RunResult& a, const RunResult& b) {
  for (size_t r = 0; r < a.requests.size(); ++r) {
    const RequestResult &x = a.requests[r], &y = b.requests[r];
    for (size_t t = 0; t < std::min(x.logits.size(), y.logits.size()); ++t) {
      const auto &u = x.logits[t], &v = y.logits[t];
      if (u.size() != v.size() || std::memcmp(u.data(), v.data(), u.size() * sizeof(float)) != 0) {
        return fmt::format("the logits of token {} of request {} differ", t, r);
      }
      if (x.ids[t] != y.ids[t]) return fmt::format("token {} of request {} is {} and {}", t, r, x.ids[t], y.ids[t]);
    }
    if (x.logits.size() != x.ids.size() || y.logits.size() != y.ids.size()) {
      return fmt::format("not every token of request {} came with its logits", r);
    }
    if (x.ids.size() != y.ids.size())
      return fmt::format("request {} has {} and {} tokens", r, x.ids.size(), y.ids.size());
  }
  return "";
}

}  // namespace tidepool::cli
