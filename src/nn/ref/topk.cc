// The specification of topk: sort all, keep the first.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "nn/indexer.h"
#include "nn/key_walk.h"

namespace tidepool::nn {
namespace {

// Before: strictly larger. NaN is smaller than every number; -0 equals 0.
bool before(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  return a > b;
}

}  // namespace

void ref_topk(const TopkParams& p, int32_t piece, int32_t) {
  const int32_t m = p.rows.begin() + piece;
  const int32_t visible = num_visible(p.table, m);
  std::vector<int32_t> order(static_cast<size_t>(visible));
  std::iota(order.begin(), order.end(), 0);
  if (visible > p.topk) {
    const float* scores = p.scores + static_cast<int64_t>(piece) * p.score_stride;
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return before(scores[a], scores[b]); });
    order.resize(static_cast<size_t>(p.topk));
    std::sort(order.begin(), order.end());
  }
  p.num_selected[m] = static_cast<int32_t>(order.size());
  order.resize(static_cast<size_t>(p.topk), -1);
  std::copy(order.begin(), order.end(), p.topk_indices + static_cast<int64_t>(m) * p.topk);
}

}  // namespace tidepool::nn
