#include "engine/speculative.h"

#include <algorithm>

#include "base/check.h"
#include "nn/sample.h"

namespace tidepool::engine {
namespace {

// The positive part of p - q, normalised, into residual; false when there is none.
bool positive_part(std::span<const double> p, std::span<const double> q, std::span<double> residual) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += residual[i] = std::max(p[i] - q[i], 0.0);
  if (!(sum > 0)) return false;
  for (double& weight : residual) weight /= sum;
  return true;
}

}  // namespace

int32_t draw(std::span<const double> p, double uniform) {
  double sum = 0;
  int32_t last = -1;
  for (size_t i = 0; i < p.size(); ++i) {
    if (!(p[i] > 0)) continue;
    last = static_cast<int32_t>(i);
    sum += p[i];
    if (uniform < sum) break;
  }
  tidepool_check(last >= 0, "a distribution without weight has nothing to draw");
  return last;
}

DraftVerdict verify_draft(std::span<const double> p, std::span<const double> q, int32_t draft, double accept_uniform,
                          double token_uniform, std::span<double> residual) {
  tidepool_check(q.size() == p.size() && residual.size() == p.size(),
                 "distributions of {} and {} tokens and scratch for {} do not fit together", p.size(), q.size(),
                 residual.size());
  tidepool_check(draft >= 0 && static_cast<size_t>(draft) < q.size() && q[static_cast<size_t>(draft)] > 0,
                 "draft {} cannot have been drawn", draft);
  const auto d = static_cast<size_t>(draft);
  if (accept_uniform * q[d] < p[d]) return {true, draft};
  // p and q alike up to rounding: a draft refused by the last bit leaves nothing to prefer.
  const bool differ = positive_part(p, q, residual);
  return {false, draw(differ ? std::span<const double>(residual) : p, token_uniform)};
}

double uniform_of(uint64_t seed, uint64_t stream, int64_t token_number, Draw draw) {
  // Plain sampling counts steps below 2^56; each purpose has a range above it of its own.
  constexpr int kPurposeShift = 56;
  return nn::uniform_of(seed, stream,
                        static_cast<uint64_t>(draw) << kPurposeShift | static_cast<uint64_t>(token_number));
}

}  // namespace tidepool::engine
