#include "nn/product.h"

#include "nn/nn_cases.h"

namespace tidepool::nn {
namespace {

using device::Part;

struct ProductCase {
  DType type;
  int32_t n, k, begin, end;
  bool add = false;
};

// Corner cases first: outputs around a panel, inputs around a k-block, rows around a register tile and a row block.
const std::vector<ProductCase> kCases = {
    {DType::kBF16, 1, 1, 0, 1},       {DType::kBF16, 31, 7, 2, 3},          {DType::kBF16, 33, 3, 0, 0},
    {DType::kBF16, 32, 511, 0, 2},    {DType::kBF16, 64, 512, 1, 5, true},  {DType::kBF16, 65, 513, 0, 6},
    {DType::kBF16, 160, 1025, 3, 16}, {DType::kBF16, 96, 40, 0, 64},        {DType::kBF16, 40, 600, 5, 70, true},
    {DType::kBF16, 20, 16, 0, 129},   {DType::kF32, 1, 2, 0, 1, true},      {DType::kF32, 63, 5, 0, 3},
    {DType::kF32, 70, 700, 0, 4},     {DType::kF32, 33, 1024, 1, 13, true}, {DType::kF32, 130, 129, 0, 25},
    {DType::kF8E4M3, 1, 1, 0, 1},     {DType::kF8E4M3, 130, 127, 0, 1},     {DType::kF8E4M3, 129, 129, 2, 4, true},
    {DType::kF8E4M3, 260, 640, 0, 7}, {DType::kF8E4M3, 40, 1030, 0, 66},
};

std::string name_of(const ProductCase& c) {
  return std::string(dtype_name(c.type)) + " n " + std::to_string(c.n) + " k " + std::to_string(c.k) + " rows " +
         std::to_string(c.begin) + ".." + std::to_string(c.end) + (c.add ? " add" : "");
}

struct Fixture {
  int32_t max_rows, x_stride, y_stride, n;
  int32_t range[2];
  bool add;
  Matrix matrix;
  std::vector<float> x, y_before;

