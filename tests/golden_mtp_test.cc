// Greedy decoding with three drafts against the reference cases: what is drafted, from what, and what of it stands.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "base/check.h"
#include "base/json.h"
#include "golden_model.h"
#include "nn/simd_target.h"

namespace tidepool::test {
namespace {

constexpr int32_t kDrafts = 3;
constexpr float kTolerance = 2e-4f;  // of logits; of hidden states relative to the row's norm

// The drafts that follow one engine step, and how many of them the next one accepts.
struct DraftStep {
  int32_t position = 0, accepted = 0;
  std::vector<int32_t> drafts, topk;
  std::vector<float> hidden, logits;
};

struct DraftedText {
  std::vector<int32_t> input_ids, generated_ids;
  std::vector<DraftStep> steps;
};

DraftedText read_expected(const std::string& dir) {
  const model::SafetensorsFile file(dir + "/expected.safetensors");
  const base::Json json = base::Json::parse_file(dir + "/expected.json");
  tidepool_check(json.at("num_draft_tokens").as_int() == kDrafts, "{}: other than {} drafts", dir, kDrafts);
  DraftedText text{token_ids(file.at("input_ids")), token_ids(file.at("generated_ids")), {}};
  for (const base::Json& from : json.at("steps").as_array()) {
    const auto name = [&](const char* what) { return fmt::format("{}.{}", what, text.steps.size()); };
    DraftStep step;
    step.position = static_cast<int32_t>(from.at("position").as_int());
    step.accepted = static_cast<int32_t>(from.at("accepted").as_int());
    for (const base::Json& id : from.at("drafts").as_array()) step.drafts.push_back(static_cast<int32_t>(id.as_int()));
    step.hidden = float_table(file.at(name("draft_hidden"))).values;
    step.logits = float_table(file.at(name("draft_logits"))).values;
    step.topk = int_table(file.at(name("draft_topk"))).values;
    text.steps.push_back(std::move(step));
  }
  return text;
}

EngineOptions draft_options(const std::string& model) {
  EngineOptions o;
  o.model = model;
  o.kv_dtype = DType::kF32;
  o.num_threads = 2;
  o.max_num_batched_tokens = 64;
  o.pool_size = 32;
  o.num_draft_tokens = kDrafts;
  o.record_hidden = true;
  return o;
}

// A few tokens more than expected, so that the last expected step drafts as every other.
DraftedText compute(EngineOptions options, const DraftedText& expected) {
  RequestOptions request;
  request.prompt = expected.input_ids;
  request.max_tokens = static_cast<int32_t>(expected.generated_ids.size()) + 2 * (kDrafts + 1);
  request.ignore_eos = true;
  options.max_model_len = static_cast<int32_t>(request.prompt.size()) + request.max_tokens;
  EngineImpl engine(options);
  tidepool_check(engine.submit(request).admitted, "the golden case was not admitted");
  DraftedText text;
  text.input_ids = expected.input_ids;
  StepResult result;
  while (engine.has_work()) {
    engine.step(result);
    if (!text.steps.empty()) text.steps.back().accepted = result.accepted_tokens;
    for (auto& d : result.drafts)
      text.steps.push_back({d.position, 0, d.draft_ids, d.topk, std::move(d.hidden), std::move(d.logits)});
    for (const auto& out : result.outputs) {
      tidepool_check(out.error.empty(), "{}", out.error);
      text.generated_ids.push_back(out.token);
    }
  }
  return text;
}

std::string ids_text(const std::vector<int32_t>& ids) { return fmt::format("{}", fmt::join(ids, " ")); }

bool close(const std::vector<float>& actual, const std::vector<float>& expected, double tolerance) {
  return actual.size() == expected.size() &&
         max_abs_difference(actual.data(), expected.data(), static_cast<int64_t>(expected.size())) <= tolerance;
}

// Every difference of a step as a sentence.
void compare_step(size_t k, const DraftStep& expected, const DraftStep& actual, std::vector<std::string>& found) {
  const auto set = [](const DraftStep& step) {
    return without_suffix(step.topk.data(), static_cast<int64_t>(step.topk.size()));
  };
  const auto report = [&](const std::string& what) { found.push_back(fmt::format("step {}: {}", k, what)); };
  if (actual.position != expected.position)
    report(fmt::format("position {}, expected {}", actual.position, expected.position));
  if (actual.drafts != expected.drafts)
    report(fmt::format("drafts {}, expected {}", ids_text(actual.drafts), ids_text(expected.drafts)));
  if (actual.accepted != expected.accepted)
    report(fmt::format("{} accepted, expected {}", actual.accepted, expected.accepted));
  if (set(actual) != set(expected))
    report(fmt::format("top-k {}, expected {}", ids_text(set(actual)), ids_text(set(expected))));
  if (!close(actual.logits, expected.logits, kTolerance)) report("draft logits are off");
  const double length = norm(expected.hidden.data(), static_cast<int64_t>(expected.hidden.size()));
  if (!close(actual.hidden, expected.hidden, kTolerance * length)) report("the draft's hidden state is off");
}

// Every difference as a sentence; tokens and steps beyond the expected ones are not looked at.
std::vector<std::string> differences(const DraftedText& expected, const DraftedText& actual) {
  std::vector<std::string> found;
  auto ids = actual.generated_ids;
  ids.resize(std::min(ids.size(), expected.generated_ids.size()));
  if (ids != expected.generated_ids)
    found.push_back(fmt::format("generated {}, expected {}", ids_text(ids), ids_text(expected.generated_ids)));
  if (actual.steps.size() < expected.steps.size())
    found.push_back(fmt::format("{} steps drafted, expected {}", actual.steps.size(), expected.steps.size()));
  for (size_t k = 0; k < std::min(expected.steps.size(), actual.steps.size()); ++k)
    compare_step(k, expected.steps[k], actual.steps[k], found);
  return found;
}

void expect_same(const EngineOptions& options, const std::string& what) {
  const DraftedText expected = read_expected(options.model);
  const auto found = differences(expected, compute(options, expected));
  EXPECT_TRUE(found.empty()) << options.model << " " << what << ": " << found.size()
                             << " differences, first: " << found.front();
}

std::vector<std::string> cases() {
  const auto found = golden_cases("mtp");
  EXPECT_FALSE(found.empty()) << "no golden case in " << golden_dir() << "/mtp";
  return found;
}

const char* route_name(OffloadRoute route) {
  return route == OffloadRoute::kOff ? "off" : route == OffloadRoute::kSelect ? "select" : "gather";
}
const char* mode_name(ExecMode mode) {
  return mode == ExecMode::kEager ? "eager" : mode == ExecMode::kCapture ? "capture" : "compile";
}

class GoldenMtpByRoute : public ::testing::TestWithParam<OffloadRoute> {};

TEST_P(GoldenMtpByRoute, every_case_agrees_in_every_execution_mode_with_one_and_two_threads) {
  for (const auto& dir : cases()) {
    for (ExecMode mode : {ExecMode::kEager, ExecMode::kCapture, ExecMode::kCompile}) {
      for (int threads : {1, 2}) {
        EngineOptions options = draft_options(dir);
        options.route = GetParam();
        options.exec = mode;
        options.num_threads = threads;
        expect_same(options, fmt::format("{} {} {} threads", route_name(GetParam()), mode_name(mode), threads));
      }
    }
  }
}

TEST_P(GoldenMtpByRoute, every_case_agrees_when_draft_steps_are_served_again_and_when_prompts_come_in_small_chunks) {
  for (const auto& dir : cases()) {
    EngineOptions options = draft_options(dir);
    options.route = GetParam();
    options.mtp_gather_reuse = false;
    options.max_num_batched_tokens = 7;
    expect_same(options, fmt::format("{} without reuse, in chunks of 7", route_name(GetParam())));
  }
}

TEST_P(GoldenMtpByRoute, plain_loops_agree_with_every_case) {
  for (const auto& dir : cases()) {
    EngineOptions options = draft_options(dir);
    options.reference_kernels = true;
    options.route = GetParam();
    expect_same(options, fmt::format("reference {}", route_name(GetParam())));
  }
}

INSTANTIATE_TEST_SUITE_P(Route, GoldenMtpByRoute,
                         ::testing::Values(OffloadRoute::kOff, OffloadRoute::kSelect, OffloadRoute::kGather),
                         [](const auto& param_info) { return std::string(route_name(param_info.param)); });

struct TargetGuard {
  ~TargetGuard() { nn::force_simd_target(""); }
};

TEST(GoldenMtp, every_case_agrees_on_every_simd_target) {
  TargetGuard guard;
  for (const auto& dir : cases()) {
    for (const auto& target : nn::simd_targets()) {
      nn::force_simd_target(target);
      expect_same(draft_options(dir), target);
    }
  }
}

TEST(GoldenMtp, the_cases_accept_every_number_of_drafts_and_both_kinds_of_index_sharing_occur) {
  std::vector<int64_t> seen(kDrafts + 1);
  std::vector<int64_t> sharing(2);
  for (const auto& dir : cases()) {
    for (const auto& step : read_expected(dir).steps) ++seen.at(static_cast<size_t>(step.accepted));
    ++sharing[model::Config::read_directory(dir).index_share_for_mtp_iteration];
  }
  for (int64_t count : seen) EXPECT_GT(count, 0);
  for (int64_t count : sharing) EXPECT_GT(count, 0);
}

TEST(GoldenMtp, one_changed_expected_value_of_each_kind_is_a_difference) {
  const auto dirs = cases();
  ASSERT_FALSE(dirs.empty());
  const DraftedText expected = read_expected(dirs.front());
  ASSERT_TRUE(differences(expected, expected).empty());
  const auto changed = [&](auto change) {
    DraftedText e = expected;
    change(e);
    return differences(e, expected).size();
  };
  EXPECT_EQ(changed([](DraftedText& e) { e.generated_ids[1] ^= 1; }), 1u);
  EXPECT_EQ(changed([](DraftedText& e) { e.generated_ids.push_back(0); }), 1u);
  EXPECT_EQ(changed([](DraftedText& e) { e.steps.push_back(e.steps.back()); }), 1u);
  EXPECT_EQ(changed([](DraftedText& e) { e.steps[2].position += 1; }), 1u);
  EXPECT_EQ(changed([](DraftedText& e) { e.steps[2].accepted += 1; }), 1u);
  EXPECT_EQ(changed([](DraftedText& e) { e.steps.back().drafts[2] ^= 1; }), 1u);
  EXPECT_EQ(changed([](DraftedText& e) { e.steps[0].topk.back() -= 1; }), 1u);
  EXPECT_EQ(changed([](DraftedText& e) { e.steps[1].logits.back() += 1e-3f; }), 1u);
  EXPECT_EQ(changed([](DraftedText& e) { e.steps[1].logits[0] = NAN; }), 1u);
  EXPECT_EQ(changed([](DraftedText& e) { e.steps[1].hidden[3] += 0.1f; }), 1u);
  EXPECT_EQ(changed([](DraftedText& e) { e.steps[1].hidden.pop_back(); }), 1u);
}

class GoldenDirGuard {
 public:
  GoldenDirGuard() : saved_(golden_dir()) {}
  ~GoldenDirGuard() { setenv("TIDEPOOL_GOLDEN_DIR", saved_.c_str(), 1); }

 private:
  std::string saved_;
};

TEST(GoldenMtp, no_case_at_all_is_a_failure) {
  GoldenDirGuard guard;
  setenv("TIDEPOOL_GOLDEN_DIR", "/nonexistent", 1);
  EXPECT_NONFATAL_FAILURE(static_cast<void>(cases()), "no golden case in /nonexistent/mtp");
}

}  // namespace
}  // namespace tidepool::test
