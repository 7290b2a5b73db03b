// One request inside the engine. Three lengths say everything: tokens (known), num_computed (rows in the cache),
// prompt.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/kv_cache.h"
#include "nn/sample.h"
#include "tidepool/engine.h"

namespace tidepool::engine {

struct Request {
  RequestId id = -1;
  RequestOptions options;
  std::vector<int32_t> tokens;  // prompt, then generated; capacity for all, so that no step allocates
  int32_t num_computed = 0;     // tokens whose rows are in the cache
  int32_t cache_slot = -1;      // -1: waiting
  bool cancelled = false;
  std::vector<int32_t> drafts;   // behind the newest token; none before the first token
  std::vector<double> draft_p;   // [num_draft_tokens, vocab] what they were drawn from; empty when greedy
  int32_t first_logit_row = -1;  // of this step; -1: none
  int32_t new_tokens = 0;        // of this step

  nn::SamplingParams sampling() const { return {options.temperature, options.top_k, options.top_p}; }
  int32_t prompt_len() const { return static_cast<int32_t>(options.prompt.size()); }
  int32_t num_generated() const { return static_cast<int32_t>(tokens.size()) - prompt_len(); }
  bool in_prefill() const { return num_computed < prompt_len(); }
  int64_t most_tokens() const { return static_cast<int64_t>(options.prompt.size()) + options.max_tokens; }
};

}  // namespace tidepool::engine
