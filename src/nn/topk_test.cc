#include <cmath>
#include <functional>
#include <limits>

#include "nn/indexer.h"
#include "nn/test_pieces.h"

namespace tidepool::nn {
namespace {

using namespace pieces;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Rows of scores of different lengths, selected in one launch.
struct World {
  int32_t range[2];
  std::vector<int32_t> position, indices, selected;
  std::vector<float> scores;
  TopkParams params;

  World(const std::vector<std::vector<float>>& rows, int32_t topk, int32_t begin = 0) {
    const int32_t count = static_cast<int32_t>(rows.size());
    range[0] = begin;
    range[1] = begin + count;
    size_t stride = 0;
    for (const auto& row : rows) stride = std::max(stride, row.size());
    stride = (stride + kKeyTile - 1) / kKeyTile * kKeyTile;
    scores.assign(stride * rows.size(), kInf);  // what lies behind a row must not be looked at
    position.assign(static_cast<size_t>(begin), -7);
    for (size_t m = 0; m < rows.size(); ++m) {
      std::copy(rows[m].begin(), rows[m].end(), scores.begin() + static_cast<int64_t>(m * stride));
      position.push_back(static_cast<int32_t>(rows[m].size()) - 1);
    }
    indices.assign(static_cast<size_t>((begin + count + 1) * topk), -99);
    selected.assign(static_cast<size_t>(begin + count + 1), -99);
    params.rows = {range, begin + count + 1};
    params.topk = topk;
    params.table.position = position.data();
    params.scores = scores.data();
    params.score_stride = static_cast<int64_t>(stride);
    params.topk_indices = indices.data();
    params.num_selected = selected.data();
  }
};

void expect_equal_to_reference(const std::vector<std::vector<float>>& rows, int32_t topk_size, int32_t begin = 0) {
  on_each_target([&](const std::string&) {
    World cpu(rows, topk_size, begin), ref(rows, topk_size, begin);
    run_pieces(topk(Backend::kCpu), cpu.params);
    run_pieces(topk(Backend::kRef), ref.params, 2);
    ASSERT_EQ(cpu.selected, ref.selected);
    ASSERT_EQ(cpu.indices, ref.indices);
    ASSERT_EQ(bits_of(cpu.scores), bits_of(ref.scores));
  });
}

std::vector<float> made(size_t n, const std::function<float(size_t)>& value) {
  std::vector<float> row(n);
  for (size_t i = 0; i < n; ++i) row[i] = value(i);
  return row;
}

TEST(Topk, KeepsTheLargestInAscendingPositionAndEndsTheListWithMinusOne) {
  for (Backend backend : {Backend::kRef, Backend::kCpu}) {
    World world({{0.5f, 3, -1, 7, 3}, {1, 2}, {}}, 3);
    run_pieces(topk(backend), world.params);
    EXPECT_EQ(world.indices, (std::vector<int32_t>{1, 3, 4, 0, 1, -1, -1, -1, -1, -99, -99, -99}));
    EXPECT_EQ(world.selected, (std::vector<int32_t>{3, 2, 0, -99}));
  }
}

TEST(Topk, OfEqualScoresTheLowerPositionWins) {
  for (Backend backend : {Backend::kRef, Backend::kCpu}) {
    World world({{1, 0, -0.0f, 0, 2, -0.0f}}, 3);
    run_pieces(topk(backend), world.params);
    EXPECT_EQ(std::vector<int32_t>(world.indices.begin(), world.indices.begin() + 3), (std::vector<int32_t>{0, 1, 4}));
  }
}

TEST(Topk, NanIsSmallerThanEveryNumber) {
  for (Backend backend : {Backend::kRef, Backend::kCpu}) {
    World world({{kNan, -kInf, -kNan, -5, kNan}}, 3);
    run_pieces(topk(backend), world.params);
    EXPECT_EQ(std::vector<int32_t>(world.indices.begin(), world.indices.begin() + 3), (std::vector<int32_t>{0, 1, 3}));
  }
}

TEST(Topk, RowsThatSeeAtMostTopkAreNotScored) {
  for (Backend backend : {Backend::kRef, Backend::kCpu}) {
    World world({std::vector<float>(8, kNan)}, 8);
    world.params.scores = nullptr;
    run_pieces(topk(backend), world.params);
    for (int32_t i = 0; i < 8; ++i) EXPECT_EQ(world.indices[static_cast<size_t>(i)], i);
  }
}

TEST(Topk, EqualsTheReferenceOnShortRows) {
  for (size_t n : {1u, 2u, 3u, 15u, 16u, 17u, 31u, 32u, 33u, 63u, 64u, 65u, 100u, 257u}) {
    for (int32_t k : {1, 2, 7, 8, 15, 16, 17, 31, 32, 64, 100, 256}) {
      const std::vector<float> distinct = random_floats(n, static_cast<uint32_t>(n * 1000) + static_cast<uint32_t>(k));
      std::vector<float> few = distinct;  // many ties
      for (float& v : few) v = std::round(v);
      expect_equal_to_reference({distinct, few, distinct}, k, k % 3);
    }
  }
}

TEST(Topk, EqualsTheReferenceOnOddNumbers) {
  const float odd[] = {kNan,    -kNan,  kInf,    -kInf,   0.0f,     -0.0f, 1e-45f,
                       -1e-45f, 1e-38f, -1e-38f, 3.4e38f, -3.4e38f, 1.0f,  1.0000001f};
  std::mt19937 random(3);
  for (size_t n : {40u, 6144u, 6145u, 20000u}) {
    const auto row = made(n, [&](size_t) { return odd[random() % std::size(odd)]; });
    for (int32_t k : {1, 3, 17, 1000, 2048, 5000}) expect_equal_to_reference({row}, k);
  }
}

TEST(Topk, EqualsTheReferenceOnLongRowsOfEveryShape) {
  std::mt19937 random(5);
  for (size_t n : {6144u, 6145u, 16384u, 65536u + 5}) {
    const std::vector<std::vector<float>> shapes = {
        random_floats(n, 9),
        made(n, [](size_t) { return 0.25f; }),
        made(n, [](size_t i) { return static_cast<float>(i); }),
        made(n, [](size_t i) { return -static_cast<float>(i); }),
        made(n, [&](size_t) { return random() % 50 ? 0.0f : static_cast<float>(random() % 100); }),  // zeros at the cut
        made(n, [&](size_t) { return random() % 50 ? 0.0f : -static_cast<float>(random() % 100); }),
        made(n, [](size_t i) { return i % 7 == 0 ? 100.0f + static_cast<float>(i) : 0.0f; }),
        made(n, [n](size_t i) { return i > n - 3000 ? 1.0f + static_cast<float>(i % 10) : -1.0f; }),  // all at the end
        made(n, [](size_t i) { return static_cast<float>(i % 3); }),
    };
    for (int32_t k : {1, 2048, 3072, 3073, 6000}) expect_equal_to_reference(shapes, k);
  }
}

TEST(Topk, AllButOneAndAllButTheLast) {
  for (size_t n : {9u, 33u, 2049u, 8193u}) {
    expect_equal_to_reference({random_floats(n, 1), made(n, [](size_t) { return 0.0f; })}, static_cast<int32_t>(n) - 1);
  }
}

TEST(Topk, AMillionPositions) {
  const std::vector<float> row = random_floats(1 << 20, 11);
  expect_equal_to_reference({row}, 2048);
}

TEST(Topk, DeclaresTheScoresItReads) {
  World world({random_floats(100, 1), random_floats(5, 2)}, 8);
  device::AccessList list;
  topk(Backend::kCpu).declare(&world.params, list);
  uint64_t read = 0, written = 0;
  for (const device::Access& a : list.ranges()) (a.write ? written : read) += a.end - a.begin;
  EXPECT_EQ(read, 8u + 2 * 4 + 100 * 4);
  EXPECT_EQ(written, 2u * 4 + 2 * 8 * 4);
  auto every_step = device::AccessList::for_every_step();
  topk(Backend::kCpu).declare(&world.params, every_step);
  read = 0;
  for (const device::Access& a : every_step.ranges()) read += a.write ? 0 : a.end - a.begin;
  EXPECT_EQ(read, 8u + 2 * 4 + 2 * static_cast<uint64_t>(world.params.score_stride) * 4);
}

}  // namespace
}  // namespace tidepool::nn
