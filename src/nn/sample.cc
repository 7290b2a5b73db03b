#include "nn/sample.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tidepool::nn {
namespace {

// The largest logit (ties: lower id); empty when one is NaN or none is above -inf.
std::optional<int32_t> best(std::span<const float> logits) {
  std::optional<int32_t> winner;
  float top = -INFINITY;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return std::nullopt;
    if (logits[i] > top) {
      top = logits[i];
      winner = static_cast<int32_t>(i);
    }
  }
  return winner;
}

// Tokens in descending order of their logits (ties: lower id), sorted only as far as somebody has looked: a draw seldom
// needs more than the head of a large vocabulary.
class DescendingTokens {
  float logit(int32_t id) const { return logits_[static_cast<size_t>(id)]; }
  auto order() const {
    return [this](int32_t a, int32_t b) { return logit(a) > logit(b) || (logit(a) == logit(b) && a < b); };
  }

 public:
  // ids: every token that may be drawn. p: receives e^((logit - top) / temperature) of the sorted ones.
  DescendingTokens(std::span<const float> logits, double top, double temperature, std::vector<int32_t>& ids,
                   std::vector<double>& p)
      : logits_(logits), top_(top), temperature_(temperature), ids_(ids), p_(p) {
    p_.clear();
  }
  double likelihood(int32_t id) const { return std::exp((static_cast<double>(logit(id)) - top_) / temperature_); }
  void keep_largest(size_t count) {
    if (count >= ids_.size()) return;
    std::nth_element(ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(count), ids_.end(), order());
    ids_.resize(count);
  }
  // Likelihood of the i-th token.
  double at(size_t i) {
    while (i >= p_.size()) sort_more();
    return p_[i];
  }

 private:
  void sort_more() {
    const auto begin = ids_.begin() + static_cast<ptrdiff_t>(p_.size());
    const size_t end_index = std::min(ids_.size(), std::max<size_t>(128, 8 * p_.size()));
    const auto end = ids_.begin() + static_cast<ptrdiff_t>(end_index);
    if (end != ids_.end()) std::nth_element(begin, end, ids_.end(), order());
    std::sort(begin, end, order());
    for (auto it = begin; it != end; ++it) p_.push_back(likelihood(*it));
  }

  std::span<const float> logits_;
  double top_, temperature_;
  std::vector<int32_t>& ids_;
  std::vector<double>& p_;
};

// What may be drawn: the first `count` tokens of the descending order, `total` their likelihood.
struct Kept {
  size_t count = 0;
  double total = 0;
};

// `tokens` walks `ids`; both keep the top_k largest.
Kept keep(DescendingTokens& tokens, const std::vector<int32_t>& ids, const SamplingParams& params) {
  if (params.top_k > 0) tokens.keep_largest(static_cast<size_t>(params.top_k));
  Kept kept{ids.size(), 0};
  for (int32_t id : ids) kept.total += tokens.likelihood(id);
  if (params.top_p >= 1.0) return kept;
  const double wanted = params.top_p * kept.total;
  kept = {0, 0};
  do kept.total += tokens.at(kept.count++);
  while (kept.total < wanted && kept.count < ids.size());
  return kept;
}

// Every token above -inf, and room for their likelihoods.
void list_tokens(std::span<const float> logits, std::vector<int32_t>& ids, std::vector<double>& p) {
  ids.clear();
  ids.reserve(logits.size());
  p.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != -INFINITY) ids.push_back(static_cast<int32_t>(i));
  }
}

// splitmix64's output function: a bijection that mixes every bit into every other.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

std::optional<int32_t> greedy(std::span<const float> logits) { return best(logits); }

std::optional<int32_t> sample(std::span<const float> logits, const SamplingParams& params, double uniform,
                              std::vector<int32_t>& scratch_ids, std::vector<double>& scratch_p) {
  const std::optional<int32_t> top = best(logits);
  if (!top || params.temperature <= 0) return top;
  const float top_logit = logits[static_cast<size_t>(*top)];
  if (std::isinf(top_logit)) return top;  // +inf takes all the probability

  std::vector<int32_t>& ids = scratch_ids;
  list_tokens(logits, ids, scratch_p);
  DescendingTokens tokens(logits, top_logit, params.temperature, ids, scratch_p);
  const Kept kept = keep(tokens, ids, params);
  double sum = 0;
  for (size_t i = 0; i < kept.count; ++i) {
    sum += tokens.at(i);
    if (uniform * kept.total < sum) return ids[i];
  }
  return ids[kept.count - 1];  // uniform just below 1, and rounding
}

bool probabilities(std::span<const float> logits, const SamplingParams& params, std::vector<int32_t>& scratch_ids,
                   std::vector<double>& scratch_p, std::span<double> out) {
  tidepool_check(out.size() == logits.size(), "{} probabilities are wanted of {} logits", out.size(), logits.size());
  const std::optional<int32_t> top = best(logits);
  if (!top) return false;
  std::fill(out.begin(), out.end(), 0.0);
  const float top_logit = logits[static_cast<size_t>(*top)];
  if (params.temperature <= 0 || std::isinf(top_logit)) {
    out[static_cast<size_t>(*top)] = 1;
    return true;
  }
  list_tokens(logits, scratch_ids, scratch_p);
  DescendingTokens tokens(logits, top_logit, params.temperature, scratch_ids, scratch_p);
  const Kept kept = keep(tokens, scratch_ids, params);
  for (size_t i = 0; i < kept.count; ++i) {
    const int32_t id = scratch_ids[i];
    out[static_cast<size_t>(id)] = tokens.likelihood(id) / kept.total;
  }
  return true;
}

double uniform_of(uint64_t seed, uint64_t request, uint64_t step) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
  uint64_t x = mix(seed + kGolden);
  x = mix((x ^ request) + kGolden);
  x = mix((x ^ step) + kGolden);
  return static_cast<double>(x >> 11) * 0x1p-53;
}

}  // namespace tidepool::nn
