#include "nn/moe.h"

#include <optional>

#include "nn/nn_cases.h"

namespace tidepool::nn {
namespace {

struct MoeCase {
  DType type;
  int32_t hidden, width, shared_width, experts, per_token, begin, end;
};

// Corner cases first; shared_width 0: no shared expert; experts 0: a dense MLP.
const std::vector<MoeCase> kCases = {
    {DType::kF32, 1, 1, 1, 1, 1, 0, 1},        {DType::kBF16, 40, 0, 33, 0, 0, 0, 1},
    {DType::kBF16, 40, 70, 0, 6, 2, 0, 0},     {DType::kBF16, 33, 40, 0, 6, 2, 2, 3},
    {DType::kBF16, 70, 33, 66, 5, 2, 0, 3},    {DType::kF8E4M3, 130, 130, 64, 4, 3, 1, 8},
    {DType::kF32, 65, 20, 97, 3, 1, 0, 70},    {DType::kBF16, 520, 550, 31, 2, 2, 3, 17},
    {DType::kBF16, 16, 24, 24, 300, 4, 0, 90},
};

std::string name_of(const MoeCase& c) {
  return std::string(dtype_name(c.type)) + " hidden " + std::to_string(c.hidden) + " width " + std::to_string(c.width) +
         " shared " + std::to_string(c.shared_width) + " experts " + std::to_string(c.experts) + " rows " +
         std::to_string(c.begin) + ".." + std::to_string(c.end);
}

size_t product_of(int32_t a, int32_t b) { return static_cast<size_t>(a) * static_cast<size_t>(b); }

struct Outputs {
  std::vector<float> inner, shared_inner, out, shared_out;
};

// A layer with random choices; expert 0 is never chosen when there are two or more.
struct Fixture {
  MoeCase c;
  int32_t max_rows;
  std::vector<Matrix> memory;
  std::vector<ExpertMatrices> mlps;
  std::vector<float> x, weight;
  std::vector<int32_t> expert;

  explicit Fixture(const MoeCase& moe_case) : c(moe_case), max_rows(c.end + 1) {
    for (int32_t e = 0; e <= c.experts; ++e) {
      const int32_t width = e == c.experts ? c.shared_width : c.width;
      if (width == 0) continue;
      const uint32_t seed = static_cast<uint32_t>(3 * e + 1);
      memory.emplace_back(c.type, width, c.hidden, seed);
      memory.emplace_back(c.type, width, c.hidden, seed + 1);
      memory.emplace_back(c.type, c.hidden, width, seed + 2);
    }
    for (size_t i = 0; i < memory.size(); i += 3) {
      if (c.type == DType::kF8E4M3) {
        for (size_t j = i; j < i + 3; ++j) std::fill(memory[j].scale().begin(), memory[j].scale().end(), 1e-3f);
      }
      mlps.push_back({memory[i].view(), memory[i + 1].view(), memory[i + 2].view()});
    }
    x = random_floats(product_of(max_rows, c.hidden), 90);
    weight = random_floats(product_of(max_rows, c.per_token), 91);
    std::mt19937 engine(92);
    for (int32_t i = 0; i < max_rows * c.per_token; ++i) {
      expert.push_back(c.experts < 2 ? 0 : 1 + static_cast<int32_t>(engine() % static_cast<uint32_t>(c.experts - 1)));
    }
  }

  ExpertParams params(Outputs& o, const int32_t* range, const std::vector<int32_t>& offset,
                      const std::vector<int32_t>& entry) const {
    ExpertParams p;
    p.rows = {range, max_rows};
    p.num_experts = c.experts;
    p.experts_per_token = c.per_token;
    p.has_shared = c.shared_width > 0;
    p.hidden = c.hidden;
    p.width = c.width;
    p.shared_width = c.shared_width;
    p.experts = mlps.data();
    p.offset = offset.data();
    p.entry = entry.data();
    p.x = x.data();
    p.inner = o.inner.data();
    p.shared_inner = o.shared_inner.data();
    p.out = o.out.data();
    p.shared_out = o.shared_out.data();
    return p;
  }

