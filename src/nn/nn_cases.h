// What the tests of nn share: tolerances, seeded data, packed matrices, and running an operator in any order of pieces.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "nn/packed_matrix.h"
#include "nn/rows.h"
#include "nn/simd_target.h"
#include "tidepool/op.h"

namespace tidepool::nn {

// Relative to the sum of magnitudes of the terms: what a target without fused multiply-add, or another exp, may differ
// by.
inline constexpr float kSumTolerance = 2e-6f;
inline constexpr float kSiluTolerance = 5e-7f;

// Bits that no result of a test has; what must not be written is filled with it.
inline constexpr uint32_t kPoisonBits = 0xffdeadbe;
inline float poison() { return std::bit_cast<float>(kPoisonBits); }
inline bool is_poison(float v) { return std::bit_cast<uint32_t>(v) == kPoisonBits; }

inline bool same_bits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// Targets whose multiply-add rounds once, as ref does.
inline bool is_fused(const std::string& target) { return target != "sse4" && target != "ssse3"; }

// Calls test(target) on every SIMD target of the machine, forced in turn.
inline void for_each_target(const std::function<void(const std::string&)>& test) {
  for (const std::string& target : simd_targets()) {
    SCOPED_TRACE("SIMD target " + target);
    force_simd_target(target);
    test(target);
  }
  force_simd_target("");
}

enum class Order { kForward, kReverse, kShuffled };

template <typename Params>
void run_op(const device::OpType& type, const Params& params, Order order = Order::kForward, uint32_t seed = 1) {
  ASSERT_EQ(type.params_bytes, static_cast<int32_t>(sizeof(Params)));
  std::vector<int32_t> pieces(static_cast<size_t>(type.num_pieces(&params)));
  std::iota(pieces.begin(), pieces.end(), 0);
  if (order == Order::kReverse) std::reverse(pieces.begin(), pieces.end());
  if (order == Order::kShuffled) std::shuffle(pieces.begin(), pieces.end(), std::mt19937(seed));
  for (int32_t piece : pieces) type.run(&params, piece, static_cast<int32_t>(pieces.size()));
}

inline std::vector<float> random_floats(size_t count, uint32_t seed, float low = -1, float high = 1) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> values(count);
  for (float& v : values) v = uniform(engine);
  return values;
}

// A packed matrix that owns its memory. Values are random, or given row-major.
class Matrix {
 public:
  Matrix(DType type, int32_t n, int32_t k, uint32_t seed) : Matrix(type, n, k, random_source(type, n, k, seed)) {
    if (type != DType::kF8E4M3) return;
    scale_ = random_floats(scale_.size(), seed + 1, 0.001f, 0.3f);
    no_nan_ = seed % 2;
  }
  // source: [n, k] of type.
  Matrix(DType type, int32_t n, int32_t k, const std::vector<std::byte>& source)
      : memory_(packed_bytes(type, n, k) + 64), scale_(blocks(n) * blocks(k), 1.0f), type_(type), n_(n), k_(k) {
    for (int32_t panel = 0; panel < view().num_panels(); ++panel) {
      pack_panel(source.data(), type, k, 1, n, k, panel, type,
                 data() + static_cast<size_t>(panel) * view().panel_bytes());
    }
  }
  static Matrix of_floats(int32_t n, int32_t k, const std::vector<float>& values) {
    std::vector<std::byte> source(values.size() * sizeof(float));
    std::memcpy(source.data(), values.data(), source.size());
    return Matrix(DType::kF32, n, k, source);
  }
  PackedMatrix view() const {
    return {
        const_cast<Matrix*>(this)->data(), type_, n_, k_, type_ == DType::kF8E4M3 ? scale_.data() : nullptr, no_nan_};
  }
  std::vector<float>& scale() { return scale_; }

 private:
  static size_t blocks(int32_t n) { return static_cast<size_t>((n + kScaleBlock - 1) / kScaleBlock); }
  std::byte* data() {
    void* at = memory_.data();
    size_t space = memory_.size();
    return static_cast<std::byte*>(std::align(64, memory_.size() - 64, at, space));
  }
  static std::vector<std::byte> random_source(DType type, int32_t n, int32_t k, uint32_t seed) {
    const size_t count = static_cast<size_t>(n) * static_cast<size_t>(k);
    std::vector<std::byte> source(count * dtype_bytes(type));
    std::mt19937 engine(seed);
    const std::vector<float> values = random_floats(count, seed);
    for (size_t i = 0; i < count; ++i) {
      const uint16_t bits = f32_to_bf16(values[i]);
      if (type == DType::kF32) std::memcpy(source.data() + 4 * i, &values[i], 4);
      if (type == DType::kBF16) std::memcpy(source.data() + 2 * i, &bits, 2);
      if (type == DType::kF8E4M3) source[i] = static_cast<std::byte>(engine() % 127 + engine() % 2 * 128);  // no NaN
    }
    return source;
  }

  std::vector<std::byte> memory_;
  std::vector<float> scale_;
  DType type_;
  int32_t n_, k_, no_nan_ = 0;
};

// The declared ranges, merged for a question of membership.
inline bool declared(const device::AccessList& list, const void* at, size_t bytes, bool write) {
  const uint64_t begin = reinterpret_cast<uint64_t>(at);
  return std::any_of(list.ranges().begin(), list.ranges().end(), [&](const device::Access& access) {
    return access.space == 0 && access.write == write && access.begin <= begin && begin + bytes <= access.end;
  });
}

}  // namespace tidepool::nn
