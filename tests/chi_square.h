// Whether counts of random draws fit a distribution.
#pragma once

#include <cstdint>
#include <vector>

namespace tidepool::test {

// Pearson's chi-square of the counts over what a right sampler exceeds once in a hundred thousand times: above 1 they
// come from something else. Infinite when something impossible was drawn.
double misfit(const std::vector<int64_t>& counts, const std::vector<double>& expected);

}  // namespace tidepool::test