  Outputs run(Backend backend, int32_t begin, int32_t end, Order order = Order::kForward,
              device::Cost* costs = nullptr) const {
    const int32_t range[2] = {begin, end};
    std::vector<int32_t> offset(static_cast<size_t>(c.experts + 1), 0), entry(expert.size() + 1, -9);
    ExpertListParams list{{range, max_rows}, c.experts, c.per_token, expert.data(), offset.data(), entry.data()};
    run_op(expert_list(backend), list);
    Outputs o;
    o.inner.assign(product_of(max_rows * c.per_token, c.width), poison());
    o.shared_inner.assign(product_of(max_rows, c.shared_width), poison());
    o.out.assign(product_of(max_rows * c.per_token, c.hidden), poison());
    o.shared_out.assign(product_of(c.shared_width > 0 ? max_rows : 0, c.hidden), poison());
    const ExpertParams p = params(o, range, offset, entry);
    run_op(expert_up(backend), p, order);
    run_op(expert_down(backend), p, order);
    if (costs != nullptr) {
      costs[0] = expert_up(backend).cost(&p);
      costs[1] = expert_down(backend).cost(&p);
    }
    return o;
  }
};

// Rows outside [begin, end) keep their poison, the others agree to `tolerance` of the largest expected value.
void expect_close(const std::vector<float>& actual, const std::vector<float>& expected, size_t row_values,
                  int32_t begin, int32_t end, float tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  float largest = 0;
  for (float v : expected) largest = is_poison(v) ? largest : std::max(largest, std::fabs(v));
  for (size_t i = 0; i < actual.size(); ++i) {
    const int32_t m = static_cast<int32_t>(i / row_values);
    if (m < begin || m >= end) {
      ASSERT_TRUE(is_poison(actual[i])) << i;
    } else {
      ASSERT_NEAR(actual[i], expected[i], tolerance * largest) << i;
    }
  }
}

TEST(Experts, agree_with_the_reference_on_every_target_and_write_the_rows_of_the_range_only) {
  for (const MoeCase& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const Fixture fixture(c);
    std::optional<Outputs> reference;  // computed once, after the first run of the kernels
    for_each_target([&](const std::string&) {
      const Outputs actual = fixture.run(Backend::kCpu, c.begin, c.end);
      if (!reference) reference = fixture.run(Backend::kRef, c.begin, c.end);
      const Outputs& expected = *reference;
      const float tolerance = 10 * kSiluTolerance;  // of the largest value
      expect_close(actual.inner, expected.inner, product_of(c.per_token, c.width), c.begin, c.end, tolerance);
      expect_close(actual.out, expected.out, product_of(c.per_token, c.hidden), c.begin, c.end, tolerance);
      expect_close(actual.shared_inner, expected.shared_inner, product_of(1, c.shared_width), c.begin, c.end,
                   tolerance);
      expect_close(actual.shared_out, expected.shared_out, product_of(1, c.hidden), c.begin, c.end, tolerance);
    });
  }
}

TEST(Experts, give_the_same_bits_in_any_order_of_pieces) {
  for (const MoeCase& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const Fixture fixture(c);
    for_each_target([&](const std::string&) {
      const Outputs forward = fixture.run(Backend::kCpu, c.begin, c.end);
      for (Order order : {Order::kReverse, Order::kShuffled}) {
        const Outputs other = fixture.run(Backend::kCpu, c.begin, c.end, order);
        EXPECT_TRUE(same_bits(forward.inner, other.inner) && same_bits(forward.out, other.out));
        EXPECT_TRUE(same_bits(forward.shared_inner, other.shared_inner) &&
                    same_bits(forward.shared_out, other.shared_out));
      }
    });
  }
}

TEST(Experts, of_a_row_do_not_depend_on_the_other_rows) {
  for (const MoeCase& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const Fixture fixture(c);
    for_each_target([&](const std::string&) {
      const Outputs together = fixture.run(Backend::kCpu, c.begin, c.end);
      for (int32_t m = c.begin; m < c.end; m += 1 + (c.end - c.begin) / 20) {
        const Outputs alone = fixture.run(Backend::kCpu, m, m + 1);
        const auto same_row = [&](const std::vector<float>& a, const std::vector<float>& b, size_t values) {
          return values == 0 ||
                 std::memcmp(&a[static_cast<size_t>(m) * values], &b[static_cast<size_t>(m) * values], values * 4) == 0;
        };
        if (c.experts > 0) {
          ASSERT_TRUE(same_row(together.inner, alone.inner, product_of(c.per_token, c.width))) << m;
          ASSERT_TRUE(same_row(together.out, alone.out, product_of(c.per_token, c.hidden))) << m;
        }
        if (c.shared_width > 0) {
          ASSERT_TRUE(same_row(together.shared_inner, alone.shared_inner, product_of(1, c.shared_width))) << m;
          ASSERT_TRUE(same_row(together.shared_out, alone.shared_out, product_of(1, c.hidden))) << m;
        }
      }
    });
  }
}

TEST(Experts, have_the_value_that_a_hand_computes) {
  const Matrix gate = Matrix::of_floats(1, 1, {1}), up = Matrix::of_floats(1, 1, {2}),
               down = Matrix::of_floats(1, 1, {3});
  const ExpertMatrices mlp{gate.view(), up.view(), down.view()};
  const int32_t range[2] = {0, 5};
  const std::vector<float> x = {1, 0, -1, 1000, -1000};
  for (Backend backend : {Backend::kCpu, Backend::kRef}) {
    std::vector<float> inner(5, poison()), out(5, poison());
    ExpertParams p;
    p.rows = {range, 5};
    p.has_shared = 1;
    p.hidden = p.shared_width = 1;
    p.experts = &mlp;
    p.x = x.data();
    p.shared_inner = inner.data();
    p.shared_out = out.data();
    run_op(expert_up(backend), p);
    run_op(expert_down(backend), p);
    EXPECT_NEAR(out[0], 0.73105858f * 2 * 3, 3e-6f);
    EXPECT_EQ(out[1], 0);
    EXPECT_NEAR(out[2], -0.26894142f * -2 * 3, 2e-6f);
    EXPECT_EQ(out[3], 6e6f);
    EXPECT_NEAR(out[4], 0, 1e-30f);
  }
}

// silu through the kernel for every exponent, against double.
TEST(Experts, compute_silu_to_half_a_millionth) {
  const Matrix one = Matrix::of_floats(1, 1, {1});
  std::vector<float> x;
  for (float v = 1e-30f; v < 200; v *= 1.03f) x.insert(x.end(), {v, -v});
  x.push_back(NAN);
  const int32_t rows = static_cast<int32_t>(x.size()), range[2] = {0, rows};
  const Matrix constant = Matrix::of_floats(1, 1, {1});
  for_each_target([&](const std::string&) {
    std::vector<float> inner(x.size(), poison());
    const ExpertMatrices mlp{one.view(), constant.view(), one.view()};
    ExpertParams p;
    p.rows = {range, rows};
    p.has_shared = 1;
    p.hidden = p.shared_width = 1;
    p.experts = &mlp;
    p.x = x.data();
    p.shared_inner = inner.data();
    run_op(expert_up(Backend::kCpu), p);
    for (size_t i = 0; i + 1 < x.size(); ++i) {
      const double v = static_cast<double>(x[i]), expected = v / (1 + std::exp(-v)) * v;
      ASSERT_NEAR(static_cast<double>(inner[i]), expected,
                  static_cast<double>(kSiluTolerance) * std::fabs(expected) + 1e-34)
          << v;
    }
    EXPECT_TRUE(std::isnan(inner.back()));
  });
}

TEST(Experts, of_another_rank_leave_zeros) {
  const MoeCase c{DType::kBF16, 40, 24, 24, 3, 2, 0, 4};
  Fixture fixture(c);
  fixture.mlps[1] = {};  // routed to, held elsewhere
  fixture.mlps[3] = {};  // the shared one
  for (Backend backend : {Backend::kCpu, Backend::kRef}) {
    const Outputs o = fixture.run(backend, 0, 4);
    for (int32_t entry = 0; entry < 8; ++entry) {
      bool all_zero = true;
      for (int32_t i = 0; i < 40; ++i)
        all_zero = all_zero && o.out[product_of(entry, 40) + static_cast<size_t>(i)] == 0;
      EXPECT_EQ(all_zero, fixture.expert[static_cast<size_t>(entry)] == 1) << entry;
    }
    for (int32_t i = 0; i < 4 * 40; ++i) EXPECT_EQ(o.shared_out[static_cast<size_t>(i)], 0);
  }
}

TEST(Experts, count_the_weights_of_the_chosen_ones_once) {
  const MoeCase c{DType::kBF16, 64, 32, 96, 8, 2, 0, 2};
  Fixture fixture(c);
  fixture.expert = {3, 5, 3, 6, 0, 0};
  device::Cost costs[2];
  fixture.run(Backend::kCpu, 0, 2, Order::kForward, costs);
  EXPECT_EQ(costs[0].multiply_adds, 2u * (4 * 32 + 2 * 96) * 64);
  EXPECT_EQ(costs[1].multiply_adds, (4u * 32 + 2 * 96) * 64);
  EXPECT_EQ(costs[0].read_bytes, 2u * (3 * 32 + 96) * 64 * 2 + (4 + 2) * 64 * 4 + (9 + 4) * 4);
  EXPECT_EQ(costs[0].write_bytes, (4u * 32 + 2 * 96) * 4);
  EXPECT_EQ(costs[1].write_bytes, (4u + 2) * 64 * 4);
}

TEST(Combine, equals_the_reference_in_any_order) {
  for (const auto& [hidden, per_token, shared, begin, end] : std::vector<std::array<int32_t, 5>>{
           {1, 1, 0, 0, 1}, {33, 0, 1, 0, 2}, {40, 2, 1, 1, 1}, {70, 8, 1, 1, 4}, {4101, 3, 0, 0, 2}}) {
    SCOPED_TRACE("hidden " + std::to_string(hidden) + " experts " + std::to_string(per_token));
    const int32_t max_rows = end + 1, range[2] = {begin, end};
    const std::vector<float> out = random_floats(product_of(max_rows * per_token, hidden), 1);
    const std::vector<float> shared_out = random_floats(product_of(max_rows, hidden), 2);
    const std::vector<float> weight = random_floats(product_of(max_rows, per_token), 3);
    const std::vector<float> x_before = random_floats(product_of(max_rows, hidden), 4);
    const auto run = [&](Backend backend, Order order) {
      std::vector<float> x = x_before;
      run_op(combine(backend),
             CombineParams{
                 {range, max_rows}, hidden, per_token, shared, weight.data(), out.data(), shared_out.data(), x.data()},
             order);
      return x;
    };
    for_each_target([&](const std::string& target) {
      const std::vector<float> x = run(Backend::kCpu, Order::kForward), expected = run(Backend::kRef, Order::kForward);
      if (is_fused(target)) {
        EXPECT_TRUE(same_bits(x, expected));
      }
      EXPECT_TRUE(same_bits(x, run(Backend::kCpu, Order::kReverse)));
      for (size_t i = 0; i < x.size(); ++i) {
        const int32_t m = static_cast<int32_t>(i) / hidden;
        ASSERT_NEAR(x[i], m < begin || m >= end ? x_before[i] : expected[i], 10 * kSumTolerance);
      }
    });
  }
}

TEST(Combine, adds_the_weighted_experts_then_the_shared_one) {
  const int32_t range[2] = {0, 1};
  const std::vector<float> weight = {2, 3}, out = {10, 100}, shared = {7};
  for (Backend backend : {Backend::kCpu, Backend::kRef}) {
    std::vector<float> x = {1};
    run_op(combine(backend), CombineParams{{range, 1}, 1, 2, 1, weight.data(), out.data(), shared.data(), x.data()});
    EXPECT_EQ(x[0], 1 + 20 + 300 + 7);
  }
}

}  // namespace
}  // namespace tidepool::nn
