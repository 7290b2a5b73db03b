#include "nn/sparse_attention.h"

#include "nn/attention_cases.h"

namespace tidepool::nn {
namespace {

using namespace attention_cases;

TEST(SparseAttention, EqualsTheReferenceOnEveryShapeAndLength) {
  for (const Shape& shape : all_shapes()) {
    SCOPED_TRACE(name_of(shape));
    const StoredRows rows(shape, 700, 3);
    std::vector<std::vector<RowLocation>> lists;
    const bool is_wide = shape.latent >= 512;  // slow under sanitizers, and no different but in width
    for (int32_t n : is_wide ? std::vector<int32_t>{1, 130} : std::vector<int32_t>{0, 1, 2, 3, 127, 128, 129, 256, 300})
      lists.push_back(list_of(rows, n, n));
    World ref(shape, rows, 300, lists);
    const std::vector<float> want = ref.whole(Backend::kRef);
    EXPECT_EQ(bits_of(ref.split(Backend::kRef)), bits_of(want));
    on_each_target([&](const std::string&) {
      World cpu(shape, rows, 300, lists);
      const std::vector<float> got = cpu.whole(Backend::kCpu);
      expect_close(got, want);
      EXPECT_EQ(bits_of(cpu.split(Backend::kCpu)), bits_of(got));
    });
  }
}

TEST(SparseAttention, ReferenceIsTheSoftmaxOfTheListedRows) {
  const Shape shape{8, 4, 2, DType::kF32};
  const StoredRows rows(shape, 200, 5);
  World world(shape, rows, 150, {list_of(rows, 150, 20)});
  world.whole(Backend::kRef);
  for (int32_t h = 0; h < 2; ++h) {
    const float* q = world.qa.data() + (2 * 2 + h) * 12;
    std::vector<double> score(150), want(8, 0.0);
    double total = 0;
    for (int32_t i = 0; i < 150; ++i) {
      const float* row = reinterpret_cast<const float*>(rows.places()[Place::kResident].latent.row(20 + i));
      double dot = 0;
      for (int32_t d = 0; d < 12; ++d) dot += static_cast<double>(q[d]) * static_cast<double>(row[d]);
      score[static_cast<size_t>(i)] = std::exp(dot * static_cast<double>(world.params.scale));
      total += score[static_cast<size_t>(i)];
      for (int32_t d = 0; d < 8; ++d)
        want[static_cast<size_t>(d)] += score[static_cast<size_t>(i)] * static_cast<double>(row[d]);
    }
    for (int32_t d = 0; d < 8; ++d) {
      EXPECT_NEAR(static_cast<double>(world.u[static_cast<size_t>((2 * 2 + h) * 8 + d)]),
                  want[static_cast<size_t>(d)] / total, 1e-5);
    }
  }
}

// The same rows as fp32: what a row of another format reads as.
StoredRows widened(const StoredRows& rows, int32_t num_tokens) {
  const RowFormat& format = rows.format();
  std::vector<float> values;
  for (int32_t t = 0; t < num_tokens; ++t) {
    const RowPlanes& planes = rows.places()[Place::kResident];
    for (int32_t d = 0; d < format.latent_values; ++d) values.push_back(latent_value(format, planes.latent.row(t), d));
    for (int32_t d = 0; d < format.rope_values; ++d) values.push_back(rope_value(format, planes.rope.row(t), d));
  }
  return StoredRows({format.latent_values, format.rope_values, 0, DType::kF32}, num_tokens, values);
}

TEST(SparseAttention, ReferenceReadsCodesTimesScales) {
  for (DType type : {DType::kBF16, DType::kI8, DType::kF8E4M3}) {
    const Shape shape{160, 16, 2, type}, wide{160, 16, 2, DType::kF32};
    const StoredRows rows(shape, 200, 5), fp32 = widened(rows, 200);
    World world(shape, rows, 150, {list_of(rows, 150, 20)}), same(wide, fp32, 150, {list_of(fp32, 150, 20)});
    EXPECT_EQ(bits_of(world.whole(Backend::kRef)), bits_of(same.whole(Backend::kRef)));
  }
}

TEST(SparseAttention, GroupsOfCodesThatAreNoNumbersStayNanAndLargeOnesStayLarge) {
  for (DType type : {DType::kI8, DType::kF8E4M3}) {
    const Shape shape{160, 16, 2, type};
    std::vector<float> values = random_floats(10 * 176, 3);
    values[3 * 176 + 140] = INFINITY;                              // row 3, second group
    for (size_t i = 0; i < 160; ++i) values[5 * 176 + i] = 1e36f;  // row 5
    const StoredRows rows(shape, 10, values);
    on_each_target([&](const std::string&) {
      for (Backend backend : {Backend::kRef, Backend::kCpu}) {
        World nan(shape, rows, 8, {list_of(rows, 8, 0)}), large(shape, rows, 8, {list_of(rows, 1, 5)});
        nan.whole(backend), large.whole(backend);
        for (size_t i = 0; i < 2 * 160; ++i) {
          EXPECT_TRUE(std::isnan(nan.u[2 * 2 * 160 + i]));
          EXPECT_NEAR(large.u[2 * 2 * 160 + i] / 1e36f, 1, 1e-5f);
        }
      }
    });
  }
}

TEST(SparseAttention, WhereRowsLieChangesNoBit) {
  const Place kPlaces[] = {Place::kPool,    Place::kWindow, Place::kSelection,
                           Place::kStaging, Place::kHost,   Place::kResident};
  for (const Shape& shape : all_shapes()) {
    SCOPED_TRACE(name_of(shape));
    const StoredRows rows(shape, 400, 4);
    std::mt19937 random(8);
    std::vector<RowLocation> resident = list_of(rows, 270, 50), mixed;
    for (int32_t i = 0; i < 270; ++i) mixed.push_back(rows.at(kPlaces[random() % 6], 50 + i));
    on_each_target([&](const std::string&) {
      World one(shape, rows, 270, {resident}), many(shape, rows, 270, {mixed});
      const std::vector<float> want = one.whole(Backend::kCpu);
      EXPECT_EQ(bits_of(many.whole(Backend::kCpu)), bits_of(want));
      EXPECT_EQ(bits_of(many.split(Backend::kCpu)), bits_of(want));
    });
  }
}

TEST(SparseAttention, ARowAndAHeadDoNotDependOnTheirCompany) {
  const Shape shape{64, 16, 11, DType::kBF16};
  const StoredRows rows(shape, 400, 4);
  std::vector<std::vector<RowLocation>> lists;
  for (int32_t n : {200, 131, 1, 64}) lists.push_back(list_of(rows, n, 3 * n % 100));
  on_each_target([&](const std::string&) {
    World together(shape, rows, 200, lists);
    const std::vector<float> want = together.whole(Backend::kCpu);
    for (size_t m = 0; m < lists.size(); ++m) {
      for (int32_t h = 0; h < shape.heads; ++h) {
        Shape one_head = shape;
        one_head.heads = 1;
        World alone(one_head, rows, 200, {lists[m]});
        const int64_t width = shape.latent + shape.rope, at = static_cast<int64_t>(m + 2) * shape.heads + h;
        std::copy_n(together.qa.begin() + at * width, width, alone.qa.begin() + 2 * width);
        const std::vector<float> got = alone.whole(Backend::kCpu);
        EXPECT_EQ(bits_of({got.begin() + 2 * shape.latent, got.begin() + 3 * shape.latent}),
                  bits_of({want.begin() + at * shape.latent, want.begin() + (at + 1) * shape.latent}))
            << "row " << m << " head " << h;
      }
    }
  });
}

TEST(SparseAttention, SkippedEntriesLeaveABlockAsIfTheyWereNotThere) {
  const Shape shape{64, 16, 8, DType::kBF16};
  const StoredRows rows(shape, 400, 6);
  std::vector<RowLocation> kept = list_of(rows, 90, 10), holes;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (i % 5 == 0 && holes.size() + 90 - i < 128) holes.push_back({Place::kNone, 1 << 30});
    holes.push_back(kept[i]);
  }
  holes.resize(kAttentionBlock, RowLocation{});
  // An empty block between two full ones is not folded.
  std::vector<RowLocation> two = list_of(rows, 256, 30), three(two.begin(), two.begin() + 128);
  three.insert(three.end(), 128, RowLocation{});
  three.insert(three.end(), two.begin() + 128, two.end());
  const std::vector<RowLocation> nothing(200, RowLocation{});
  on_each_target([&](const std::string&) {
    World with(shape, rows, 384, {holes, three, nothing}), without(shape, rows, 384, {kept, two, {}});
    const std::vector<float> want = without.whole(Backend::kCpu);
    EXPECT_EQ(bits_of(with.whole(Backend::kCpu)), bits_of(want));
    EXPECT_EQ(bits_of(with.split(Backend::kCpu)), bits_of(want));
    expect_close(want, with.whole(Backend::kRef));
  });
}

TEST(SparseAttention, PieceOrderChangesNoBit) {
  const Shape shape{32, 16, 12, DType::kF32};
  const StoredRows rows(shape, 400, 6);
  World world(shape, rows, 300, {list_of(rows, 300, 0), list_of(rows, 140, 9), list_of(rows, 1, 9)});
  const std::vector<float> want = world.whole(Backend::kCpu);
  for (uint32_t seed = 2; seed < 6; ++seed) {
    EXPECT_EQ(bits_of(world.whole(Backend::kCpu, seed)), bits_of(want));
    EXPECT_EQ(bits_of(world.split(Backend::kCpu, seed)), bits_of(want));
  }
}

TEST(SparseAttention, LargeScoresNeitherOverflowNorVanish) {
  const Shape shape{32, 16, 4, DType::kF32};
  const StoredRows rows(shape, 400, 6);
  on_each_target([&](const std::string&) {
    for (float scale : {0.0f, 1e-30f, 3.0f, 100.0f, -50.0f}) {
      World cpu(shape, rows, 300, {list_of(rows, 300, 0)}), ref(shape, rows, 300, {list_of(rows, 300, 0)});
      cpu.params.scale = ref.params.scale = scale;
      const std::vector<float>&got = cpu.whole(Backend::kCpu), &want = ref.whole(Backend::kRef);
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 2e-3f) << scale;  // scores of 1e3 round to 1e-4
    }
  });
}

