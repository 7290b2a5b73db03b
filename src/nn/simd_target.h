// Which instruction set the `cpu` kernels run on. Chosen once per process from what the machine has; tests force each.
// Results are bit-identical within one target, not between targets.
#pragma once

#include <string>
#include <vector>

namespace tidepool::nn {

// Names of the compiled targets this machine can run, best first ("avx3", "avx2", "sse4", ...).
std::vector<std::string> simd_targets();
std::string simd_target();  // the one in use
// Restricts dispatch to one of simd_targets(); "" lifts the restriction. Throws Error for another name. Not while
// kernels run.
void force_simd_target(const std::string& name);

}  // namespace tidepool::nn
