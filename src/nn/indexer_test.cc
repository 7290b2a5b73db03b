#include "nn/indexer.h"

#include <cmath>

#include "nn/test_pieces.h"

namespace tidepool::nn {
namespace {

using namespace pieces;

struct Shape {
  int32_t heads, dim, rope, block_size;
  DType type;
};

// Index keys of several cache slots: blocks of all slots are dealt from one shuffled deck.
struct Keys {
  Shape shape;
  int32_t max_blocks, num_blocks;
  std::vector<int32_t> block_table;
  std::vector<std::byte> memory;
  KeyTiles tiles;

  Keys(const Shape& s, int32_t num_slots, int32_t max_len, uint32_t seed = 3) : shape(s) {
    max_blocks = (max_len + s.block_size - 1) / s.block_size;
    num_blocks = num_slots * max_blocks;
    block_table.resize(static_cast<size_t>(num_blocks));
    std::iota(block_table.begin(), block_table.end(), 0);
    std::shuffle(block_table.begin(), block_table.end(), std::mt19937(seed));
    tiles = {nullptr, s.type, s.dim};
    memory.assign(static_cast<size_t>(num_blocks * s.block_size / kKeyTile) * tiles.tile_bytes(),
                  std::byte{0xff});  // NaN
    tiles.base = memory.data();
  }
  int32_t loc(int32_t slot, int32_t position) const {
    return block_table[static_cast<size_t>(slot * max_blocks + position / shape.block_size)] * shape.block_size +
           position % shape.block_size;
  }
  size_t element(int32_t at, int32_t d) const {
    return (static_cast<size_t>(at / 32) * static_cast<size_t>(shape.dim) + static_cast<size_t>(d)) * 32 +
           static_cast<size_t>(at % 32);
  }
  float get(int32_t at, int32_t d) const {
    if (shape.type == DType::kF32) return reinterpret_cast<const float*>(memory.data())[element(at, d)];
    return bf16_to_f32(reinterpret_cast<const uint16_t*>(memory.data())[element(at, d)]);
  }
  void set(int32_t at, int32_t d, float value) {
    if (shape.type == DType::kF32)
      reinterpret_cast<float*>(memory.data())[element(at, d)] = value;
    else
      reinterpret_cast<uint16_t*>(memory.data())[element(at, d)] = f32_to_bf16(value);
  }
  KeyTable table(const std::vector<int32_t>& position, const std::vector<int32_t>& slot) const {
    return {position.data(), slot.data(), block_table.data(), max_blocks, shape.block_size};
  }
};

struct ScoreWorld {
  int32_t range[2];
  std::vector<int32_t> position, slot;
  std::vector<float> q, w, scores;
  IndexScoreParams params;

