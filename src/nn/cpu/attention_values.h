// Chunks of cache rows as vectors: how each row format is widened. Included once per SIMD target.
//
// A row is walked in chunks of two vectors. bf16 pairs are widened in place: of each 32-bit word the low half becomes a
// lane of the first vector, the high half a lane of the second, one instruction each. Queries are packed to that order
// ("chunk order") once per piece; sums stay in it until they are written.
#if defined(TIDEPOOL_NN_CPU_ATTENTION_VALUES_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIDEPOOL_NN_CPU_ATTENTION_VALUES_H_
#undef TIDEPOOL_NN_CPU_ATTENTION_VALUES_H_
#else
#define TIDEPOOL_NN_CPU_ATTENTION_VALUES_H_
#endif

#include <cstring>

#include "hwy/highway.h"

#include "nn/attention_walk.h"
#include "nn/row_codes.h"

HWY_BEFORE_NAMESPACE();
namespace tidepool::nn {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using U = hn::Repartition<uint32_t, D>;
using V = hn::Vec<D>;
constexpr int32_t kLanes = HWY_LANES(float);
constexpr int32_t kChunk = 2 * kLanes;

constexpr int32_t round_to_chunk(int32_t values) { return (values + kChunk - 1) / kChunk * kChunk; }

struct Bf16Values {
  static constexpr int32_t kBytes = 2;
  static constexpr bool kCoded = false;
  HWY_INLINE static void load(const std::byte* at, V& v0, V& v1) {
    const auto words = hn::LoadU(U(), reinterpret_cast<const uint32_t*>(at));
    v0 = hn::BitCast(D(), hn::ShiftLeft<16>(words));
    v1 = hn::BitCast(D(), hn::And(words, hn::Set(U(), 0xffff0000u)));
  }
  HWY_INLINE static void to_chunk(const float* natural, V& v0, V& v1) { hn::LoadInterleaved2(D(), natural, v0, v1); }
  HWY_INLINE static void to_natural(V v0, V v1, float* natural) { hn::StoreInterleaved2(v0, v1, D(), natural); }
};

struct F32Values {
  static constexpr int32_t kBytes = 4;
  static constexpr bool kCoded = false;
  HWY_INLINE static void load(const std::byte* at, V& v0, V& v1) {
    to_chunk(reinterpret_cast<const float*>(at), v0, v1);
  }
  HWY_INLINE static void to_chunk(const float* natural, V& v0, V& v1) {
    v0 = hn::LoadU(D(), natural);
    v1 = hn::LoadU(D(), natural + kLanes);
  }
  HWY_INLINE static void to_natural(V v0, V v1, float* natural) {
    hn::StoreU(v0, D(), natural);
    hn::StoreU(v1, D(), natural + kLanes);
  }
};

// Codes of one byte, without their scale.
HWY_INLINE hn::VFromD<hn::RebindToSigned<D>> load_bytes(const std::byte* at) {
  const hn::Rebind<int8_t, D> bytes;
  return hn::PromoteTo(hn::RebindToSigned<D>(), hn::LoadU(bytes, reinterpret_cast<const int8_t*>(at)));
}
struct I8Codes {
  HWY_INLINE static V load(const std::byte* at) { return hn::ConvertTo(D(), load_bytes(at)); }
};
// The seven value bits shifted into an fp32 pattern whose exponent is 120 too small, as in dtype.h; NaN codes are never
// stored. 2^120 is not multiplied into the scale: the product could overflow.
struct F8Codes {
  HWY_INLINE static V load(const std::byte* at) {
    const hn::RebindToSigned<D> words;
    const auto bits = hn::And(hn::ShiftLeft<20>(load_bytes(at)), hn::Set(words, static_cast<int32_t>(0x87f00000u)));
    return hn::Mul(hn::BitCast(D(), bits), hn::Set(D(), 0x1p120f));
  }
};

// Latent values as codes, the scales of a row behind its codes. Chunks are in natural order.
template <class Codes>
struct CodedValues {
  static constexpr int32_t kBytes = 1;
  static constexpr bool kCoded = true;
  HWY_INLINE static void load(const std::byte* at, V scale, V& v0, V& v1) {
    v0 = hn::Mul(Codes::load(at), scale);
    v1 = hn::Mul(Codes::load(at + kLanes), scale);
  }
  HWY_INLINE static void to_chunk(const float* natural, V& v0, V& v1) { F32Values::to_chunk(natural, v0, v1); }
  HWY_INLINE static void to_natural(V v0, V v1, float* natural) { F32Values::to_natural(v0, v1, natural); }
};
static_assert(RowFormat::kScaleValues % kChunk == 0, "a chunk has one scale");

// Values that are fp32 already, in chunk order, aligned.
struct WideValues {
  static constexpr int32_t kBytes = 4;
  static constexpr bool kCoded = false;
  HWY_INLINE static void load(const std::byte* at, V& v0, V& v1) {
    v0 = hn::Load(D(), reinterpret_cast<const float*>(at));
    v1 = hn::Load(D(), reinterpret_cast<const float*>(at) + kLanes);
  }
};

struct Bf16Row {
  using Latent = Bf16Values;
  using Rope = Bf16Values;
};
struct F32Row {
  using Latent = F32Values;
  using Rope = F32Values;
};
struct I8Row {
  using Latent = CodedValues<I8Codes>;
  using Rope = Bf16Values;
};
struct F8Row {
  using Latent = CodedValues<F8Codes>;
  using Rope = Bf16Values;
};

// The scale of value i of a coded plane.
HWY_INLINE const std::byte* scale_of(const std::byte* plane, int32_t values, int32_t i) {
  return plane + values + i / RowFormat::kScaleValues * static_cast<int32_t>(sizeof(float));
}

// The chunk at value i of a plane of `values` values; lanes past them are zero (NaN where their scale is).
template <typename Values, bool kTail>
HWY_INLINE void load_chunk(const std::byte* plane, int32_t values, int32_t i, V& v0, V& v1) {
  const std::byte* at = plane + static_cast<ptrdiff_t>(i) * Values::kBytes;
  HWY_ALIGN std::byte padded[kChunk * sizeof(float)];
  if constexpr (kTail) {
    std::memset(padded, 0, sizeof(padded));
    std::memcpy(padded, at, static_cast<size_t>((values - i) * Values::kBytes));
    at = padded;
  }
  if constexpr (Values::kCoded) {
    Values::load(at, hn::Set(D(), load_unaligned<float>(scale_of(plane, values, i), 0)), v0, v1);
  } else {
    Values::load(at, v0, v1);
  }
}

// A plane as fp32 in chunk order, filled up to whole chunks.
template <typename Values>
HWY_INLINE void widen_plane(const std::byte* plane, int32_t values, float* to) {
  V v0, v1;
  int32_t i = 0;
  for (; i + kChunk <= values; i += kChunk) {
    load_chunk<Values, false>(plane, values, i, v0, v1);
    hn::Store(v0, D(), to + i);
    hn::Store(v1, D(), to + i + kLanes);
  }
  if (i == values) return;
  load_chunk<Values, true>(plane, values, i, v0, v1);
  hn::Store(v0, D(), to + i);
  hn::Store(v1, D(), to + i + kLanes);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tidepool::nn
HWY_AFTER_NAMESPACE();

#endif  // per target
