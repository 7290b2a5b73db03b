// Choosing the next token from logits; host code, one row at a time. Pure functions of their arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tidepool::nn {

struct SamplingParams {
  double temperature = 0;  // 0: greedy
  int32_t top_k = 0;       // 0: all
  double top_p = 1.0;      // (0, 1]
};

// Index of the largest logit; of equal ones the lowest. Empty when a logit is NaN or all are -inf.
std::optional<int32_t> greedy(std::span<const float> logits);

// softmax(logits / temperature) restricted to the top_k largest, then to the smallest set of the most likely tokens
// whose probability reaches top_p (at least one; ties by lower id), renormalised; picks by `uniform` in [0, 1) walking
// tokens in descending probability (ties: lower id). Computed in double. `scratch` avoids allocation: it keeps its
// capacity.
std::optional<int32_t> sample(std::span<const float> logits, const SamplingParams& params, double uniform,
                              std::vector<int32_t>& scratch_ids, std::vector<double>& scratch_p);

// The distribution that `sample` draws from, into out [logits.size()]: 0 for tokens that it never draws, otherwise in
// sum 1 but for rounding. False where `sample` is empty. Temperature 0: all weight on the greedy token.
bool probabilities(std::span<const float> logits, const SamplingParams& params, std::vector<int32_t>& scratch_ids,
                   std::vector<double>& scratch_p, std::span<double> out);

// Counter-based generator: the uniform number of (seed, request, step); no state, so a batch never changes a draw.
double uniform_of(uint64_t seed, uint64_t request, uint64_t step);

}  // namespace tidepool::nn