  ScoreWorld(const Keys& keys, int32_t topk, const std::vector<int32_t>& slots, const std::vector<int32_t>& positions,
             int32_t begin = 1)
      : range{begin, begin + static_cast<int32_t>(slots.size())},
        position(static_cast<size_t>(begin), -5),
        slot(static_cast<size_t>(begin), -5) {
    position.insert(position.end(), positions.begin(), positions.end());
    slot.insert(slot.end(), slots.begin(), slots.end());
    const size_t heads = static_cast<size_t>(keys.shape.heads), dim = static_cast<size_t>(keys.shape.dim);
    q = random_floats(position.size() * heads * dim, 21);
    w = random_floats(position.size() * heads, 22);
    params.rows = {range, static_cast<int32_t>(position.size())};
    params.num_heads = keys.shape.heads;
    params.topk = topk;
    params.q = q.data();
    params.w = w.data();
    params.keys = keys.tiles;
    params.table = keys.table(position, slot);
    params.score_stride = keys.max_blocks * keys.shape.block_size;
    params.score_rows = static_cast<int32_t>(slots.size());
    scores.assign(slots.size() * static_cast<size_t>(params.score_stride), kPoison);
    params.scores = scores.data();
  }
  const std::vector<float>& run(Backend backend, uint32_t seed = 1) {
    std::fill(scores.begin(), scores.end(), kPoison);
    run_pieces(index_score(backend), params, seed);
    return scores;
  }
  // What counts: visible scores of row i, nothing when the row is skipped.
  std::vector<float> visible(size_t i) const {
    const int32_t n = position[static_cast<size_t>(range[0]) + i] + 1;
    const auto from = scores.begin() + static_cast<int64_t>(i) * params.score_stride;
    return {from, from + (n > params.topk ? n : 0)};
  }
};

void fill(Keys& keys, const std::vector<int32_t>& lengths) {
  uint32_t seed = 100;
  for (size_t slot = 0; slot < lengths.size(); ++slot) {
    for (int32_t position = 0; position < lengths[slot]; ++position) {
      const std::vector<float> key = random_floats(static_cast<size_t>(keys.shape.dim), ++seed);
      for (int32_t d = 0; d < keys.shape.dim; ++d)
        keys.set(keys.loc(static_cast<int32_t>(slot), position), d, key[static_cast<size_t>(d)]);
    }
  }
}

const Shape kShapes[] = {
    {1, 16, 8, 32, DType::kBF16},    {2, 32, 16, 64, DType::kF32},   {4, 32, 16, 128, DType::kBF16},
    {3, 130, 64, 64, DType::kBF16},  {5, 24, 8, 32, DType::kF32},    {32, 128, 64, 128, DType::kBF16},
    {12, 128, 64, 256, DType::kF32}, {9, 160, 32, 96, DType::kBF16}, {64, 128, 64, 128, DType::kBF16},
    {17, 7, 4, 32, DType::kBF16},
};

TEST(IndexScore, EqualsTheReferenceBitForBitWhereMultiplyAddsAreFused) {
  for (const Shape& shape : kShapes) {
    Keys keys(shape, 3, 700);
    fill(keys, {600, 33, 64});
    on_each_target([&](const std::string& target) {
      const std::vector<int32_t> slots = {0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 0, 0},
                                 positions = {0, 598, 599, 31, 32, 63, 511, 512, 513, 7, 8, -1};
      ScoreWorld cpu(keys, 8, slots, positions), ref(keys, 8, slots, positions);
      cpu.run(Backend::kCpu);
      ref.run(Backend::kRef);
      for (size_t i = 0; i < slots.size(); ++i) {
        const std::vector<float> got = cpu.visible(i), want = ref.visible(i);
        ASSERT_EQ(got.size(), positions[i] >= 8 ? static_cast<size_t>(positions[i] + 1) : 0u);
        if (has_fused_multiply_add(target)) {
          ASSERT_EQ(bits_of(got), bits_of(want)) << "row " << i << " heads " << shape.heads;
        } else {
          for (size_t s = 0; s < got.size(); ++s) ASSERT_NEAR(got[s], want[s], 1e-3f + 1e-5f * std::abs(want[s]));
        }
      }
    });
  }
}

TEST(IndexScore, SkippedRowsAndUnseenTilesAreNotWritten) {
  const Shape shape{4, 32, 16, 32, DType::kBF16};
  Keys keys(shape, 1, 300);
  fill(keys, {300});
  for (Backend backend : {Backend::kRef, Backend::kCpu}) {
    ScoreWorld world(keys, 40, {0, 0, 0}, {39, 40, 200});
    world.run(backend);
    const int64_t stride = world.params.score_stride;
    for (int64_t s = 0; s < stride; ++s) {
      EXPECT_EQ(world.scores[static_cast<size_t>(s)], kPoison);
      EXPECT_EQ(world.scores[static_cast<size_t>(stride + s)] == kPoison, s >= 64);
      EXPECT_EQ(world.scores[static_cast<size_t>(2 * stride + s)] == kPoison, s >= 224);
    }
  }
}

TEST(IndexScore, ARowDoesNotDependOnItsCompanyOrOnPieceOrder) {
  const Shape shape{32, 128, 64, 128, DType::kBF16};
  Keys keys(shape, 2, 1200);
  fill(keys, {1200, 900});
  on_each_target([&](const std::string&) {
    const std::vector<int32_t> slots = {0, 0, 0, 0, 0, 1, 0}, positions = {1190, 1191, 1192, 1193, 1194, 899, 600};
    ScoreWorld together(keys, 16, slots, positions);
    together.run(Backend::kCpu, 5);
    for (size_t i = 0; i < slots.size(); ++i) {
      ScoreWorld alone(keys, 16, {slots[i]}, {positions[i]});
      std::copy_n(together.q.begin() + static_cast<int64_t>(i + 1) * 32 * 128, 32 * 128, alone.q.begin() + 32 * 128);
      std::copy_n(together.w.begin() + static_cast<int64_t>(i + 1) * 32, 32, alone.w.begin() + 32);
      alone.run(Backend::kCpu, 6);
      ASSERT_EQ(bits_of(alone.visible(0)), bits_of(together.visible(i)));
    }
  });
}

TEST(IndexScore, ReferenceIsTheWeightedSumOfReluOfDotProducts) {
  const Shape shape{3, 16, 8, 64, DType::kF32};
  Keys keys(shape, 1, 128);
  fill(keys, {100});
  ScoreWorld world(keys, 4, {0}, {99});
  world.run(Backend::kRef);
  for (int32_t s = 0; s < 100; ++s) {
    double want = 0;
    for (int32_t h = 0; h < 3; ++h) {
      double dot = 0;
      for (int32_t d = 0; d < 16; ++d) {
        dot += static_cast<double>(world.q[static_cast<size_t>((3 + h) * 16 + d)]) *
               static_cast<double>(keys.get(keys.loc(0, s), d));
      }
      want += static_cast<double>(world.w[static_cast<size_t>(3 + h)]) * std::max(0.0, dot);
    }
    EXPECT_NEAR(static_cast<double>(world.scores[static_cast<size_t>(s)]), want, 1e-4);
  }
}

TEST(IndexScore, DeclaresEachTileOnceAndCountsItsWork) {
  const Shape shape{4, 32, 16, 64, DType::kBF16};
  Keys keys(shape, 1, 300);
  fill(keys, {300});
  ScoreWorld world(keys, 8, {0, 0, 0}, {3, 98, 99});
  device::AccessList list;
  index_score(Backend::kCpu).declare(&world.params, list);
  uint64_t tiles = 0, written = 0;
  for (const device::Access& a : list.ranges()) {
    const auto base = reinterpret_cast<uint64_t>(keys.memory.data());
    if (a.write) written += a.end - a.begin;
    if (a.begin >= base && a.end <= base + keys.memory.size()) tiles += a.end - a.begin;
  }
  EXPECT_EQ(tiles, 4 * keys.tiles.tile_bytes());
  EXPECT_EQ(written, 2u * 128 * 4);
  EXPECT_EQ(index_score(Backend::kCpu).cost(&world.params).multiply_adds, (99u + 100) * 4 * 33);
}

TEST(IndexScore, DeclaresForEveryStepWhatLongerContextsTouch) {
  const Shape shape{4, 32, 16, 64, DType::kBF16};
  Keys keys(shape, 1, 300);
  fill(keys, {300});
  ScoreWorld world(keys, 8, {0, 0}, {3, 5});  // all is selected, nothing is scored
  auto list = device::AccessList::for_every_step();
  index_score(Backend::kCpu).declare(&world.params, list);
  uint64_t written = 0;
  bool reads_keys = false;
  for (const device::Access& a : list.ranges()) {
    const auto base = reinterpret_cast<uint64_t>(keys.memory.data());
    if (a.write) written += a.end - a.begin;
    reads_keys = reads_keys || (a.begin >= base && a.end <= base + keys.memory.size());
  }
  EXPECT_TRUE(reads_keys);
  EXPECT_EQ(written, 2u * static_cast<uint64_t>(world.params.score_stride) * 4);
}

// Runs of query rows of one request: each tile is read once for those that share a piece (kScoreRowsPerPiece rows).
TEST(IndexScore, ReadsATileOnceForTheRowsOfAPieceThatShareIt) {
  const Shape shape{4, 32, 16, 64, DType::kBF16};
  Keys keys(shape, 4, 300);
  fill(keys, {300, 300, 300, 300});
  const auto tile_reads = [&](const std::vector<int32_t>& slots) {
    std::vector<int32_t> positions;
    for (size_t i = 0; i < slots.size(); ++i) positions.push_back(281 + static_cast<int32_t>(i % 4));  // 9 tiles
    ScoreWorld together(keys, 8, slots, positions);
    together.run(Backend::kCpu, 7);
    uint64_t rest = 0;
    for (size_t i = 0; i < slots.size(); ++i) {
      ScoreWorld alone(keys, 8, {slots[i]}, {positions[i]});
      std::copy_n(together.q.begin() + static_cast<int64_t>(i + 1) * 4 * 32, 4 * 32, alone.q.begin() + 4 * 32);
      std::copy_n(together.w.begin() + static_cast<int64_t>(i + 1) * 4, 4, alone.w.begin() + 4);
      alone.run(Backend::kCpu);
      EXPECT_EQ(bits_of(together.visible(i)), bits_of(alone.visible(0))) << "row " << i;
      rest += index_score(Backend::kCpu).cost(&alone.params).read_bytes - 9 * keys.tiles.tile_bytes();
    }
    const uint64_t all = index_score(Backend::kCpu).cost(&together.params).read_bytes;
    EXPECT_EQ((all - rest) % (9 * keys.tiles.tile_bytes()), 0u);
    return (all - rest) / (9 * keys.tiles.tile_bytes());
  };
  EXPECT_EQ(tile_reads({0, 0, 0, 0}), 1u);
  EXPECT_EQ(tile_reads({0, 0}), 1u);
  EXPECT_EQ(tile_reads({0, 0, 1, 1, 2, 2}), 3u);
  EXPECT_EQ(tile_reads({0, 0, 0}), 1u);
  EXPECT_EQ(tile_reads({0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}), 6u);  // 0001 1122 2333: two runs lie in two pieces
  EXPECT_EQ(tile_reads({0, 0, 0, 0, 1, 1, 1, 1}), 2u);
}

struct PrepareWorld {
  Keys keys;
  int32_t range[2];
  std::vector<float> q, k, w, norm_weight, norm_bias, cosines, sines;
  std::vector<int32_t> loc;
  IndexPrepareParams params;

