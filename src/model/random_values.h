// Random weights that depend only on (seed, tensor name, index): the same whatever the order, the number of threads or
// the machine. A counter-based generator (the finalizer of splitmix64, Steele et al. 2014); integers until the last
// step.
#pragma once

#include <cstdint>
#include <string_view>

namespace tidepool::model {

class RandomValues {
 public:
  RandomValues(uint64_t seed, std::string_view tensor) : key_(mix(seed)) {
    for (char c : tensor) key_ = mix(key_ ^ static_cast<uint8_t>(c));
  }

  // About normal, mean 0, variance 1, at most 3.47 away from 0: the sum of four uniform 16-bit numbers.
  float normal(uint64_t index) const {
    const uint64_t h = mix(key_ + index * 0x9e3779b97f4a7c15u);
    const auto sum = static_cast<int32_t>((h & 0xffff) + ((h >> 16) & 0xffff) + ((h >> 32) & 0xffff) + (h >> 48));
    return static_cast<float>(sum - 2 * 65535) * (1.0f / 37837.227f);  // sqrt(4 (65536^2 - 1) / 12)
  }

 private:
  static constexpr uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  uint64_t key_;
};

}  // namespace tidepool::model
