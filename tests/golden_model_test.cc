// The engine against what Hugging Face transformers computed for the same checkpoints, on every SIMD target and route.
#include <gtest/gtest.h>

#include <filesystem>

#include "golden_model.h"
#include "nn/simd_target.h"

namespace tidepool::test {
namespace {

Tolerance tolerance_of(const std::string& dir) {
  Tolerance t;
  if (dir.find("published-dims") != std::string::npos) t.logits = 3e-4f;  // its sums are long
  if (dir.find("/demo/") != std::string::npos) t.logits = 2e-3f, t.exact_margin = 1e-4f;
  return t;
}

EngineOptions parity_options(const std::string& model) {
  EngineOptions o;
  o.model = model;
  o.kv_dtype = DType::kF32;
  o.num_threads = 2;
  o.max_num_batched_tokens = 64;
  return o;
}

std::string model_of(const std::string& dir) {
  return std::filesystem::exists(dir + "/config.json") ? dir : demo_model_dir();
}

void expect_same(const EngineOptions& options, const std::string& dir, const std::string& what) {
  const Expected expected = Expected::read(dir + "/expected.safetensors");
  const auto found = differences(expected, compute(options, expected), tolerance_of(dir));
  EXPECT_TRUE(found.empty()) << dir << " " << what << ": " << found.size() << " differences, first: " << found.front();
}

EngineOptions select_options(EngineOptions o, int32_t pool_size) {
  o.route = OffloadRoute::kSelect;
  o.pool_size = pool_size;
  return o;
}

EngineOptions gather_options(EngineOptions o) {
  o.route = OffloadRoute::kGather;
  return o;
}

struct TargetGuard {
  ~TargetGuard() { nn::force_simd_target(""); }
};

void check_kind(const std::string& kind, int32_t pool_size) {
  const auto cases = golden_cases(kind);
  ASSERT_FALSE(cases.empty()) << "no golden case in " << golden_dir() << "/" << kind;
  TargetGuard guard;
  for (const auto& dir : cases) {
    for (const auto& target : nn::simd_targets()) {
      nn::force_simd_target(target);
      const auto options = parity_options(model_of(dir));
      expect_same(options, dir, target + " off");
      expect_same(select_options(options, pool_size), dir, target + " select");
      expect_same(gather_options(options), dir, target + " gather");
    }
  }
}

TEST(GoldenModel, every_transformers_case_agrees_on_every_simd_target_with_and_without_offload) {
  check_kind("hf", 32);
}

TEST(GoldenModel, the_trained_demo_model_agrees_on_a_long_text_on_every_simd_target_with_and_without_offload) {
  check_kind("demo", 512);
}

TEST(GoldenModel, plain_loops_agree_with_every_transformers_case) {
  for (const auto& dir : golden_cases("hf")) {
    auto options = parity_options(dir);
    options.reference_kernels = true;
    expect_same(options, dir, "reference off");
    expect_same(select_options(options, 16), dir, "reference select");
    expect_same(gather_options(options), dir, "reference gather");
  }
}

TEST(GoldenModel, one_changed_expected_value_of_each_kind_is_a_difference) {
  const auto cases = golden_cases("hf");
  ASSERT_FALSE(cases.empty());
  const Expected expected = Expected::read(cases.front() + "/expected.safetensors");
  const Computed computed = compute(parity_options(cases.front()), expected);
  const Tolerance tolerance = tolerance_of(cases.front());
  ASSERT_TRUE(differences(expected, computed, tolerance).empty());
  const auto changed = [&](auto change) {
    Expected e = expected;
    change(e);
    return differences(e, computed, tolerance).size();
  };
  EXPECT_EQ(changed([](Expected& e) { e.generated_ids[1] ^= 1; }), 1u);
  EXPECT_EQ(changed([](Expected& e) { e.prefill_logits.values[5] += 1e-3f; }), 1u);
  EXPECT_EQ(changed([](Expected& e) { e.decode_logits.values.back() -= 1e-3f; }), 1u);
  EXPECT_EQ(changed([](Expected& e) { e.decode_logits.values[0] = NAN; }), 1u);
  EXPECT_EQ(changed([](Expected& e) { e.hidden.begin()->second.values[7] += 0.1f; }), 1u);
  EXPECT_EQ(changed([](Expected& e) { e.topk.begin()->second.values.back() -= 1; }), 1u);
}

TEST(GoldenModel, one_changed_value_of_the_demo_case_is_a_difference_where_the_choice_was_clear) {
  const auto cases = golden_cases("demo");
  ASSERT_FALSE(cases.empty());
  const Expected expected = Expected::read(cases.front() + "/expected.safetensors");
  const Computed computed = compute(parity_options(demo_model_dir()), expected);
  const Tolerance tolerance = tolerance_of(cases.front());
  ASSERT_TRUE(differences(expected, computed, tolerance).empty());
  Expected logit = expected;
  logit.decode_logits.values[3] += 5e-3f;
  EXPECT_EQ(differences(logit, computed, tolerance).size(), 1u);
  const auto& [layer, margins] = *expected.topk_margin.begin();
  for (bool clear : {true, false}) {
    Expected set = expected;
    int64_t row = 0;
    while (row + 1 < margins.rows && (margins.values[static_cast<size_t>(row)] > tolerance.exact_margin) != clear)
      ++row;
    if ((margins.values[static_cast<size_t>(row)] > tolerance.exact_margin) != clear) continue;
    set.topk.at(layer).values[static_cast<size_t>(row * set.topk.at(layer).width)] += 1;
    EXPECT_EQ(differences(set, computed, tolerance).empty(), !clear);
  }
}

TEST(GoldenModel, a_latent_norm_eps_of_1e_5_misses_the_glm_cases) {
  for (const auto& dir : golden_cases("hf")) {
    if (dir.find("glm52-list") == std::string::npos) continue;
    auto options = parity_options(dir);
    options.latent_norm_eps = 1e-5;
    const Expected expected = Expected::read(dir + "/expected.safetensors");
    EXPECT_FALSE(differences(expected, compute(options, expected), tolerance_of(dir)).empty());
  }
}

}  // namespace
}  // namespace tidepool::test
