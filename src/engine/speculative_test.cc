#include "engine/speculative.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "chi_square.h"
#include "nn/sample.h"
#include "tidepool/error.h"

namespace tidepool::engine {
namespace {

using Distribution = std::vector<double>;

using test::misfit;

constexpr int kDraws = 40000;
constexpr float kInf = std::numeric_limits<float>::infinity();

Distribution distribution_of(const std::vector<float>& logits, const nn::SamplingParams& params) {
  std::vector<int32_t> ids;
  std::vector<double> scratch;
  Distribution out(logits.size(), -1.0);
  EXPECT_TRUE(nn::probabilities(logits, params, ids, scratch, out));
  return out;
}

// The token of one position: a draft drawn from q and judged against p. Faults replace the rule.
using Rule = std::function<int32_t(const Distribution& p, const Distribution& q, uint64_t seed, int64_t number)>;

int32_t right_rule(const Distribution& p, const Distribution& q, uint64_t seed, int64_t number) {
  const auto uniform = [&](Draw purpose) { return uniform_of(seed, 3, number, purpose); };
  Distribution residual(p.size());
  return verify_draft(p, q, draw(q, uniform(Draw::kDraft)), uniform(Draw::kAccept), uniform(Draw::kResidual), residual)
      .token;
}

int32_t always_accept(const Distribution&, const Distribution& q, uint64_t seed, int64_t number) {
  return draw(q, uniform_of(seed, 3, number, Draw::kDraft));
}

int32_t residual_is_p(const Distribution& p, const Distribution& q, uint64_t seed, int64_t number) {
  const int32_t draft = always_accept(p, q, seed, number), token = right_rule(p, q, seed, number);
  return token == draft ? token : draw(p, uniform_of(seed, 3, number, Draw::kResidual));
}

int32_t one_uniform_for_everything(const Distribution& p, const Distribution& q, uint64_t seed, int64_t number) {
  const double uniform = uniform_of(seed, 3, number, Draw::kDraft);
  Distribution residual(p.size());
  return verify_draft(p, q, draw(q, uniform), uniform, uniform, residual).token;
}

double misfit_of(const Rule& rule, const Distribution& p, const Distribution& q) {
  std::vector<int64_t> counts(p.size());
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(rule(p, q, 11, i))];
  return misfit(counts, p);
}

// Target and draft logits over 8 tokens: alike, near, far, opposite.
const std::vector<float> kTarget = {0.3f, 2.0f, -1.0f, 0.9f, 1.4f, -2.5f, 0.0f, 1.1f};
const std::vector<float> kNear = {0.1f, 1.8f, -0.7f, 1.2f, 1.0f, -2.0f, 0.2f, 1.3f};
const std::vector<float> kOpposite = {-0.3f, -2.0f, 1.0f, -0.9f, -1.4f, 2.5f, 0.0f, -1.1f};

const std::vector<nn::SamplingParams> kParams = {{.temperature = 1},
                                                 {.temperature = 0.5},
                                                 {.temperature = 2.5},
                                                 {.temperature = 1, .top_k = 3},
                                                 {.temperature = 1.5, .top_p = 0.6},
                                                 {.temperature = 0.8, .top_k = 5, .top_p = 0.9}};

TEST(Speculative, a_verified_draft_is_distributed_as_plain_sampling_for_every_setting_and_draft_distribution) {
  const Distribution one_hot = {0, 0, 1, 0, 0, 0, 0, 0}, lacks_support = {0.5, 0, 0.25, 0, 0, 0.25, 0, 0};
  for (const auto& params : kParams) {
    const Distribution p = distribution_of(kTarget, params);
    for (const auto& q :
         {p, distribution_of(kNear, params), distribution_of(kOpposite, params), one_hot, lacks_support}) {
      EXPECT_LT(misfit_of(right_rule, p, q), 1) << "temperature " << params.temperature;
    }
  }
}

TEST(Speculative, wrong_rules_miss_the_distribution_by_far) {
  const nn::SamplingParams params{.temperature = 1};
  const Distribution p = distribution_of(kTarget, params), q = distribution_of(kNear, params);
  EXPECT_GT(misfit_of(always_accept, p, q), 5);
  EXPECT_GT(misfit_of(residual_is_p, p, q), 2);
  EXPECT_GT(misfit_of(one_uniform_for_everything, p, q), 5);
  EXPECT_LT(misfit_of(always_accept, p, p), 1);  // nothing to find where both are alike
}

// A target whose next token depends on the last one only, so that the joint distribution of a text is a product.
struct Markov {
  std::array<Distribution, 4> next;
};
const Markov kMarkovTarget = {{{{0.1, 0.2, 0.3, 0.4}, {0.7, 0, 0.2, 0.1}, {0.25, 0.25, 0.25, 0.25}, {0, 0.5, 0, 0.5}}}};
const Markov kMarkovDraft = {{{{0.4, 0.3, 0.2, 0.1}, {0.6, 0.1, 0.3, 0}, {0, 0, 1, 0}, {0.1, 0.4, 0.4, 0.1}}}};

// One engine step behind `text`: num_drafts drafts, those that stand, and one token more.
void extend(std::vector<int32_t>& text, int num_drafts, uint64_t seed) {
  const auto number = static_cast<int64_t>(text.size());
  std::vector<int32_t> drafts = {text.back()};
  for (int j = 0; j < num_drafts; ++j) {
    const auto& q = kMarkovDraft.next[static_cast<size_t>(drafts.back())];
    drafts.push_back(draw(q, uniform_of(seed, 0, number + j, Draw::kDraft)));
  }
  Distribution residual(4);
  for (int j = 0; j < num_drafts; ++j) {
    const auto row = static_cast<size_t>(text.back());
    const auto verdict = verify_draft(
        kMarkovTarget.next[row], kMarkovDraft.next[row], drafts[static_cast<size_t>(j) + 1],
        uniform_of(seed, 0, number + j, Draw::kAccept), uniform_of(seed, 0, number + j, Draw::kResidual), residual);
    text.push_back(verdict.token);
    if (!verdict.accepted) return;
  }
  const auto& p = kMarkovTarget.next[static_cast<size_t>(text.back())];
  text.push_back(draw(p, uniform_of(seed, 0, number + num_drafts, Draw::kBonus)));
}

TEST(Speculative, the_joint_distribution_of_three_tokens_is_that_of_plain_sampling_for_any_number_of_drafts) {
  Distribution joint(64);
  for (size_t i = 0; i < 64; ++i) {
    const size_t a = i / 16, b = i / 4 % 4, c = i % 4;
    joint[i] = kMarkovTarget.next[0][a] * kMarkovTarget.next[a][b] * kMarkovTarget.next[b][c];
  }
  for (int num_drafts : {1, 2, 3}) {
    std::vector<int64_t> counts(64);
    for (uint64_t seed = 0; seed < kDraws; ++seed) {
      std::vector<int32_t> text = {0};
      while (text.size() < 4) extend(text, num_drafts, seed);
      ++counts[static_cast<size_t>(text[1] * 16 + text[2] * 4 + text[3])];
    }
    EXPECT_LT(misfit(counts, joint), 1) << num_drafts << " drafts";
  }
}

TEST(Speculative, with_temperature_zero_a_draft_stands_exactly_when_it_is_the_greedy_token) {
  const Distribution p = distribution_of(kTarget, {});
  Distribution residual(p.size());
  for (int32_t draft = 0; draft < 8; ++draft) {
    Distribution q(8);
    q[static_cast<size_t>(draft)] = 1;
    for (double uniform : {0.0, 0.5, std::nextafter(1.0, 0.0)}) {
      const DraftVerdict verdict = verify_draft(p, q, draft, uniform, uniform, residual);
      EXPECT_EQ(verdict.accepted, draft == 1);
      EXPECT_EQ(verdict.token, 1);
    }
  }
}

TEST(Speculative, a_draft_that_the_target_likes_at_least_as_much_always_stands) {
  const Distribution p = {0.5, 0.25, 0.25}, q = {0.5, 0.125, 0.375};
  Distribution residual(3);
  const double almost_one = std::nextafter(1.0, 0.0);
  EXPECT_TRUE(verify_draft(p, q, 0, almost_one, 0.5, residual).accepted);
  EXPECT_TRUE(verify_draft(p, q, 1, almost_one, 0.5, residual).accepted);
  EXPECT_TRUE(verify_draft(p, q, 2, 0.66, 0.5, residual).accepted);
  const DraftVerdict refused = verify_draft(p, q, 2, 0.67, almost_one, residual);
  EXPECT_FALSE(refused.accepted);
  EXPECT_EQ(refused.token, 1);  // the only one that the target likes more
}

TEST(Speculative, a_draft_refused_by_rounding_gives_a_token_of_the_target) {
  const Distribution p = {0, 1 - 1e-16, 0}, q = {0, 1, 0};
  Distribution residual(3);
  const DraftVerdict verdict = verify_draft(p, q, 1, std::nextafter(1.0, 0.0), 0.5, residual);
  EXPECT_FALSE(verdict.accepted);
  EXPECT_EQ(verdict.token, 1);
}

TEST(Speculative, a_draft_that_cannot_have_been_drawn_and_sizes_that_do_not_fit_are_refused) {
  const Distribution p = {0.5, 0.5}, q = {1, 0};
  Distribution residual(2), short_residual(1);
  EXPECT_THROW(static_cast<void>(verify_draft(p, q, 1, 0.5, 0.5, residual)), Error);
  EXPECT_THROW(static_cast<void>(verify_draft(p, q, -1, 0.5, 0.5, residual)), Error);
  EXPECT_THROW(static_cast<void>(verify_draft(p, q, 2, 0.5, 0.5, residual)), Error);
  EXPECT_THROW(static_cast<void>(verify_draft(p, q, 0, 0.5, 0.5, short_residual)), Error);
  EXPECT_THROW(static_cast<void>(draw(Distribution{0, 0}, 0.5)), Error);
}

TEST(Draw, walks_ids_in_ascending_order_and_never_takes_one_without_weight) {
  const Distribution p = {0, 0.25, 0, 0.5, 0.25, 0};
  EXPECT_EQ(draw(p, 0.0), 1);
  EXPECT_EQ(draw(p, 0.2499), 1);
  EXPECT_EQ(draw(p, 0.25), 3);
  EXPECT_EQ(draw(p, 0.7499), 3);
  EXPECT_EQ(draw(p, 0.75), 4);
  EXPECT_EQ(draw(p, std::nextafter(1.0, 0.0)), 4);
  EXPECT_EQ(draw(Distribution{0.3, 0.3, 0}, 0.99), 1);  // falls short: the last with weight
}

// How often plain sampling takes each token, by evenly spaced uniforms: its probability to within 1 / count.
Distribution shares_of_plain_sampling(const std::vector<float>& logits, const nn::SamplingParams& params, int count) {
  Distribution shares(logits.size());
  std::vector<int32_t> ids;
  std::vector<double> scratch;
  for (int i = 0; i < count; ++i) {
    const auto token = nn::sample(logits, params, (i + 0.5) / count, ids, scratch);
    shares[static_cast<size_t>(token.value())] += 1.0 / count;
  }
  return shares;
}

TEST(Distribution, is_what_plain_sampling_draws_from_with_the_same_filtered_set) {
  constexpr int kCount = 20000;
  const std::vector<float> with_ties = {1, 2, 2, 0, 2, 1, -kInf, 0};
  std::vector<nn::SamplingParams> all = kParams;
  all.insert(all.end(), {{.temperature = 0},
                         {.temperature = 1, .top_k = 2},
                         {.temperature = 1, .top_p = 1e-9},
                         {.temperature = 1, .top_k = 100, .top_p = 0.99}});
  for (const auto& logits : {kTarget, kNear, with_ties, std::vector<float>{1, kInf, kInf}}) {
    for (const auto& params : all) {
      const Distribution p = distribution_of(logits, params);
      const Distribution shares = shares_of_plain_sampling(logits, params, kCount);
      double sum = 0;
      for (size_t i = 0; i < p.size(); ++i) {
        EXPECT_NEAR(p[i], shares[i], 1.0 / kCount);
        EXPECT_EQ(p[i] > 0, shares[i] > 0);
        sum += p[i];
      }
      EXPECT_NEAR(sum, 1, 1e-12);
    }
  }
}

TEST(Distribution, holds_the_probabilities_of_a_softmax_worked_out_by_hand) {
  const std::vector<float> logits = {std::log(1.0f), std::log(4.0f), std::log(3.0f), std::log(2.0f)};
  const auto expect = [&](const nn::SamplingParams& params, const Distribution& expected) {
    const Distribution p = distribution_of(logits, params);
    for (size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(p[i], expected[i], 1e-7);
  };
  expect({.temperature = 1}, {0.1, 0.4, 0.3, 0.2});
  expect({.temperature = 0.5}, {1 / 30.0, 16 / 30.0, 9 / 30.0, 4 / 30.0});
  expect({.temperature = 1, .top_k = 2}, {0, 4 / 7.0, 3 / 7.0, 0});
  expect({.temperature = 1, .top_p = 0.75}, {0, 4 / 9.0, 3 / 9.0, 2 / 9.0});
  expect({.temperature = 0}, {0, 1, 0, 0});
}

TEST(Distribution, is_refused_where_plain_sampling_is_empty_and_covers_a_large_vocabulary) {
  std::vector<int32_t> ids;
  std::vector<double> scratch;
  Distribution out(2);
  EXPECT_FALSE(nn::probabilities(std::vector<float>{1, NAN}, {.temperature = 1}, ids, scratch, out));
  EXPECT_FALSE(nn::probabilities(std::vector<float>{-kInf, -kInf}, {}, ids, scratch, out));
  EXPECT_THROW(static_cast<void>(nn::probabilities(std::vector<float>{1, 2, 3}, {}, ids, scratch, out)), Error);

  std::vector<float> logits(3000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>((i * 7919) % 3000) * -1e-4f;
  const Distribution p = distribution_of(logits, {.temperature = 1, .top_p = 0.999});
  size_t kept = 0;
  for (double weight : p) kept += weight > 0;
  EXPECT_GT(kept, 2900u);
  EXPECT_LT(kept, 3000u);
}

TEST(Distribution, allocates_nothing_once_its_scratch_has_grown) {
  std::vector<int32_t> ids;
  std::vector<double> scratch;
  const std::vector<float> logits(500, 1.0f);
  Distribution out(500);
  ASSERT_TRUE(nn::probabilities(logits, {.temperature = 1}, ids, scratch, out));
  const int32_t* ids_at = ids.data();
  const double* scratch_at = scratch.data();
  ASSERT_TRUE(nn::probabilities(logits, {.temperature = 1, .top_p = 0.99}, ids, scratch, out));
  EXPECT_EQ(ids.data(), ids_at);
  EXPECT_EQ(scratch.data(), scratch_at);
}

TEST(DrawNumbers, differ_by_purpose_token_stream_and_seed_and_from_those_of_plain_sampling) {
  std::set<double> seen;
  size_t count = 0;
  for (uint64_t seed : {0u, 9u}) {
    for (uint64_t stream = 0; stream < 5; ++stream) {
      for (int64_t token = 0; token < 100; ++token) {
        for (Draw purpose : {Draw::kDraft, Draw::kAccept, Draw::kResidual, Draw::kBonus}) {
          const double uniform = uniform_of(seed, stream, token, purpose);
          EXPECT_GE(uniform, 0.0);
          EXPECT_LT(uniform, 1.0);
          seen.insert(uniform);
        }
        seen.insert(nn::uniform_of(seed, stream, static_cast<uint64_t>(token)));
        count += 5;
      }
    }
  }
  EXPECT_EQ(seen.size(), count);
}

}  // namespace
}  // namespace tidepool::engine
