#include "nn/cpu/moe_rows.h"

#include <cstring>

#include "nn/packed_matrix.h"

#include "nn/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/cpu/moe_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tidepool::nn::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using I32 = hn::RebindToSigned<F32>;
using VF = hn::Vec<F32>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));

// 2^n for n in [-76, 76].
HWY_INLINE VF power_of_two(hn::Vec<I32> n) {
  return hn::BitCast(F32(), hn::ShiftLeft<23>(hn::Add(n, hn::Set(I32(), 127))));
}

// e^t: t = n ln 2 + r, |r| <= 0.35, Taylor to r^7 (5e-9). ln 2 in two parts, the first with so few bits that n times it
// is exact. 2^n in two factors, so that the result overflows to infinity and underflows gradually.
HWY_INLINE VF exp_of(VF t) {
  const F32 d;
  t = hn::Min(hn::Max(t, hn::Set(d, -104.0f)), hn::Set(d, 89.0f));
  const auto n = hn::NearestInt(hn::Mul(t, hn::Set(d, 1.44269504f)));
  const VF nf = hn::ConvertTo(d, n);
  VF r = hn::NegMulAdd(nf, hn::Set(d, 0.693359375f), t);
  r = hn::NegMulAdd(nf, hn::Set(d, -2.12194440e-4f), r);
  VF sum = hn::Set(d, 1.0f / 5040);
  sum = hn::MulAdd(sum, r, hn::Set(d, 1.0f / 720));
  sum = hn::MulAdd(sum, r, hn::Set(d, 1.0f / 120));
  sum = hn::MulAdd(sum, r, hn::Set(d, 1.0f / 24));
  sum = hn::MulAdd(sum, r, hn::Set(d, 1.0f / 6));
  sum = hn::MulAdd(sum, r, hn::Set(d, 0.5f));
  sum = hn::MulAdd(sum, r, hn::Set(d, 1.0f));
  sum = hn::MulAdd(sum, r, hn::Set(d, 1.0f));
  const auto half = hn::ShiftRight<1>(n);
  return hn::Mul(hn::Mul(sum, power_of_two(half)), power_of_two(hn::Sub(n, half)));
}

void silu_panel(const float* gate, const float* up, float* out) {
  const F32 d;
  for (int i = 0; i < kPanelRows; i += kLanes) {
    const VF v = hn::LoadU(d, gate + i);
    const VF silu = hn::Div(v, hn::Add(hn::Set(d, 1.0f), exp_of(hn::Neg(v))));
    hn::StoreU(hn::Mul(silu, hn::LoadU(d, up + i)), d, out + i);
  }
}

HWY_INLINE VF weighted_sum(const float* weight, int32_t num_outs, const float* out, int64_t out_stride,
                           const float* shared, VF x) {
  const F32 d;
  VF sum = hn::Zero(d);
  for (int32_t j = 0; j < num_outs; ++j) {
    sum = hn::MulAdd(hn::Set(d, weight[j]), hn::LoadU(d, out + j * out_stride), sum);
  }
  if (shared != nullptr) sum = hn::Add(sum, hn::LoadU(d, shared));
  return hn::Add(x, sum);
}

void add_weighted_target(const float* weight, int32_t num_outs, const float* out, int64_t out_stride,
                         const float* shared, float* x, int32_t count) {
  const F32 d;
  int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const float* shared_i = shared == nullptr ? nullptr : shared + i;
    hn::StoreU(weighted_sum(weight, num_outs, out + i, out_stride, shared_i, hn::LoadU(d, x + i)), d, x + i);
  }
  if (i == count) return;
  const size_t bytes = static_cast<size_t>(count - i) * sizeof(float);  // the rest, in a vector of its own
  float part[kLanes] = {}, x_part[kLanes] = {};
  std::memcpy(x_part, x + i, bytes);
  VF sum = hn::Zero(d);
  for (int32_t j = 0; j < num_outs; ++j) {
    std::memcpy(part, out + j * out_stride + i, bytes);
    sum = hn::MulAdd(hn::Set(d, weight[j]), hn::LoadU(d, part), sum);
  }
  if (shared != nullptr) {
    std::memcpy(part, shared + i, bytes);
    sum = hn::Add(sum, hn::LoadU(d, part));
  }
  hn::StoreU(hn::Add(hn::LoadU(d, x_part), sum), d, x_part);
  std::memcpy(x + i, x_part, bytes);
}

}  // namespace HWY_NAMESPACE
}  // namespace tidepool::nn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidepool::nn::cpu {

HWY_EXPORT(silu_panel);
HWY_EXPORT(add_weighted_target);

void silu_product(const float* gate, const float* up, float* out, int32_t count) {
  if (count == kPanelRows) return HWY_DYNAMIC_DISPATCH(silu_panel)(gate, up, out);
  float panel[kPanelRows];
  HWY_DYNAMIC_DISPATCH(silu_panel)(gate, up, panel);
  std::memcpy(out, panel, static_cast<size_t>(count) * sizeof(float));
}

void add_weighted(const float* weight, int32_t num_outs, const float* out, int64_t out_stride, const float* shared,
                  float* x, int32_t count) {
  HWY_DYNAMIC_DISPATCH(add_weighted_target)(weight, num_outs, out, out_stride, shared, x, count);
}

}  // namespace tidepool::nn::cpu
#endif
