#include "chi_square.h"

#include <cmath>

namespace tidepool::test {
namespace {

// Wilson and Hilferty's approximation of the quantile.
double limit(size_t degrees) {
  constexpr double kNormalQuantile = 4.265;  // of 0.99999
  const double d = static_cast<double>(degrees), third = 2 / (9 * d);
  return d * std::pow(1 - third + kNormalQuantile * std::sqrt(third), 3);
}

}  // namespace

double misfit(const std::vector<int64_t>& counts, const std::vector<double>& expected) {
  int64_t total = 0;
  for (int64_t count : counts) total += count;
  double chi_square = 0;
  size_t possible = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (expected[i] == 0 && counts[i] > 0) return INFINITY;
    if (expected[i] == 0) continue;
    const double mean = expected[i] * static_cast<double>(total), off = static_cast<double>(counts[i]) - mean;
    chi_square += off * off / mean;
    ++possible;
  }
  return possible < 2 ? 0 : chi_square / limit(possible - 1);
}

}  // namespace tidepool::test
