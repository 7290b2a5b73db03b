#include <cstring>

#include "nn/norm_rope_ops.h"

#include "nn/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/cpu/norm_rope.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tidepool::nn::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// lanes[j] = sum of squares of x[j], x[j + kNormLanes], ...
void sum_squares(const float* HWY_RESTRICT x, int32_t width, float* HWY_RESTRICT lanes) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  constexpr int kVectors = kNormLanes / kLanes;
  V acc[kVectors];
  for (int v = 0; v < kVectors; ++v) acc[v] = hn::Zero(d);
  const int32_t whole = width - width % kNormLanes;
  for (int32_t i = 0; i < whole; i += kNormLanes) {
    for (int v = 0; v < kVectors; ++v) {
      const V value = hn::LoadU(d, x + i + v * kLanes);
      acc[v] = hn::MulAdd(value, value, acc[v]);
    }
  }
  if (whole < width) {  // zeros change no sum
    float tail[kNormLanes] = {};
    std::memcpy(tail, x + whole, static_cast<size_t>(width - whole) * sizeof(float));
    for (int v = 0; v < kVectors; ++v) {
      const V value = hn::LoadU(d, tail + v * kLanes);
      acc[v] = hn::MulAdd(value, value, acc[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) hn::StoreU(acc[v], d, lanes + v * kLanes);
}

}  // namespace HWY_NAMESPACE
}  // namespace tidepool::nn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidepool::nn::cpu {

HWY_EXPORT(sum_squares);

float rms_scale(const float* x, int32_t width, float eps) {
  float lanes[kNormLanes];
  HWY_DYNAMIC_DISPATCH(sum_squares)(x, width, lanes);
  return finish_rms_scale(lanes, width, eps);
}

void rms_norm_run(const RmsNormParams& p, int32_t piece, int32_t) { rms_norm_row(p, piece, rms_scale); }
void write_row_run(const WriteRowParams& p, int32_t piece, int32_t) { write_row_row(p, piece, rms_scale); }

}  // namespace tidepool::nn::cpu
#endif
