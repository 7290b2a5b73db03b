// Prefetches that the compiler keeps: GCC takes a function that does nothing but __builtin_prefetch for one without
// effect and removes its calls.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidepool::base {

inline constexpr int64_t kLineBytes = 64;

// Starts loading [data, data + bytes) into the nearest cache.
inline void prefetch(const std::byte* data, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(data + at);
  asm volatile("");
}

// The same for bytes that will be overwritten: their stores would wait for the lines otherwise.
inline void prefetch_target(std::byte* data, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kLineBytes) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(data[at]));  // the builtin would not ask for ownership
#else
    __builtin_prefetch(data + at, 1);
#endif
  }
  asm volatile("");
}

}  // namespace tidepool::base