TEST(SparseAttention, DeclaresThePlacesThatListsMayNameWithoutLookingAtLists) {
  const Shape shape{32, 16, 4, DType::kBF16};
  const StoredRows rows(shape, 50, 6);
  World world(shape, rows, 8, {{rows.at(Place::kPool, 3), {}, rows.at(Place::kStaging, 8)}});
  for (RowPlanes& planes : world.params.places.planes) planes.rows = 0;
  world.params.places[Place::kStaging].rows = 50;
  world.params.locations = reinterpret_cast<const RowLocation*>(uintptr_t{1} << 40);  // a look would crash
  device::AccessList accesses;
  attention_whole(Backend::kCpu).declare(&world.params, accesses);
  uint64_t read = 0, written = 0;
  for (const device::Access& a : accesses.ranges()) (a.write ? written : read) += a.end - a.begin;
  EXPECT_EQ(read, 8u + 4 + 4 * 48 * 4 + 8 * 8 + 50 * 96);
  EXPECT_EQ(written, 4u * 32 * 4);
}

TEST(SparseAttention, CountsTheRowsThatAreThere) {
  const Shape shape{32, 16, 4, DType::kBF16};
  const StoredRows rows(shape, 50, 6);
  World world(shape, rows, 8, {{rows.at(Place::kPool, 3), {}, rows.at(Place::kHost, 8)}});
  const device::Cost cost = attention_whole(Backend::kCpu).cost(&world.params);
  EXPECT_EQ(cost.multiply_adds, 2u * 4 * (32 + 16 + 32));
  EXPECT_EQ(cost.link_bytes, 96u);
  EXPECT_EQ(cost.read_bytes, 4u + 4 * 48 * 4 + 3 * 8 + 96);
  EXPECT_EQ(attention_split(Backend::kCpu).cost(&world.params).write_bytes, 4u * 34 * 4);
}

}  // namespace
}  // namespace tidepool::nn
