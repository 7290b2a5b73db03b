#include "nn/machine_probe.h"

#include "nn/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/cpu/machine_probe.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tidepool::nn::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

uint64_t multiply_adds(uint64_t rounds) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kSums = 12;  // latency 4 or 5, two units
  V sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = hn::Zero(d);
  V a = hn::Set(d, 0.5f), b = hn::Set(d, 1.0f);
  for (uint64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < kSums; ++i) sums[i] = hn::MulAdd(sums[i], a, b);
  }
  V total = hn::Zero(d);
  for (int i = 0; i < kSums; ++i) total = hn::Add(total, sums[i]);
  volatile float sink = hn::GetLane(total);
  static_cast<void>(sink);
  return rounds * kSums * hn::MaxLanes(d);
}

uint64_t read_all(const std::byte* data, size_t bytes) {
  const hn::ScalableTag<uint32_t> d;
  constexpr size_t kLanes = hn::MaxLanes(d);
  const uint32_t* words = reinterpret_cast<const uint32_t*>(data);
  const size_t count = bytes / sizeof(uint32_t);
  auto a = hn::Zero(d), b = hn::Zero(d);
  for (size_t i = 0; i + 2 * kLanes <= count; i += 2 * kLanes) {
    __builtin_prefetch(words + i + 768);  // 3 KiB, as the products do: the floor is the best that one knows
    a = hn::Add(a, hn::LoadU(d, words + i));
    b = hn::Add(b, hn::LoadU(d, words + i + kLanes));
  }
  // Added lane by lane: some targets reduce unsigned lanes by signed additions, which overflow.
  uint32_t lanes[kLanes];
  hn::StoreU(hn::Add(a, b), d, lanes);
  uint64_t sum = 0;
  for (const uint32_t lane : lanes) sum += lane;
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace tidepool::nn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidepool::nn {
namespace cpu {
HWY_EXPORT(multiply_adds);
HWY_EXPORT(read_all);
uint64_t run_multiply_adds(uint64_t rounds) { return HWY_DYNAMIC_DISPATCH(multiply_adds)(rounds); }
uint64_t run_read_all(const std::byte* data, size_t bytes) { return HWY_DYNAMIC_DISPATCH(read_all)(data, bytes); }
}  // namespace cpu

uint64_t probe_multiply_adds(uint64_t rounds) { return cpu::run_multiply_adds(rounds); }
uint64_t probe_read(const std::byte* data, size_t bytes) { return cpu::run_read_all(data, bytes); }

}  // namespace tidepool::nn
#endif
