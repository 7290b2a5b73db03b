// What the machine can do at most, on the SIMD target in use: the denominators of floors and benchmarks. Run by as many
// threads at once as the thing that is compared with them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidepool::nn {

// Multiply-adds in registers, `rounds` of them for every lane of enough independent sums. Returns how many were done.
uint64_t probe_multiply_adds(uint64_t rounds);

// Reads every byte (a multiple of 64, 64-byte aligned) front to back once. Returns a sum of them, so that nobody skips
// it.
uint64_t probe_read(const std::byte* data, size_t bytes);

}  // namespace tidepool::nn