  PrepareWorld(const Shape& shape, int32_t count, bool interleave, int32_t begin = 2)
      : keys(shape, 1, 128), range{begin, begin + count} {
    const size_t rows = static_cast<size_t>(begin + count + 1), dim = static_cast<size_t>(shape.dim),
                 half = static_cast<size_t>(shape.rope / 2);
    q = random_floats(rows * static_cast<size_t>(shape.heads) * dim, 31);
    k = random_floats(rows * dim, 32, 3.0f);
    w = random_floats(rows * static_cast<size_t>(shape.heads), 33);
    norm_weight = random_floats(dim, 34);
    norm_bias = random_floats(dim, 35);
    const std::vector<float> angle = random_floats(rows * half, 36, 10.0f);
    for (float a : angle) cosines.push_back(std::cos(a)), sines.push_back(std::sin(a));
    for (size_t m = 0; m < rows; ++m) loc.push_back(m % 3 == 2 ? -1 : keys.loc(0, static_cast<int32_t>(m * 17 % 128)));
    params.rows = {range, static_cast<int32_t>(rows)};
    params.num_heads = shape.heads;
    params.rope_dim = shape.rope;
    params.interleave = interleave;
    params.q = q.data();
    params.k = k.data();
    params.w = w.data();
    params.w_scale = 0.0123f;
    params.norm_weight = norm_weight.data();
    params.norm_bias = norm_bias.data();
    params.norm_eps = 1e-6f;
    params.cos_table = cosines.data();
    params.sin_table = sines.data();
    params.keys = keys.tiles;
    params.loc = loc.data();
  }
};

TEST(IndexPrepare, EqualsTheReferenceBitForBitOnEveryTarget) {
  for (const Shape& shape : kShapes) {
    for (bool interleave : {true, false}) {
      on_each_target([&](const std::string&) {
        for (int32_t count : {1, 7, 8, 9, 20}) {
          PrepareWorld cpu(shape, count, interleave), ref(shape, count, interleave);
          run_pieces(index_prepare(Backend::kCpu), cpu.params);
          run_pieces(index_prepare(Backend::kRef), ref.params);
          ASSERT_EQ(bits_of(cpu.q), bits_of(ref.q));
          ASSERT_EQ(bits_of(cpu.w), bits_of(ref.w));
          ASSERT_EQ(cpu.keys.memory, ref.keys.memory);
        }
      });
    }
  }
}

// x rotated in double, pair by pair.
std::vector<double> rotated(std::vector<double> x, int32_t rope, bool interleave, const float* cosines,
                            const float* sines) {
  for (int32_t j = 0; j < rope / 2; ++j) {
    double& a = x[static_cast<size_t>(interleave ? 2 * j : j)];
    double& b = x[static_cast<size_t>(interleave ? 2 * j + 1 : j + rope / 2)];
    const double c = static_cast<double>(cosines[j]), s = static_cast<double>(sines[j]), first = a * c - b * s;
    b = b * c + a * s;
    a = first;
  }
  return x;
}

TEST(IndexPrepare, RotatesQueriesAndKeysAndWritesTheKeyToItsLane) {
  for (bool interleave : {true, false}) {
    const Shape shape{3, 24, 12, 64, DType::kF32};
    PrepareWorld before(shape, 5, interleave), world(shape, 5, interleave);
    run_pieces(index_prepare(Backend::kCpu), world.params);
    for (int32_t m = 2; m < 7; ++m) {
      const float *cosines = world.cosines.data() + m * 6, *sines = world.sines.data() + m * 6;
      for (int32_t h = 0; h < 3; ++h) {
        const auto from = before.q.begin() + (m * 3 + h) * 24;
        const std::vector<double> want = rotated({from, from + 24}, 12, interleave, cosines, sines);
        for (int32_t d = 0; d < 24; ++d)
          EXPECT_NEAR(static_cast<double>(world.q[static_cast<size_t>((m * 3 + h) * 24 + d)]),
                      want[static_cast<size_t>(d)], 1e-5);
        EXPECT_EQ(world.w[static_cast<size_t>(m * 3 + h)], before.w[static_cast<size_t>(m * 3 + h)] * 0.0123f);
      }
      if (world.loc[static_cast<size_t>(m)] < 0) continue;
      std::vector<double> key(world.k.begin() + m * 24, world.k.begin() + (m + 1) * 24);
      const double mean = std::accumulate(key.begin(), key.end(), 0.0) / 24;
      double variance = 0;
      for (double v : key) variance += (v - mean) * (v - mean) / 24;
      for (size_t d = 0; d < 24; ++d) {
        key[d] = (key[d] - mean) / std::sqrt(variance + 1e-6) * static_cast<double>(world.norm_weight[d]) +
                 static_cast<double>(world.norm_bias[d]);
      }
      key = rotated(key, 12, interleave, cosines, sines);
      for (int32_t d = 0; d < 24; ++d) {
        EXPECT_NEAR(static_cast<double>(world.keys.get(world.loc[static_cast<size_t>(m)], d)),
                    key[static_cast<size_t>(d)], 1e-5);
      }
    }
    // Rows outside the range, and every other lane of the tiles, are as they were.
    EXPECT_TRUE(std::equal(before.q.begin(), before.q.begin() + 2 * 72, world.q.begin()));
    EXPECT_TRUE(std::equal(before.q.begin() + 7 * 72, before.q.end(), world.q.begin() + 7 * 72));
    size_t written = 0;
    for (int32_t at = 0; at < 128; ++at) {
      for (int32_t d = 0; d < 24; ++d) written += !std::isnan(world.keys.get(at, d));
    }
    EXPECT_EQ(written, 24u * 3);  // rows 3, 4 and 6
  }
}

TEST(IndexPrepare, ThenScoreThenTopkFindsThePlantedKey) {
  const Shape shape{4, 32, 16, 32, DType::kBF16};
  Keys keys(shape, 1, 256);
  fill(keys, {256});
  ScoreWorld world(keys, 5, {0}, {255});
  for (int32_t d = 0; d < 32; ++d) keys.set(keys.loc(0, 77), d, 3 * world.q[static_cast<size_t>(4 * 32 + d)]);
  for (float& w : world.w) w = std::abs(w) + 1;
  world.run(Backend::kCpu);
  std::vector<int32_t> indices(10, -99), selected(2, -99);
  TopkParams params;
  params.rows = world.params.rows;
  params.topk = 5;
  params.table = world.params.table;
  params.scores = world.scores.data();
  params.score_stride = world.params.score_stride;
  params.topk_indices = indices.data();
  params.num_selected = selected.data();
  run_pieces(topk(Backend::kCpu), params);
  EXPECT_EQ(selected[1], 5);
  EXPECT_NE(std::find(indices.begin() + 5, indices.end(), 77), indices.end());
}

}  // namespace
}  // namespace tidepool::nn
