#include "nn/moe.h"

#include "nn/nn_cases.h"

namespace tidepool::nn {
namespace {

float sigmoid(float v) { return 1.0f / (1.0f + std::exp(-v)); }

struct Routed {
  std::vector<int32_t> expert;
  std::vector<float> weight;
};

// One row unless `rows` says otherwise; logits and bias as given.
Routed run_route(const std::vector<float>& logits, const std::vector<float>& bias, RouteParams p, int32_t rows = 1) {
  const int32_t range[2] = {0, rows};
  Routed routed{std::vector<int32_t>(static_cast<size_t>(rows * p.experts_per_token), -9),
                std::vector<float>(static_cast<size_t>(rows * p.experts_per_token), poison())};
  p.rows = {range, rows};
  p.num_experts = static_cast<int32_t>(bias.size());
  p.logits = logits.data();
  p.bias = bias.data();
  p.expert = routed.expert.data();
  p.weight = routed.weight.data();
  run_op(route(Backend::kCpu), p, Order::kReverse);
  return routed;
}

RouteParams choose(int32_t count) {
  RouteParams p;
  p.experts_per_token = count;
  return p;
}

TEST(Route, lists_experts_by_biased_score_and_weighs_them_by_unbiased_score) {
  RouteParams p = choose(2);
  p.scaling = 2.5f;
  const Routed routed = run_route({2, 1, 0, -1}, {0, 0, 0, 1}, p);
  EXPECT_EQ(routed.expert, (std::vector<int32_t>{3, 0}));
  const float a = sigmoid(-1), b = sigmoid(2);
  EXPECT_FLOAT_EQ(routed.weight[0], a / (a + b) * 2.5f);
  EXPECT_FLOAT_EQ(routed.weight[1], b / (a + b) * 2.5f);
}

TEST(Route, takes_the_lower_id_of_equal_scores) {
  EXPECT_EQ(run_route({1, 1, 1, 1, 1}, std::vector<float>(5, 0.5f), choose(3)).expert, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(run_route({0, 1, 0, 1, 0}, std::vector<float>(5, 0.0f), choose(3)).expert, (std::vector<int32_t>{1, 3, 0}));
}

TEST(Route, does_not_normalise_when_the_model_does_not) {
  RouteParams p = choose(2);
  p.norm_topk_prob = 0;
  p.scaling = 3;
  const Routed routed = run_route({0, 5, 1}, {0, 0, 0}, p);
  EXPECT_EQ(routed.weight, (std::vector<float>{sigmoid(5) * 3, sigmoid(1) * 3}));
}

TEST(Route, keeps_the_best_groups_by_the_sum_of_their_two_best) {
  RouteParams p = choose(3);
  p.num_groups = 3;
  p.groups_kept = 1;
  // Group 0 has the best expert, group 1 the best pair.
  EXPECT_EQ(run_route({9, -9, -9, 1, 1, 0, 0, 0, 0}, std::vector<float>(9, 0.0f), p).expert,
            (std::vector<int32_t>{3, 4, 5}));
  p.groups_kept = 2;  // then group 2: 2 sigmoid(0.6) against sigmoid(9) + sigmoid(-9) = 1
  EXPECT_EQ(run_route({9, -9, -9, 1, 1, 0, 0.6f, 0.6f, 0}, std::vector<float>(9, 0.0f), p).expert,
            (std::vector<int32_t>{3, 4, 6}));
}

TEST(Route, prefers_the_lower_group_of_equal_ones_and_excludes_the_others_even_if_their_scores_are_higher) {
  RouteParams p = choose(2);
  p.num_groups = 2;
  p.groups_kept = 1;
  EXPECT_EQ(run_route({1, 1, 1, 1}, {0, 0, 0, 0}, p).expert, (std::vector<int32_t>{0, 1}));
  // Negative biased scores: an excluded expert must not win as a 0 would.
  EXPECT_EQ(run_route({0, 0, 0, 0}, {-2, -2, -1, -9}, p).expert, (std::vector<int32_t>{0, 1}));
}

// The biases of one published model are about 34.5 +- 0.14; in bf16 they would be all but equal.
TEST(Route, resolves_small_differences_of_large_biases) {
  const int32_t rows = 50, experts = 64;
  const std::vector<float> logits = random_floats(static_cast<size_t>(rows * experts), 1, -0.05f, 0.05f);
  const std::vector<float> bias = random_floats(static_cast<size_t>(experts), 2, 34.4f, 34.6f);
  const Routed routed = run_route(logits, bias, choose(8), rows);
  for (int32_t m = 0; m < rows; ++m) {
    std::vector<int32_t> order(static_cast<size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    const auto score = [&](int32_t e) {
      return sigmoid(logits[static_cast<size_t>(m * experts + e)]) + bias[static_cast<size_t>(e)];
    };
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return score(a) > score(b); });
    float sum = 0;
    for (size_t j = 0; j < 8; ++j) {
      ASSERT_EQ(routed.expert[static_cast<size_t>(m) * 8 + j], order[j]) << "row " << m;
      sum += routed.weight[static_cast<size_t>(m) * 8 + j];
    }
    EXPECT_NEAR(sum, 1, 1e-6f);
  }
}

TEST(Route, still_chooses_distinct_experts_when_logits_are_nan) {
  const Routed some = run_route({NAN, 1, NAN, 2}, {0, 0, 0, 0}, choose(3));
  EXPECT_EQ(some.expert, (std::vector<int32_t>{3, 1, 0}));
  EXPECT_TRUE(std::isnan(some.weight[0])) << "the row is lost, and must say so";
  EXPECT_EQ(run_route({NAN, NAN, NAN}, {0, 0, 0}, choose(2)).expert, (std::vector<int32_t>{0, 1}));
}

TEST(Route, of_a_row_does_not_depend_on_the_other_rows) {
  const std::vector<float> logits = random_floats(10 * 16, 3, -3, 3), bias = random_floats(16, 4);
  RouteParams p = choose(4);
  p.num_groups = 4;
  p.groups_kept = 2;
  const Routed all = run_route(logits, bias, p, 10);
  for (size_t m = 0; m < 10; ++m) {
    const auto begin = logits.begin() + static_cast<ptrdiff_t>(16 * m);
    const Routed one = run_route(std::vector<float>(begin, begin + 16), bias, p);
    EXPECT_TRUE(std::equal(one.expert.begin(), one.expert.end(), all.expert.begin() + static_cast<ptrdiff_t>(4 * m)));
    EXPECT_EQ(std::memcmp(one.weight.data(), &all.weight[4 * m], 16), 0);
  }
}

struct Lists {
  std::vector<int32_t> offset, entry;
};

Lists run_list(const std::vector<int32_t>& expert, int32_t num_experts, int32_t per_token, int32_t begin, int32_t end) {
  Lists lists{std::vector<int32_t>(static_cast<size_t>(num_experts + 1), -9), std::vector<int32_t>(expert.size(), -9)};
  const int32_t range[2] = {begin, end};
  ExpertListParams p;
  p.rows = {range, static_cast<int32_t>(expert.size()) / per_token};
  p.num_experts = num_experts;
  p.experts_per_token = per_token;
  p.expert = expert.data();
  p.offset = lists.offset.data();
  p.entry = lists.entry.data();
  run_op(expert_list(Backend::kCpu), p);
  return lists;
}

TEST(ExpertList, gives_every_expert_its_entries_in_ascending_order) {
  const Lists lists = run_list({2, 0, /**/ 0, 3, /**/ 2, 3}, 5, 2, 0, 3);
  EXPECT_EQ(lists.offset, (std::vector<int32_t>{0, 2, 2, 4, 6, 6}));
  EXPECT_EQ(lists.entry, (std::vector<int32_t>{1, 2, 0, 4, 3, 5}));
}

TEST(ExpertList, counts_the_rows_of_the_range_only) {
  const Lists lists = run_list({9, 9, /**/ 1, 0, /**/ 1, 1, /**/ 9, 9}, 2, 2, 1, 3);
  EXPECT_EQ(lists.offset, (std::vector<int32_t>{0, 1, 4}));
  EXPECT_EQ(lists.entry, (std::vector<int32_t>{3, 2, 4, 5, -9, -9, -9, -9}));
  EXPECT_EQ(run_list({1, 0}, 2, 2, 0, 0).offset, (std::vector<int32_t>{0, 0, 0}));
}

}  // namespace
}  // namespace tidepool::nn
