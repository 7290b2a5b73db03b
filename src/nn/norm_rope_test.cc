#include "nn/norm_rope.h"

#include "nn/nn_cases.h"

namespace tidepool::nn {
namespace {

// Lists of what to run an operator on: the reference, then every SIMD target.
void for_each_backend(const std::function<void(Backend)>& test) {
  for_each_target([&](const std::string&) { test(Backend::kCpu); });
  SCOPED_TRACE("reference");
  test(Backend::kRef);
}

struct RmsFixture {
  int32_t width, max_rows = 6, stride;
  std::vector<float> x, weight;
  explicit RmsFixture(int32_t w)
      : width(w),
        stride(w + 4),
        x(random_floats(static_cast<size_t>(6 * stride), 3, -4, 4)),
        weight(random_floats(static_cast<size_t>(w), 4, 0.5f, 2)) {}
  std::vector<float> run(Backend backend, int32_t begin, int32_t end, Order order = Order::kForward) const {
    std::vector<float> y(x.size(), poison());
    const int32_t range[2] = {begin, end};
    RmsNormParams p;
    p.rows = {range, max_rows};
    p.x = x.data();
    p.x_stride = stride;
    p.weight = weight.data();
    p.width = width;
    p.eps = 1e-5f;
    p.y = y.data();
    p.y_stride = stride;
    run_op(rms_norm(backend), p, order);
    return y;
  }
};

TEST(RmsNorm, equals_the_reference_and_writes_its_rows_only) {
  for (int32_t width : {1, 2, 15, 63, 64, 65, 127, 200, 512}) {
    SCOPED_TRACE("width " + std::to_string(width));
    const RmsFixture fixture(width);
    for_each_target([&](const std::string& target) {
      const std::vector<float> y = fixture.run(Backend::kCpu, 1, 4);
      const std::vector<float> expected = fixture.run(Backend::kRef, 1, 4);
      for (size_t i = 0; i < y.size(); ++i) {
        const int32_t m = static_cast<int32_t>(i) / fixture.stride, column = static_cast<int32_t>(i) % fixture.stride;
        if (m < 1 || m >= 4 || column >= width) {
          ASSERT_TRUE(is_poison(y[i]));
        } else if (is_fused(target)) {
          ASSERT_TRUE(same_bits(y[i], expected[i]));
        } else {
          ASSERT_NEAR(y[i], expected[i], kSumTolerance * std::fabs(expected[i]));
        }
      }
    });
  }
}

TEST(RmsNorm, agrees_with_double_arithmetic) {
  for (int32_t width : {3, 512, 6144}) {
    const RmsFixture fixture(width);
    const std::vector<float> y = fixture.run(Backend::kCpu, 0, 6);
    for (int32_t m = 0; m < 6; ++m) {
      const float* x = &fixture.x[static_cast<size_t>(m * fixture.stride)];
      double sum = 0;
      for (int32_t i = 0; i < width; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      const double scale = 1 / std::sqrt(sum / width + 1e-5);
      for (int32_t i = 0; i < width; ++i) {
        const double expected =
            static_cast<double>(x[i]) * scale * static_cast<double>(fixture.weight[static_cast<size_t>(i)]);
        ASSERT_NEAR(static_cast<double>(y[static_cast<size_t>(m * fixture.stride + i)]), expected,
                    5e-7 * std::fabs(expected));
      }
    }
  }
}

TEST(RmsNorm, of_a_row_does_not_depend_on_the_other_rows_or_the_order) {
  const RmsFixture fixture(130);
  for_each_backend([&](Backend backend) {
    const std::vector<float> together = fixture.run(backend, 0, 6);
    EXPECT_TRUE(same_bits(together, fixture.run(backend, 0, 6, Order::kReverse)));
    for (int32_t m = 0; m < 6; ++m) {
      const std::vector<float> alone = fixture.run(backend, m, m + 1);
      const size_t at = static_cast<size_t>(m * fixture.stride);
      EXPECT_EQ(std::memcmp(&alone[at], &together[at], 130 * sizeof(float)), 0);
    }
  });
}

TEST(RmsNorm, has_the_values_that_a_hand_computes_in_place_and_from_another_row) {
  for_each_backend([&](Backend backend) {
    std::vector<float> x = {100, 100, 3, 4};
    const std::vector<float> weight = {1, 2};
    const int32_t range[2] = {0, 1}, source_row[1] = {1};
    std::vector<float> y(2, poison());
    RmsNormParams p;
    p.rows = {range, 1};
    p.x = x.data();
    p.x_stride = 2;
    p.source_row = source_row;
    p.x_rows = 2;
    p.weight = weight.data();
    p.width = 2;
    p.y = y.data();
    p.y_stride = 2;
    run_op(rms_norm(backend), p);
    EXPECT_NEAR(y[0], 3 / std::sqrt(12.5f), 1e-6f);
    EXPECT_NEAR(y[1], 8 / std::sqrt(12.5f), 1e-6f);

    p.source_row = nullptr;
    p.x = p.y = x.data() + 2;
    run_op(rms_norm(backend), p);
    EXPECT_TRUE(same_bits(x[2], y[0]) && same_bits(x[3], y[1]));
    EXPECT_EQ(x[0], 100);
  });
}

TEST(Embed, widens_the_rows_of_the_tokens_in_every_type) {
  const int32_t tokens[3] = {9, 4, 0}, range[2] = {1, 3};
  for (DType type : {DType::kBF16, DType::kF16, DType::kF32}) {
    std::vector<std::byte> table(5 * 3 * dtype_bytes(type));
    for (size_t i = 0; i < 15; ++i) {
      const float value = static_cast<float>(i);
      const uint16_t bf16 = f32_to_bf16(value), f16 = static_cast<uint16_t>(0x3c00 + i);  // 1 + i / 1024
      if (type == DType::kF32) std::memcpy(&table[4 * i], &value, 4);
      if (type == DType::kBF16) std::memcpy(&table[2 * i], &bf16, 2);
      if (type == DType::kF16) std::memcpy(&table[2 * i], &f16, 2);
    }
    std::vector<float> x(9, poison());
    EmbedParams p;
    p.rows = {range, 3};
    p.token_ids = tokens;
    p.table = table.data();
    p.type = type;
    p.hidden = 3;
    p.vocab = 5;
    p.x = x.data();
    run_op(embed(Backend::kCpu), p);
    for (size_t i = 0; i < 3; ++i) {
      const auto value = [&](size_t index) {
        const float v = static_cast<float>(index);
        return type == DType::kF16 ? 1 + v / 1024 : v;
      };
      EXPECT_TRUE(is_poison(x[i]));
      EXPECT_EQ(x[3 + i], value(12 + i));
      EXPECT_EQ(x[6 + i], value(i));
    }
    device::AccessList list;
    embed(Backend::kCpu).declare(&p, list);
    EXPECT_TRUE(declared(list, table.data(), table.size(), false));
  }
}

TEST(RopeTable, takes_the_angle_as_the_fp32_product_of_position_and_frequency) {
  const std::vector<float> inv_freq = {1.0f, 0.34f, 1e-4f};
  const int32_t positions[4] = {0, 1, 1000003, 1048575}, range[2] = {0, 4};
  std::vector<float> cos_table(12, poison()), sin_table(12, poison());
  RopeTableParams p;
  p.rows = {range, 4};
  p.positions = positions;
  p.inv_freq = inv_freq.data();
  p.half = 3;
  p.factor = 1.5f;
  p.cos_table = cos_table.data();
  p.sin_table = sin_table.data();
  run_op(rope_table(Backend::kCpu), p, Order::kShuffled);
  EXPECT_EQ(cos_table[0], 1.5f);
  EXPECT_EQ(sin_table[0], 0.0f);
  for (size_t m = 0; m < 4; ++m) {
    for (size_t j = 0; j < 3; ++j) {
      const float angle = static_cast<float>(positions[m]) * inv_freq[j];
      EXPECT_NEAR(cos_table[3 * m + j], 1.5 * std::cos(static_cast<double>(angle)), 2e-7);
      EXPECT_NEAR(sin_table[3 * m + j], 1.5 * std::sin(static_cast<double>(angle)), 2e-7);
    }
  }
}

TEST(QueryRope, rotates_adjacent_pairs_behind_the_latent_part_of_every_head) {
  // Two heads of [nope 1 | rope 4]; quarter turns, then no turn.
  const std::vector<float> q = {9, 1, 2, 3, 4, /**/ 9, 5, 6, 7, 8, /* row 1 */ 9, 1, 2, 3, 4, /**/ 9, 5, 6, 7, 8};
  const std::vector<float> cos_table = {0, 1, 1, 1}, sin_table = {1, 0, 0, 0};
  const int32_t range[2] = {0, 2};
  std::vector<float> out(2 * 2 * 7, poison());
  QueryRopeParams p;
  p.rows = {range, 2};
  p.num_heads = 2;
  p.nope_dim = 1;
  p.rope_dim = 4;
  p.latent_dim = 3;
  p.q = q.data();
  p.cos_table = cos_table.data();
  p.sin_table = sin_table.data();
  p.out = out.data();
  run_op(query_rope(Backend::kCpu), p);
  const std::vector<float> expected = {-2, 1, 3, 4, -6, 5, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8};
  for (size_t row = 0; row < 4; ++row) {
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(is_poison(out[7 * row + i]));
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(out[7 * row + 3 + i], expected[4 * row + i]);
  }
  device::AccessList now;
  auto every_step = device::AccessList::for_every_step();
  query_rope(Backend::kCpu).declare(&p, now);
  query_rope(Backend::kCpu).declare(&p, every_step);
  EXPECT_FALSE(declared(now, &out[7], 3 * sizeof(float), false));
  EXPECT_TRUE(declared(every_step, &out[7], 3 * sizeof(float), false));  // latents between what it writes
}

struct WriteFixture {
  RowFormat format;
  std::vector<float> z, weight, cos_table, sin_table;
  std::vector<std::byte> joint = std::vector<std::byte>(4096, std::byte{0xa5}), latents = joint, ropes = joint;
  PlaceTable places;
  RowLocation dest[4] = {{Place::kWindow, 2}, {}, {Place::kResident, 1}, {Place::kWindow, 0}};
  int32_t range[2] = {0, 4};

  explicit WriteFixture(DType type) : format{type, 70, 6} {
    z = random_floats(4 * 76, 5, -2, 2);
    weight = random_floats(70, 6, 0.5f, 1.5f);
    cos_table = random_floats(12, 7);
    sin_table = random_floats(12, 8);
    places[Place::kWindow] = joint_planes(joint.data(), format, format.row_bytes() + 8);
    places[Place::kResident] = {{latents.data(), format.latent_bytes(), format.latent_bytes()},
                                {ropes.data(), format.rope_bytes(), format.rope_bytes()}};
  }
  WriteRowParams params() const {
    WriteRowParams p;
    p.rows = {range, 4};
    p.z = z.data();
    p.weight = weight.data();
    p.eps = 1e-6f;
    p.cos_table = cos_table.data();
    p.sin_table = sin_table.data();
    p.format = format;
    p.dest = dest;
    p.places = places;
    return p;
  }
};

TEST(WriteRow, norms_the_latent_rotates_the_key_and_writes_both_planes_of_every_place) {
  for (DType type : {DType::kF32, DType::kBF16}) {
    for_each_backend([&](Backend backend) {
      WriteFixture fixture(type);
      const WriteRowParams p = fixture.params();
      run_op(write_row(backend), p, Order::kReverse);
      std::vector<float> normed(4 * 76);
      RmsNormParams norm;
      norm.rows = p.rows;
      norm.x = fixture.z.data();
      norm.x_stride = norm.y_stride = 76;
      norm.weight = p.weight;
      norm.width = 70;
      norm.eps = p.eps;
      norm.y = normed.data();
      run_op(rms_norm(backend), norm);
      for (size_t m : {0u, 2u, 3u}) {
        for (size_t j = 0; j < 3; ++j) {
          const float a = fixture.z[m * 76 + 70 + 2 * j], b = fixture.z[m * 76 + 71 + 2 * j];
          const float c = fixture.cos_table[m * 3 + j], s = fixture.sin_table[m * 3 + j];
          normed[m * 76 + 70 + 2 * j] = a * c - b * s;
          normed[m * 76 + 71 + 2 * j] = b * c + a * s;
        }
        const RowPlanes& planes = fixture.places[fixture.dest[m].place];
        for (size_t i = 0; i < 76; ++i) {
          const size_t bytes = dtype_bytes(type);
          const std::byte* at = i < 70 ? planes.latent.row(fixture.dest[m].index) + i * bytes
                                       : planes.rope.row(fixture.dest[m].index) + (i - 70) * bytes;
          const float value = normed[m * 76 + i];
          const uint16_t bits = f32_to_bf16(value);
          EXPECT_EQ(std::memcmp(at, type == DType::kF32 ? static_cast<const void*>(&value) : &bits, bytes), 0)
              << m << " " << i;
        }
      }
      const size_t stride = static_cast<size_t>(fixture.format.row_bytes()) + 8;
      for (size_t i = stride; i < 2 * stride; ++i)
        ASSERT_EQ(fixture.joint[i], std::byte{0xa5}) << "row 1 has no writer";
      for (size_t i = stride - 8; i < stride; ++i) ASSERT_EQ(fixture.joint[i], std::byte{0xa5}) << "between rows";
    });
  }
}

TEST(WriteRow, declares_the_very_rows_it_writes) {
  WriteFixture fixture(DType::kBF16);
  const WriteRowParams p = fixture.params();
  device::AccessList list;
  write_row(Backend::kCpu).declare(&p, list);
  EXPECT_TRUE(declared(list, fixture.latents.data() + 140, 140, true));
  EXPECT_TRUE(declared(list, fixture.ropes.data() + 12, 12, true));
  EXPECT_FALSE(declared(list, fixture.latents.data(), 140, true));
  EXPECT_FALSE(declared(list, fixture.ropes.data() + 2 * 12, 12, true));
  EXPECT_TRUE(declared(list, fixture.joint.data(), 140, true));
  EXPECT_FALSE(declared(list, fixture.joint.data() + 160, 140, true));
  EXPECT_TRUE(declared(list, fixture.joint.data() + 2 * 160, 140, true));
  EXPECT_FALSE(declared(list, fixture.joint.data() + 152, 1, true));
  EXPECT_EQ(write_row(Backend::kCpu).cost(&p).write_bytes, 3u * 152);
}

}  // namespace
}  // namespace tidepool::nn
