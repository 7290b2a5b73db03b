#include "model/finite.h"

#include <algorithm>
#include <cstring>

namespace tidepool::model {
namespace {

// A value is not finite when all bits of `mask` are set: the exponent, for e4m3fn (which has no infinity) all but sign.
template <typename Bits, Bits kMask>
int64_t find(const std::byte* data, uint64_t num_values) {
  constexpr uint64_t kBlock = 2048;
  for (uint64_t begin = 0; begin < num_values; begin += kBlock) {
    const uint64_t count = std::min(kBlock, num_values - begin);
    const std::byte* block = data + begin * sizeof(Bits);
    Bits hit = 0;  // no branch inside, so that the loop becomes vector compares
    for (uint64_t i = 0; i < count; ++i) {
      Bits bits;
      std::memcpy(&bits, block + i * sizeof(Bits), sizeof(bits));
      hit = static_cast<Bits>(hit | ((bits & kMask) == kMask ? Bits{1} : Bits{0}));
    }
    if (hit == 0) continue;
    for (uint64_t i = 0; i < count; ++i) {
      Bits bits;
      std::memcpy(&bits, block + i * sizeof(Bits), sizeof(bits));
      if ((bits & kMask) == kMask) return static_cast<int64_t>(begin + i);
    }
  }
  return -1;
}

}  // namespace

int64_t first_non_finite(const std::byte* data, DType type, uint64_t num_values) {
  switch (type) {
    case DType::kF32:
      return find<uint32_t, 0x7f800000u>(data, num_values);
    case DType::kBF16:
      return find<uint16_t, 0x7f80u>(data, num_values);
    case DType::kF16:
      return find<uint16_t, 0x7c00u>(data, num_values);
    case DType::kF8E4M3:
      return find<uint8_t, 0x7fu>(data, num_values);
    default:
      return -1;
  }
}

}  // namespace tidepool::model
