#include "cache/geometry.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace tidepool::cache {

int64_t PoolGeometry::most_rows(int32_t num_ways, int32_t max_model_len) {
  constexpr int64_t kPublishedRows = 16384;
  const auto sets = std::bit_ceil(static_cast<uint64_t>(ceil_div(max_model_len, num_ways)));
  return std::max(kPublishedRows, static_cast<int64_t>(sets) * num_ways);
}

PoolGeometry PoolGeometry::make(int32_t pool_size, int32_t num_ways) {
  tidepool_check(num_ways > 0, "--num-ways is {}, must be at least 1", num_ways);
  tidepool_check(pool_size > 0, "--pool-size is {} rows, must be at least one set of {} rows", pool_size, num_ways);
  tidepool_check(pool_size % num_ways == 0, "--pool-size is {} rows, must be a multiple of --num-ways ({})", pool_size,
                 num_ways);
  const int32_t sets = pool_size / num_ways;
  tidepool_check(std::has_single_bit(static_cast<uint32_t>(sets)),
                 "--pool-size {} over {} ways makes {} sets, must be a power of two", pool_size, num_ways, sets);
  return {pool_size, num_ways, sets};
}

RecordLayout RecordLayout::in_memory(int32_t num_layers, int32_t row_bytes) {
  const int64_t payload = static_cast<int64_t>(num_layers) * row_bytes;
  const int64_t stride = round_up(payload, 64);
  return {payload, stride, 1, stride};
}

RecordLayout RecordLayout::in_file(int32_t num_layers, int32_t row_bytes) {
  constexpr int64_t kUnit = 4096, kSector = 512;
  const int64_t payload = static_cast<int64_t>(num_layers) * row_bytes;
  if (payload <= kUnit / 2) return {payload, kUnit, static_cast<int32_t>(kUnit / payload), payload};
  const int64_t stride = round_up(payload, kSector);
  return {payload, stride, 1, stride};
}

std::vector<LayerPlace> layer_places(const std::vector<std::vector<int32_t>>& groups, int32_t num_layers) {
  std::vector<LayerPlace> places(static_cast<size_t>(num_layers));
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t i = 0; i < groups[g].size(); ++i) {
      places.at(static_cast<size_t>(groups[g][i])) = {static_cast<int32_t>(g), static_cast<int32_t>(i), i == 0,
                                                      i + 1 == groups[g].size()};
    }
  }
  return places;
}

}  // namespace tidepool::cache
