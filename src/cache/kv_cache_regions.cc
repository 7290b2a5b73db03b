// What the operations of a step touch, by name, for who turns a recorded step into another one.
#include <fmt/format.h>

#include "cache/kv_cache.h"

namespace tidepool::cache {
namespace {

template <typename T>
device::Region memory(std::string name, const T* begin, size_t count) {
  const auto address = reinterpret_cast<uint64_t>(begin);
  return {std::move(name), 0, address, address + count * sizeof(T)};
}

device::Region ring(std::string name, const RowPlane& plane, int64_t rows) {
  device::Region region =
      memory(std::move(name), plane.row(0), static_cast<size_t>((rows - 1) * plane.stride + plane.bytes));
  region.host_ordered = true;
  return region;
}

}  // namespace

std::vector<device::Region> KvCache::regions() const {
  std::vector<device::Region> all;
  if (!options_.offload()) return all;
  all.push_back(memory("spill turn", main_track_.turn(), 1));
  all.push_back(memory("spill turn of the MTP layer", mtp_track_.turn(), 1));
  for (size_t g = 0; g < groups_.size(); ++g) {
    all.push_back(memory(fmt::format("plan counts of group {}", g), groups_[g].plan_counts.data(),
                         groups_[g].plan_counts.size()));
    all.push_back(memory(fmt::format("install counts of group {}", g), groups_[g].install_counts.data(),
                         groups_[g].install_counts.size()));
  }
  const int64_t window_rows = static_cast<int64_t>(options_.max_cache_slots) * options_.window_rows;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    all.push_back(memory(fmt::format("fetch counts of layer {}", i), layer.fetched.data(), layer.fetched.size()));
    all.push_back(
        memory(fmt::format("spill lists of layer {}", i), layer.spill_copies.data(), layer.spill_copies.size()));
    all.push_back(ring(fmt::format("window of layer {}", i), layer.window.latent, window_rows));
    const int64_t records = static_cast<int64_t>(host_blocks_->num_blocks()) * options_.block_size;
    all.push_back({fmt::format("host rows of layer {}", i), store_->resource(layer.place.group, layer.place.index), 0,
                   static_cast<uint64_t>(records), true});
  }
  return all;
}

}  // namespace tidepool::cache
