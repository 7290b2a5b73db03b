#include "cache/geometry.h"

#include <gtest/gtest.h>

#include "cache/block_pool.h"
#include "tidepool/error.h"

namespace tidepool::cache {
namespace {

std::string refusal(int32_t pool_size, int32_t num_ways) {
  try {
    PoolGeometry::make(pool_size, num_ways);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PoolGeometry, every_power_of_two_of_sets_down_to_one_is_possible) {
  for (int32_t ways : {1, 3, 16, 64}) {
    for (int32_t sets = 1; sets <= 4096; sets *= 2) {
      const PoolGeometry pool = PoolGeometry::make(sets * ways, ways);
      EXPECT_EQ(pool.num_sets, sets);
      EXPECT_EQ(pool.num_ways, ways);
      EXPECT_EQ(pool.pool_size, sets * ways);
    }
  }
}

TEST(PoolGeometry, what_is_impossible_is_refused_naming_the_value_and_the_rule) {
  EXPECT_NE(refusal(8200, 16).find("multiple of --num-ways"), std::string::npos);
  EXPECT_NE(refusal(48, 16).find("3 sets"), std::string::npos);
  EXPECT_NE(refusal(48, 16).find("power of two"), std::string::npos);
  EXPECT_NE(refusal(0, 16).find("--pool-size is 0"), std::string::npos);
  EXPECT_NE(refusal(-16, 16).find("--pool-size is -16"), std::string::npos);
  EXPECT_NE(refusal(16, 0).find("--num-ways is 0"), std::string::npos);
}

// (layers, bytes of a row): one layer and four, bfloat16 and float32 rows of the published models, and odd ones.
constexpr std::pair<int32_t, int32_t> kShapes[] = {{1, 1152}, {4, 1152}, {1, 2304}, {4, 2304},
                                                   {3, 1152}, {1, 24},   {5, 40},   {7, 600}};

void expect_records_apart(const RecordLayout& layout, int64_t unit) {
  EXPECT_EQ(layout.unit_bytes % unit, 0);
  for (int64_t record = 0; record < 200; ++record) {
    const int64_t begin = layout.offset(record), end = begin + layout.record_bytes;
    EXPECT_LE(end, layout.offset(record + 1)) << record;
    EXPECT_LE(end, layout.bytes(record + 1)) << record;
    EXPECT_EQ(begin / layout.unit_bytes, (end - 1) / layout.unit_bytes) << "record " << record << " straddles a unit";
  }
}

TEST(RecordLayout, records_in_memory_are_whole_cache_lines) {
  for (const auto& [layers, row_bytes] : kShapes) {
    const RecordLayout layout = RecordLayout::in_memory(layers, row_bytes);
    EXPECT_EQ(layout.record_bytes, int64_t{layers} * row_bytes);
    expect_records_apart(layout, 64);
    for (int64_t record : {1, 2, 77}) EXPECT_EQ(layout.offset(record) % 64, 0);
    EXPECT_LT(layout.unit_bytes - layout.record_bytes, 64);
  }
  EXPECT_EQ(RecordLayout::in_memory(1, 1152).bytes(128), 128 * 1152) << "one-layer records stay dense";
}

TEST(RecordLayout, records_in_a_file_are_sectors_or_share_a_unit_without_straddling) {
  for (const auto& [layers, row_bytes] : kShapes) {
    const RecordLayout layout = RecordLayout::in_file(layers, row_bytes);
    expect_records_apart(layout, layout.record_bytes <= 2048 ? 4096 : 512);
  }
  EXPECT_EQ(RecordLayout::in_file(1, 1152).records_per_unit, 3);
  EXPECT_EQ(RecordLayout::in_file(4, 1152).bytes(10), 10 * 4608);
  EXPECT_EQ(RecordLayout::in_file(1, 1152).bytes(10), 4 * 4096);
}

TEST(LayerPlaces, name_group_index_owner_and_last) {
  const auto places = layer_places({{0}, {1, 2, 3}, {4, 5}}, 6);
  ASSERT_EQ(places.size(), 6u);
  EXPECT_TRUE(places[0].is_owner && places[0].is_last);
  for (int32_t i = 0; i < 3; ++i) {
    const LayerPlace& place = places[static_cast<size_t>(1 + i)];
    EXPECT_EQ(place.group, 1);
    EXPECT_EQ(place.index, i);
    EXPECT_EQ(place.is_owner, i == 0);
    EXPECT_EQ(place.is_last, i == 2);
  }
  EXPECT_EQ(places[5].group, 2);
  EXPECT_TRUE(places[5].is_last);
}

TEST(BlockPool, every_block_has_one_owner_at_a_time) {
  BlockPool pool(8);
  std::vector<int32_t> a(5), b(3);
  pool.take(5, a.data());
  pool.take(3, b.data());
  EXPECT_EQ(pool.num_free(), 0);
  std::vector<bool> taken(8);
  for (const auto* list : {&a, &b}) {
    for (int32_t block : *list) {
      ASSERT_TRUE(block >= 0 && block < 8);
      EXPECT_FALSE(taken[static_cast<size_t>(block)]);
      taken[static_cast<size_t>(block)] = true;
    }
  }
  pool.give_back(3, b.data());
  EXPECT_EQ(pool.num_free(), 3);
  std::vector<int32_t> again(3);
  pool.take(3, again.data());
  EXPECT_TRUE(std::is_permutation(again.begin(), again.end(), b.begin()));
}

TEST(BlockPoolDeathTest, broken_ownership_ends_the_program) {
  BlockPool pool(4);
  std::vector<int32_t> blocks(2);
  pool.take(2, blocks.data());
  EXPECT_DEATH(pool.take(3, blocks.data()), "");
  pool.give_back(1, blocks.data());
  EXPECT_DEATH(pool.give_back(1, blocks.data()), "");
}

TEST(PoolGeometry, no_pool_is_larger_than_what_was_published_or_a_whole_request) {
  EXPECT_EQ(PoolGeometry::most_rows(16, 1), 16384);
  EXPECT_EQ(PoolGeometry::most_rows(16, 16384), 16384);
  EXPECT_EQ(PoolGeometry::most_rows(16, 16385), 32768);
  EXPECT_EQ(PoolGeometry::most_rows(24, 65536), 24 * 4096);
}

}  // namespace
}  // namespace tidepool::cache
