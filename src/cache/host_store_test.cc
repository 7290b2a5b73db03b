#include "cache/host_store.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "test_store.h"

namespace tidepool::cache {
namespace {

using tidepool::testing::Layout;
using tidepool::testing::read_row;
using tidepool::testing::RowMemory;
using tidepool::testing::write_row;

constexpr int32_t kLayers[] = {3, 1, 4};  // of each group

HostStoreOptions options() { return {{kLayers[0], kLayers[1], kLayers[2]}, {DType::kBF16, 8, 4}, 5, 32}; }

std::vector<std::byte> row_of(int32_t group, int32_t layer, int32_t record) {
  std::vector<std::byte> bytes(24);
  uint64_t state = static_cast<uint64_t>(group * 10 + layer) * 1000 + static_cast<uint64_t>(record);
  for (std::byte& byte : bytes) {
    state = (state + 1) * 0x9E3779B97F4A7C15u;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

TEST(MemoryHostStore, every_row_of_every_layer_comes_back_into_either_layout) {
  MemoryHostStore store(options());
  for (Layout layout : {Layout::kInterleaved, Layout::kSeparate}) {
    RowMemory memory(200, 1, options().format, layout);
    const RowPlanes rows = memory.planes(0);
    device::Event done;
    int32_t status = 0;
    std::vector<ops::RowCopy> copies;
    for (int32_t record = 0; record < 5 * 32; ++record) copies.push_back({record, 199 - record});
    const auto each_layer = [&](auto visit) {
      for (int32_t group = 0; group < 3; ++group) {
        for (int32_t layer = 0; layer < kLayers[group]; ++layer) visit(group, layer);
      }
    };
    each_layer([&](int32_t group, int32_t layer) {
      for (const auto& copy : copies) write_row(rows, copy.row, row_of(group, layer, copy.record));
      done.start(1);
      store.store({group, layer, copies.data(), 160, rows, &status}, done);
    });
    each_layer([&](int32_t group, int32_t layer) {
      std::fill(memory.bytes().begin(), memory.bytes().end(), std::byte{0});
      done.start(1);
      store.fetch({group, layer, copies.data(), 160, rows, &status}, done);
      for (const auto& copy : copies) {
        ASSERT_EQ(read_row(rows, copy.row), row_of(group, layer, copy.record))
            << group << " " << layer << " " << copy.record;
      }
      EXPECT_EQ(read_row(rows, 0), std::vector<std::byte>(24)) << "a row that nobody asked for";
    });
    EXPECT_EQ(done.completed(), 16u);
    EXPECT_EQ(status, 0);
  }
}

TEST(MemoryHostStore, an_empty_transfer_finishes_its_piece) {
  MemoryHostStore store(options());
  device::Event done;
  done.start(2);
  store.fetch({}, done);
  store.store({}, done);
  EXPECT_EQ(done.completed(), 1u);
}

TEST(MemoryHostStore, every_layer_has_a_name_of_its_own_for_the_order_checker) {
  MemoryHostStore store(options());
  std::set<uint64_t> names;
  for (int32_t group = 0; group < 3; ++group) {
    for (int32_t layer = 0; layer < kLayers[group]; ++layer) names.insert(store.resource(group, layer));
  }
  EXPECT_EQ(names.size(), 8u);
  EXPECT_EQ(names.count(0), 0u) << "0 means memory";
}

TEST(MemoryHostStore, a_block_holds_the_padded_records_of_all_groups) {
  EXPECT_EQ(host_block_bytes(options()), 32 * (128 + 64 + 128));
}

}  // namespace
}  // namespace tidepool::cache