  explicit Fixture(const ProductCase& c, uint32_t seed = 7)
      : max_rows(c.end + 2),
        x_stride(c.k + 3),
        y_stride(c.n + 5),
        n(c.n),
        range{c.begin, c.end},
        add(c.add),
        matrix(c.type, c.n, c.k, seed),
        x(random_floats(size(max_rows, x_stride), seed + 1)),
        y_before(size(max_rows, y_stride), poison()) {
    if (!add) return;
    const std::vector<float> old = random_floats(y_before.size(), seed + 2);
    for (int32_t m = c.begin; m < c.end; ++m) {
      for (int32_t i = 0; i < n; ++i) y_before[at(m, i)] = old[at(m, i)];
    }
  }
  static size_t size(int32_t rows, int32_t stride) { return static_cast<size_t>(rows) * static_cast<size_t>(stride); }
  size_t at(int32_t m, int32_t i) const { return size(m, y_stride) + static_cast<size_t>(i); }
  ProductParams params(std::vector<float>& y, const int32_t* rows) const {
    ProductParams p;
    p.rows = {rows, max_rows};
    p.x = x.data();
    p.x_stride = x_stride;
    p.num_segments = 1;
    p.segments[0] = {matrix.view(), y.data(), y_stride, add ? 1 : 0};
    return p;
  }
  std::vector<float> run(Backend backend, Order order = Order::kForward) const {
    return run_rows(backend, range, order);
  }
  std::vector<float> run_rows(Backend backend, const int32_t* rows, Order order = Order::kForward) const {
    std::vector<float> y = y_before;
    run_op(product(backend, Part::kProjection), params(y, rows), order);
    return y;
  }
  // Sum of magnitudes of the terms of one output: the yardstick of rounding errors.
  float magnitude(int32_t m, int32_t i) const {
    std::vector<float> absolute(static_cast<size_t>(matrix.view().k));
    float sum = add ? std::fabs(y_before[at(m, i)]) : 0.0f;
    for (size_t k = 0; k < absolute.size(); ++k) sum += std::fabs(x[size(m, x_stride) + k]);
    const float largest = matrix.view().type == DType::kF8E4M3 ? 448 * 0.3f : 1.0f;
    return sum * largest + 1e-30f;
  }
};

TEST(Product, equals_the_reference_on_every_target_and_writes_nothing_else) {
  for (const ProductCase& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const Fixture fixture(c);
    std::vector<float> expected;  // computed once, after the first run of the kernels
    for_each_target([&](const std::string& target) {
      const std::vector<float> y = fixture.run(Backend::kCpu);
      if (expected.empty()) expected = fixture.run(Backend::kRef);
      if (is_fused(target)) {
        EXPECT_TRUE(same_bits(y, expected));
      }
      for (int32_t m = 0; m < fixture.max_rows; ++m) {
        for (int32_t i = 0; i < fixture.y_stride; ++i) {
          const size_t at = fixture.at(m, i);
          const bool inside = m >= c.begin && m < c.end && i < c.n;
          if (!inside) {
            ASSERT_TRUE(is_poison(y[at])) << m << " " << i;
          } else {
            ASSERT_NEAR(y[at], expected[at], kSumTolerance * fixture.magnitude(m, i)) << m << " " << i;
          }
        }
      }
    });
  }
}

TEST(Product, gives_the_same_bits_in_any_order_of_pieces) {
  for (const ProductCase& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const Fixture fixture(c);
    for_each_target([&](const std::string&) {
      const std::vector<float> forward = fixture.run(Backend::kCpu);
      EXPECT_TRUE(same_bits(forward, fixture.run(Backend::kCpu, Order::kReverse)));
      EXPECT_TRUE(same_bits(forward, fixture.run(Backend::kCpu, Order::kShuffled)));
    });
  }
}

TEST(Product, of_a_row_does_not_depend_on_the_other_rows) {
  std::mt19937 engine(11);
  for (int round = 0; round < 40; ++round) {
    const DType types[] = {DType::kBF16, DType::kF32, DType::kF8E4M3};
    ProductCase c{types[round % 3],
                  static_cast<int32_t>(1 + engine() % 150),
                  static_cast<int32_t>(1 + engine() % 1100),
                  static_cast<int32_t>(engine() % 4),
                  0,
                  engine() % 2 == 0};
    c.end = c.begin + 1 + static_cast<int32_t>(engine() % (round % 4 == 0 ? 140 : 20));
    SCOPED_TRACE(name_of(c));
    const Fixture fixture(c, static_cast<uint32_t>(100 + round));
    for_each_target([&](const std::string&) {
      const std::vector<float> together = fixture.run(Backend::kCpu);
      for (int32_t m = c.begin; m < c.end; ++m) {
        const int32_t one[2] = {m, m + 1};
        const std::vector<float> alone = fixture.run_rows(Backend::kCpu, one);
        ASSERT_EQ(std::memcmp(&together[fixture.at(m, 0)], &alone[fixture.at(m, 0)],
                              sizeof(float) * static_cast<size_t>(c.n)),
                  0)
            << "row " << m;
      }
    });
  }
}

TEST(Product, of_several_segments_equals_one_product_each) {
  const Matrix matrices[3] = {Matrix(DType::kBF16, 70, 600, 1), Matrix(DType::kF32, 33, 600, 2),
                              Matrix(DType::kF8E4M3, 5, 600, 3)};
  const std::vector<float> x = random_floats(20 * 600, 4);
  for (int32_t rows : {1, 3, 20}) {
    const int32_t range[2] = {0, rows};
    for_each_target([&](const std::string&) {
      ProductParams all;
      all.rows = {range, 20};
      all.x = x.data();
      all.x_stride = 600;
      all.num_segments = 3;
      std::vector<float> y[3];
      for (size_t i = 0; i < 3; ++i) {
        const PackedMatrix w = matrices[i].view();
        y[i].assign(20 * static_cast<size_t>(w.n), poison());
        all.segments[i] = {w, y[i].data(), w.n, 0};
      }
      run_op(product(Backend::kCpu, Part::kIndexer), all, Order::kShuffled);
      for (size_t i = 0; i < 3; ++i) {
        std::vector<float> alone(y[i].size(), poison());
        ProductParams one = all;
        one.num_segments = 1;
        one.segments[0] = all.segments[i];
        one.segments[0].y = alone.data();
        run_op(product(Backend::kCpu, Part::kIndexer), one);
        EXPECT_TRUE(same_bits(y[i], alone)) << "segment " << i;
      }
    });
  }
}

TEST(Product, has_the_values_that_a_hand_computes) {
  const Matrix w = Matrix::of_floats(2, 3, {1, 2, 3, -4, 5, 0.5f});
  const std::vector<float> x = {10, 20, 30};
  const int32_t range[2] = {0, 1};
  for (Backend backend : {Backend::kRef, Backend::kCpu}) {
    std::vector<float> y = {1, 2};
    ProductParams p;
    p.rows = {range, 1};
    p.x = x.data();
    p.x_stride = 3;
    p.num_segments = 1;
    p.segments[0] = {w.view(), y.data(), 2, 1};
    run_op(product(backend, Part::kHead), p);
    EXPECT_EQ(y, (std::vector<float>{1 + 140, 2 + 75}));
  }
}

// Every code of e4m3, NaN and subnormals included, through the kernels: row n of W is code n at k = 0.
// With the promise of no NaN the two NaN codes are left out.
TEST(Product, widens_every_fp8_code_as_dtype_says) {
  std::vector<std::byte> codes(256);
  for (size_t i = 0; i < 256; ++i) codes[i] = static_cast<std::byte>(i);
  for (float scale : {1.0f, 0.37f, 200.0f, 1e-30f}) {
    Matrix w(DType::kF8E4M3, 256, 1, codes);
    std::fill(w.scale().begin(), w.scale().end(), scale);
    for (const auto& [rows, no_nan] :
         std::vector<std::pair<int32_t, int32_t>>{{1, 0}, {2, 0}, {4, 0}, {13, 0}, {1, 1}, {13, 1}}) {
      const std::vector<float> x(static_cast<size_t>(rows), 1.0f);
      const int32_t range[2] = {0, rows};
      for_each_target([&, rows = rows, no_nan = no_nan](const std::string&) {
        std::vector<float> y(256 * static_cast<size_t>(rows), poison());
        ProductParams p;
        p.rows = {range, rows};
        p.x = x.data();
        p.x_stride = 1;
        p.num_segments = 1;
        p.segments[0] = {w.view(), y.data(), 256, 0};
        p.segments[0].w.no_nan = no_nan;
        run_op(product(Backend::kCpu, Part::kProjection), p);
        for (size_t i = 0; i < y.size(); ++i) {
          const float expected = f8e4m3_to_f32(static_cast<uint8_t>(i % 256)) * scale;
          if (std::isnan(expected) && no_nan) continue;
          if (std::isnan(expected)) {
            ASSERT_TRUE(std::isnan(y[i])) << i % 256;
          } else {
            ASSERT_EQ(y[i], expected) << i % 256;
          }
        }
      });
    }
  }
}

TEST(Product, passes_infinities_and_nan_of_x_on_to_the_outputs_of_that_row_only) {
  const Matrix w(DType::kBF16, 40, 9, 3);
  std::vector<float> x = random_floats(3 * 9, 5);
  x[9 + 4] = NAN;
  const int32_t range[2] = {0, 3};
  for_each_target([&](const std::string&) {
    std::vector<float> y(3 * 40, poison());
    ProductParams p;
    p.rows = {range, 3};
    p.x = x.data();
    p.x_stride = 9;
    p.num_segments = 1;
    p.segments[0] = {w.view(), y.data(), 40, 0};
    run_op(product(Backend::kCpu, Part::kProjection), p);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 40 == 1) << i;
  });
}

struct HeadFixture {
  int32_t num_heads, n, k, max_rows, range[2];
  std::vector<Matrix> matrices;
  std::vector<PackedMatrix> heads;
  std::vector<float> x;
  HeadFixture(int32_t heads_count, int32_t outputs, int32_t inputs, int32_t begin, int32_t end)
      : num_heads(heads_count), n(outputs), k(inputs), max_rows(end + 1), range{begin, end} {
    for (int32_t h = 0; h < num_heads; ++h) {
      matrices.emplace_back(DType::kBF16, n, k, static_cast<uint32_t>(h + 1));
    }
    for (const Matrix& matrix : matrices) heads.push_back(matrix.view());
    x = random_floats(static_cast<size_t>(max_rows * num_heads * (k + 2)), 9);
  }
  std::vector<float> run(Backend backend, Order order, const int32_t* rows) const {
    std::vector<float> y(static_cast<size_t>(max_rows * num_heads * (n + 3)), poison());
    HeadProductParams p;
    p.rows = {rows, max_rows};
    p.num_heads = num_heads;
    p.heads = heads.data();
    p.x = x.data();
    p.x_head_stride = k + 2;
    p.x_stride = num_heads * (k + 2);
    p.y = y.data();
    p.y_head_stride = n + 3;
    p.y_stride = num_heads * (n + 3);
    run_op(head_product(backend), p, order);
    return y;
  }
};

TEST(HeadProduct, equals_the_reference_in_any_order_and_each_row_stands_alone) {
  for (const auto& [heads, n, k, begin, end] : std::vector<std::array<int32_t, 5>>{
           {1, 1, 1, 0, 1}, {3, 40, 24, 0, 0}, {4, 33, 192, 1, 2}, {2, 64, 520, 0, 5}, {5, 20, 16, 2, 70}}) {
    SCOPED_TRACE(std::to_string(heads) + " heads, rows " + std::to_string(begin) + ".." + std::to_string(end));
    const HeadFixture fixture(heads, n, k, begin, end);
    for_each_target([&](const std::string& target) {
      const std::vector<float> y = fixture.run(Backend::kCpu, Order::kForward, fixture.range);
      if (is_fused(target)) {
        EXPECT_TRUE(same_bits(y, fixture.run(Backend::kRef, Order::kForward, fixture.range)));
      }
      EXPECT_TRUE(same_bits(y, fixture.run(Backend::kCpu, Order::kReverse, fixture.range)));
      const size_t row = static_cast<size_t>(fixture.num_heads * (fixture.n + 3));
      for (int32_t m = fixture.range[0]; m < fixture.range[1]; m += 3) {
        const int32_t one[2] = {m, m + 1};
        const std::vector<float> alone = fixture.run(Backend::kCpu, Order::kForward, one);
        const size_t at = static_cast<size_t>(m) * row;
        ASSERT_EQ(std::memcmp(&y[at], &alone[at], row * sizeof(float)), 0) << "row " << m;
      }
    });
  }
}

TEST(Product, declares_its_bytes_and_counts_weights_once) {
  const Fixture fixture({DType::kF8E4M3, 130, 200, 1, 4, true});
  std::vector<float> y = fixture.y_before;
  const ProductParams p = fixture.params(y, fixture.range);
  const device::OpType& type = product(Backend::kCpu, Part::kHead);
  EXPECT_EQ(type.part, Part::kHead);
  device::AccessList list;
  type.declare(&p, list);
  const PackedMatrix w = fixture.matrix.view();
  EXPECT_TRUE(declared(list, fixture.range, 8, false));
  EXPECT_TRUE(declared(list, w.data, 5 * w.panel_bytes(), false));
  EXPECT_TRUE(declared(list, w.scale, 4 * sizeof(float), false));
  EXPECT_FALSE(declared(list, w.scale, 5 * sizeof(float), false));
  EXPECT_TRUE(declared(list, &y[0], (y.size() - 5) * sizeof(float), true));
  EXPECT_FALSE(declared(list, &y[0], (y.size() - 4) * sizeof(float), true));
  const device::Cost cost = type.cost(&p);
  EXPECT_EQ(cost.multiply_adds, 3u * 130 * 200);
  EXPECT_EQ(cost.read_bytes, 160u * 200 + 4 * 4 + 3 * 200 * 4 + 3 * 130 * 4);
  EXPECT_EQ(cost.write_bytes, 3u * 130 * 4);
}

TEST(Product, of_no_rows_has_no_pieces_and_costs_nothing) {
  const Fixture fixture({DType::kBF16, 40, 20, 3, 3});
  std::vector<float> y = fixture.y_before;
  const ProductParams p = fixture.params(y, fixture.range);
  for (Backend backend : {Backend::kRef, Backend::kCpu}) {
    const device::OpType& type = product(backend, Part::kProjection);
    EXPECT_EQ(type.num_pieces(&p), 0);
    EXPECT_EQ(type.cost(&p).read_bytes, 0u);
  }
}

}  // namespace
}  // namespace tidepool::nn
