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

CacheCounts operator-(CacheCounts a, const CacheCounts& b) {
  for (int64_t CacheCounts::*count : {&CacheCounts::hits, &CacheCounts::misses, &CacheCounts::window,
                                      &CacheCounts::unspilled, &CacheCounts::fetched_rows, &CacheCounts::fetched_bytes,
                                      &CacheCounts::installed_rows, &CacheCounts::evictions, &CacheCounts::wraps}) {
    a.*count -= b.*count;
  }
  return a;
}

// What was counted since `before`.
CacheStats operator-(CacheStats now, const CacheStats& before) {
  now.total = now.total - before.total;
  for (size_t g = 0; g < now.groups.size(); ++g) now.groups[g] = now.groups[g] - before.groups[g];
  now.prefill_fetched_bytes -= before.prefill_fetched_bytes;
  now.spilled_bytes -= before.spilled_bytes;
  now.slot_resets -= before.slot_resets;
  return now;
}

// A short prompt is enough: what the first steps of an engine pay for does not depend on its length.
void warm_up(Engine& engine, const std::vector<RequestOptions>& requests) {
  constexpr size_t kPromptTokens = 128;
  constexpr int32_t kTokens = 3;  // one of the prompt's last row, two of decode steps
  std::vector<RequestOptions> short_ones = requests;
  for (RequestOptions& request : short_ones) {
    request.prompt.resize(std::min(request.prompt.size(), kPromptTokens));
    request.max_tokens = std::min(request.max_tokens, kTokens);
    request.ignore_eos = true;
  }
  submit_all(engine, short_ones);
  RequestResult ignored;
  while (engine.has_work()) {
    if (interrupted()) throw Interrupted();
    for (const Output& out : engine.step().outputs) record(out, ignored);
  }
}

void count_step(const StepResult& step, double ms, RunResult& result) {
  result.request_steps += step.decode_tokens;
  if (step.prefill_tokens > 0) {
    result.prefill_ms += ms;
    return;
  }
  if (step.decode_tokens == 0) return;
  result.decode_ms += ms;
  result.decode_steps.push_back({ms, step.decode_tokens});
  result.decode_requests += step.decode_tokens;
  result.decode_tokens +=
      std::count_if(step.outputs.begin(), step.outputs.end(), [](const Output& out) { return out.token >= 0; });
}

}  // namespace

double RunResult::accept_length() const {
  int64_t tokens = 0;  // the first one of each request comes from its prompt
  for (const RequestResult& request : requests) tokens += std::max<int64_t>(0, std::ssize(request.ids) - 1);
  return request_steps > 0 ? static_cast<double>(tokens) / static_cast<double>(request_steps) : 1.0;
}

double RunResult::ms_per_token() const {
  if (decode_tokens == 0) return 0;
  const double requests_per_step = static_cast<double>(decode_requests) / static_cast<double>(decode_steps.size());
  return decode_ms * requests_per_step / static_cast<double>(decode_tokens);
}

RunResult run_requests(EngineOptions options, const std::vector<RequestOptions>& requests,
                       const RunSettings& settings) {
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
  options.timeline = !settings.timeline.empty();
  Engine engine(options);
  loading.clear();
  result.model = engine.model();
  const InterruptGuard guard;
  if (settings.warm_up) warm_up(engine, requests);
  const CacheStats before = engine.stats();
  const std::map<RequestId, size_t> index = submit_all(engine, requests);
  uint64_t prefilled = 0;
  while (engine.has_work()) {
    if (interrupted() && !result.interrupted) {
      result.interrupted = true;
      for (const auto& [id, i] : index) engine.cancel(id);
    }
    const auto start = Clock::now();
    const StepResult step = engine.step();
    count_step(step, ms_since(start), result);
    if (step.prefill_tokens > 0) {
      prefilled += static_cast<uint64_t>(step.prefill_tokens);
      prefill.update(prefilled, prompt_tokens);
      if (prefilled >= prompt_tokens) prefill.clear();
    }
    for (const Output& out : step.outputs) {
      const size_t i = index.at(out.request);
      record(out, result.requests[i]);
      if (out.token >= 0 && settings.on_token) settings.on_token(i, out.token);
    }
  }
  result.stats = engine.stats() - before;
  for (const auto& [id, i] : index) result.requests[i].stats = engine.stats(id);
  if (!settings.timeline.empty()) engine.write_timeline(settings.timeline);
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
