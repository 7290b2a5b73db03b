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

struct DecodeStep {  // without prompt rows
  double ms = 0;
  int32_t num_requests = 0;
};

struct RunResult {
  ModelInfo model;
  std::vector<RequestResult> requests;
  CacheStats stats;
  // Steps that computed prompt rows count as prefill, all others as decode.
  double prefill_ms = 0, decode_ms = 0;
  std::vector<DecodeStep> decode_steps;
  int64_t decode_tokens = 0;    // that came out of decode steps
  int64_t decode_requests = 0;  // requests of all decode steps together
  int64_t request_steps = 0;    // likewise, of the steps too in which a prompt ran beside them
  bool interrupted = false;

  // Tokens that a request gets from a step; 1 without drafts. Those at the end of a request that were left out, because
  // it had enough, are not counted.
  double accept_length() const;
  double ms_per_token() const;
  double tokens_per_s() const { return decode_ms > 0 ? 1000 * static_cast<double>(decode_tokens) / decode_ms : 0; }
};

// Called for every new token, in order within a request.
using OnToken = std::function<void(size_t request, int32_t token)>;

struct RunSettings {
  OnToken on_token{};
  std::string timeline{};  // where to write what ran when; "": nowhere
  bool warm_up = false;    // run the requests first, cut to a short prompt and two decode steps; no count includes that
};

// SIGINT ends all requests at the next step; what came out until then is the result. Throws Interrupted while it loads
// or warms up, Error when a request is refused or fails.
RunResult run_requests(EngineOptions options, const std::vector<RequestOptions>& requests, const RunSettings& settings);

// "" when both runs made the same tokens from bit-identical logits; otherwise where they first differ.
std::string first_difference(const RunResult& a, const RunResult& b);

}  // namespace tidepool::cli
