// Runs a set of requests to their end on one engine, and says what came out and how long it took.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tidepool/engine.h"

namespace tidepool::cli {

struct RequestResult {
  int64_t prompt_tokens = 0;
  std::vector<int32_t> ids;
  std::vector<std::vector<float>> logits;  // [tokens][vocab], when recorded
  FinishReason finish = FinishReason::kNone;
  CacheStats stats;
};

struct RunResult {
  ModelInfo model;
  std::vector<RequestResult> requests;
  CacheStats stats;
  // Steps that computed prompt rows count as prefill, all others as decode.
  double prefill_ms = 0, decode_ms = 0;
  int64_t decode_steps = 0, decode_tokens = 0;
  bool interrupted = false;

  double ms_per_token() const { return decode_steps > 0 ? decode_ms / static_cast<double>(decode_steps) : 0; }
  double tokens_per_s() const { return decode_ms > 0 ? 1000 * static_cast<double>(decode_tokens) / decode_ms : 0; }
};

// Called for every new token, in order within a request.
using OnToken = std::function<void(size_t request, int32_t token)>;

// `timeline`: where to write what ran when ("" : nowhere). SIGINT ends all requests at the next step; what came out
// until then is the result. Throws Interrupted while it loads, Error when a request is refused or fails.
RunResult run_requests(EngineOptions options, const std::vector<RequestOptions>& requests, const OnToken& on_token,
                       const std::string& timeline);

// "" when both runs made the same tokens from bit-identical logits; otherwise where they first differ.
std::string first_difference(const RunResult& a, const RunResult& b);

}  // namespace tidepool::cli
