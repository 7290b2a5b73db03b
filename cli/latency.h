// How the published runner makes one number out of the times of a run's decode steps.
#pragma once

#include <span>

namespace tidepool::cli {

// The mean of `steps_ms` without the first one, and without those of the rest that lie more than 1.5 times the distance
// of the quartiles above the upper one. Quartiles are interpolated linearly between the sorted values: of n values the
// quartile q is the value at place (n - 1) * q, counted from 0. 0 when there are fewer than two steps.
double mean_latency_ms(std::span<const double> steps_ms);

}  // namespace tidepool::cli
