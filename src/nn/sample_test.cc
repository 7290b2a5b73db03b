#include "nn/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace tidepool::nn {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::optional<int32_t> draw(const std::vector<float>& logits, const SamplingParams& params, double uniform) {
  std::vector<int32_t> ids;
  std::vector<double> p;
  return sample(logits, params, uniform, ids, p);
}

// How often each token is drawn by `count` evenly spaced uniforms: its probability to within 1 / count.
std::vector<double> shares(const std::vector<float>& logits, const SamplingParams& params, int count = 20000) {
  std::vector<double> result(logits.size(), 0.0);
  std::vector<int32_t> ids;
  std::vector<double> p;
  for (int i = 0; i < count; ++i) {
    const std::optional<int32_t> token = sample(logits, params, (i + 0.5) / count, ids, p);
    result[static_cast<size_t>(token.value())] += 1.0 / count;
  }
  return result;
}

void expect_shares(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1.5e-4) << "token " << i;
}

TEST(Greedy, takes_the_largest_and_of_equal_ones_the_lowest) {
  EXPECT_EQ(greedy(std::vector<float>{1, 3, 2}), 1);
  EXPECT_EQ(greedy(std::vector<float>{2, 3, 3, 1, 3}), 1);
  EXPECT_EQ(greedy(std::vector<float>{-0.0f, 0.0f}), 0);
  EXPECT_EQ(greedy(std::vector<float>{-kInf, -5, -kInf}), 1);
  EXPECT_EQ(greedy(std::vector<float>{1, kInf}), 1);
}

TEST(Greedy, is_empty_for_nan_for_nothing_but_minus_infinity_and_for_no_logits) {
  EXPECT_EQ(greedy(std::vector<float>{1, NAN, 2}), std::nullopt);
  EXPECT_EQ(greedy(std::vector<float>{9, 1, NAN}), std::nullopt);
  EXPECT_EQ(greedy(std::vector<float>{-kInf, -kInf}), std::nullopt);
  EXPECT_EQ(greedy(std::vector<float>{}), std::nullopt);
}

TEST(Sample, at_temperature_zero_is_greedy_whatever_the_uniform_number_is) {
  for (double uniform : {0.0, 0.5, 0.999999}) EXPECT_EQ(draw({1, 4, 4, 2}, {}, uniform), 1);
}

TEST(Sample, is_empty_when_greedy_is) {
  const SamplingParams params{.temperature = 1};
  EXPECT_EQ(draw({1, NAN}, params, 0.5), std::nullopt);
  EXPECT_EQ(draw({-kInf, -kInf}, params, 0.5), std::nullopt);
}

TEST(Sample, draws_each_token_with_the_probability_of_the_softmax) {
  const std::vector<float> logits = {std::log(1.0f), std::log(4.0f), std::log(3.0f), std::log(2.0f)};
  expect_shares(shares(logits, {.temperature = 1}), {0.1, 0.4, 0.3, 0.2});
  // At temperature 0.5 probabilities are squared: 1, 16, 9, 4 of 30.
  expect_shares(shares(logits, {.temperature = 0.5}), {1 / 30.0, 16 / 30.0, 9 / 30.0, 4 / 30.0});
}

TEST(Sample, walks_tokens_in_descending_probability_and_ties_by_id) {
  const std::vector<float> logits = {0, std::log(2.0f), 0};
  const SamplingParams params{.temperature = 1};
  EXPECT_EQ(draw(logits, params, 0.0), 1);
  EXPECT_EQ(draw(logits, params, 0.499), 1);
  EXPECT_EQ(draw(logits, params, 0.501), 0);
  EXPECT_EQ(draw(logits, params, 0.76), 2);
  EXPECT_EQ(draw(logits, params, std::nextafter(1.0, 0.0)), 2);
}

TEST(Sample, keeps_the_top_k_largest_of_equal_ones_the_lowest) {
  const std::vector<float> logits = {std::log(1.0f), std::log(4.0f), std::log(3.0f), std::log(1.0f)};
  expect_shares(shares(logits, {.temperature = 1, .top_k = 1}), {0, 1, 0, 0});
  expect_shares(shares(logits, {.temperature = 1, .top_k = 2}), {0, 4 / 7.0, 3 / 7.0, 0});
  expect_shares(shares(logits, {.temperature = 1, .top_k = 3}), {1 / 8.0, 4 / 8.0, 3 / 8.0, 0});
  expect_shares(shares(logits, {.temperature = 1, .top_k = 100}), {1 / 9.0, 4 / 9.0, 3 / 9.0, 1 / 9.0});
}

