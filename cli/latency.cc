#include "latency.h"

#include <algorithm>
#include <vector>

namespace tidepool::cli {
namespace {

constexpr double kFence = 1.5;

double quartile(const std::vector<double>& sorted, double q) {
  const double place = static_cast<double>(sorted.size() - 1) * q;
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

double mean_latency_ms(std::span<const double> steps_ms) {
  if (steps_ms.size() < 2) return 0;
  std::vector<double> sorted(steps_ms.begin() + 1, steps_ms.end());
  std::sort(sorted.begin(), sorted.end());
  const double lower = quartile(sorted, 0.25), upper = quartile(sorted, 0.75);
  const double most = upper + kFence * (upper - lower);
  double sum = 0;
  size_t count = 0;
  for (; count < sorted.size() && sorted[count] <= most; ++count) sum += sorted[count];
  return sum / static_cast<double>(count);
}

}  // namespace tidepool::cli
