// Test support: runs the pieces of an operator in a shuffled order, and on each SIMD target in turn.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "nn/rows.h"
#include "nn/simd_target.h"
#include "tidepool/op.h"

namespace tidepool::nn::pieces {

template <typename Params>
void run_pieces(const device::OpType& type, const Params& params, uint32_t seed = 1) {
  ASSERT_EQ(static_cast<size_t>(type.params_bytes), sizeof(Params));
  const int32_t n = type.num_pieces(&params);
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  for (int32_t piece : order) type.run(&params, piece, n);
}

template <typename F>
void on_each_target(F body) {
  for (const std::string& target : simd_targets()) {
    SCOPED_TRACE("SIMD target " + target);
    force_simd_target(target);
    body(target);
    if (testing::Test::HasFatalFailure()) break;
  }
  force_simd_target("");
}

inline bool has_fused_multiply_add(const std::string& target) { return target != "sse4"; }

// Bits of floats: NaN compares equal to itself, 0 differs from -0.
inline std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

inline std::vector<float> random_floats(size_t n, uint32_t seed, float deviation = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

// The value outputs hold before a kernel runs.
inline constexpr float kPoison = -12345.75f;

}  // namespace tidepool::nn::pieces