TEST(Sample, keeps_the_smallest_set_that_reaches_top_p) {
  const std::vector<float> logits = {std::log(1.0f), std::log(4.0f), std::log(3.0f), std::log(2.0f)};
  expect_shares(shares(logits, {.temperature = 1, .top_p = 1e-9}), {0, 1, 0, 0});
  expect_shares(shares(logits, {.temperature = 1, .top_p = 0.39}), {0, 1, 0, 0});
  expect_shares(shares(logits, {.temperature = 1, .top_p = 0.41}), {0, 4 / 7.0, 3 / 7.0, 0});
  expect_shares(shares(logits, {.temperature = 1, .top_p = 0.75}), {0, 4 / 9.0, 3 / 9.0, 2 / 9.0});
  expect_shares(shares(logits, {.temperature = 1, .top_p = 1.0}), {0.1, 0.4, 0.3, 0.2});
}

TEST(Sample, applies_top_p_to_what_top_k_left) {
  const std::vector<float> logits = {std::log(1.0f), std::log(4.0f), std::log(3.0f), std::log(2.0f)};
  // Of {4, 3} the first has 4/7 = 0.571 of the probability.
  expect_shares(shares(logits, {.temperature = 1, .top_k = 2, .top_p = 0.57}), {0, 1, 0, 0});
  expect_shares(shares(logits, {.temperature = 1, .top_k = 2, .top_p = 0.58}), {0, 4 / 7.0, 3 / 7.0, 0});
}

TEST(Sample, never_draws_minus_infinity_and_survives_huge_logits) {
  const SamplingParams params{.temperature = 1};
  expect_shares(shares({-kInf, 3e38f, -kInf, 3e38f}, params), {0, 0.5, 0, 0.5});
  EXPECT_EQ(draw({1, kInf, 2}, params, 0.99), 1);
  EXPECT_EQ(draw({1, 2}, {.temperature = 1e-30}, 0.99), 1);
}

// More tokens than the sampler sorts at first: every one of them must still be reachable, in order.
TEST(Sample, walks_a_large_vocabulary_to_its_end) {
  const int count = 3000;
  std::vector<float> logits(count);
  for (int i = 0; i < count; ++i) logits[static_cast<size_t>(i)] = static_cast<float>((i * 7919) % count) * -1e-4f;
  std::vector<int32_t> expected(count);
  for (int i = 0; i < count; ++i) expected[static_cast<size_t>((i * 7919) % count)] = i;  // by descending logit
  std::vector<double> sums(count);
  double sum = 0;
  for (int i = 0; i < count; ++i)
    sums[static_cast<size_t>(i)] = sum += std::exp(static_cast<double>(static_cast<float>(i) * -1e-4f));
  for (int rank : {0, 1, 127, 128, 1000, 1023, 1024, 2999}) {
    const double before = rank == 0 ? 0 : sums[static_cast<size_t>(rank - 1)];
    const double middle = (before + sums[static_cast<size_t>(rank)]) / 2 / sum;
    EXPECT_EQ(draw(logits, {.temperature = 1}, middle), expected[static_cast<size_t>(rank)]) << "rank " << rank;
  }
}

TEST(Sample, allocates_nothing_once_its_scratch_has_grown) {
  std::vector<int32_t> ids;
  std::vector<double> p;
  const std::vector<float> logits(500, 1.0f);
  const SamplingParams params{.temperature = 1};
  static_cast<void>(sample(logits, params, 0, ids, p));
  const int32_t* ids_at = ids.data();
  const double* p_at = p.data();
  static_cast<void>(sample(logits, params, 0.999, ids, p));
  EXPECT_EQ(ids.data(), ids_at);
  EXPECT_EQ(p.data(), p_at);
}

TEST(UniformOf, is_a_function_of_seed_request_and_step_in_the_unit_interval) {
  std::set<double> seen;
  double sum = 0;
  for (uint64_t seed : {0u, 1u, 77u}) {
    for (uint64_t request = 0; request < 10; ++request) {
      for (uint64_t step = 0; step < 100; ++step) {
        const double u = uniform_of(seed, request, step);
        EXPECT_EQ(u, uniform_of(seed, request, step));
        EXPECT_GE(u, 0.0);
        EXPECT_LT(u, 1.0);
        seen.insert(u);
        sum += u;
      }
    }
  }
  EXPECT_EQ(seen.size(), 3000u);
  EXPECT_NEAR(sum / 3000, 0.5, 0.02);
}

TEST(UniformOf, fills_ten_bins_evenly) {
  int bins[10] = {};
  for (uint64_t step = 0; step < 10000; ++step) ++bins[static_cast<int>(uniform_of(5, 3, step) * 10)];
  double chi_square = 0;
  for (int count : bins) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi_square, 27.9);  // 9 degrees of freedom, 0.1 %
}

}  // namespace
}  // namespace tidepool::nn
