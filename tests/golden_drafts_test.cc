// How many tokens a step of the demo model yields with drafts, against what its card (models/demo/README.md) says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/json.h"
#include "golden_model.h"

namespace tidepool::test {
namespace {

constexpr int32_t kNewTokens = 160;  // per prompt, as in models/demo/recipe/measure.py
constexpr double kTolerance = 0.02;  // relative

using Ids = std::vector<int32_t>;

// Of the checkout, whatever golden cases are run: so is the card.
std::string prompts_path() { return source_dir() + "/tests/golden/drafts/demo-prompts.json"; }

// The first `length` ids of each of the card's four prompts.
std::vector<Ids> read_prompts(size_t length) {
  std::vector<Ids> prompts;
  const base::Json json = base::Json::parse_file(prompts_path());
  for (const auto& [document, ids] : json.as_object()) {
    Ids& prompt = prompts.emplace_back();
    for (const base::Json& id : ids.as_array()) prompt.push_back(static_cast<int32_t>(id.as_int()));
    tidepool_check(prompt.size() >= length, "{}: {} has {} ids", prompts_path(), document, prompt.size());
    prompt.resize(length);
  }
  return prompts;
}

double card_value(size_t prompt_length, const std::string& name) {
  const base::Json json = base::Json::parse_file(demo_model_dir() + "/measurements.json");
  return json.at("mtp").at(fmt::format("ctx{}", prompt_length)).at(name).as_double();
}

struct Text {
  Ids ids;
  Ids per_step;  // tokens that each step yielded; the first one is the prompt's last
};

std::vector<Text> write_texts(const std::vector<Ids>& prompts, int32_t num_drafts) {
  EngineOptions options;
  options.model = demo_model_dir();
  options.kv_dtype = DType::kF32;
  options.num_threads = 2;
  options.max_num_seqs = static_cast<int32_t>(prompts.size());
  options.max_model_len = static_cast<int32_t>(prompts.front().size()) + kNewTokens;
  options.num_draft_tokens = num_drafts;
  EngineImpl engine(options);
  std::map<RequestId, Text> texts;  // ids rise in the order of submission
  for (const Ids& prompt : prompts) {
    RequestOptions request;
    request.prompt = prompt;
    request.max_tokens = kNewTokens;
    request.ignore_eos = true;
    const Verdict verdict = engine.submit(request);
    tidepool_check(verdict.admitted, "not admitted: {}", verdict.reason);
    texts[verdict.request] = {};
  }
  StepResult result;
  while (engine.has_work()) {
    engine.step(result);
    std::map<RequestId, int32_t> counts;
    for (const Output& out : result.outputs) {
      tidepool_check(out.error.empty(), "{}", out.error);
      texts.at(out.request).ids.push_back(out.token);
      ++counts[out.request];
    }
    for (const auto& [request, count] : counts) texts.at(request).per_step.push_back(count);
  }
  std::vector<Text> found;
  for (auto& [request, text] : texts) found.push_back(std::move(text));
  return found;
}

struct Accepted {
  int64_t tokens = 0, steps = 0;
  double length() const { return static_cast<double>(tokens) / static_cast<double>(steps); }
};

// Counts as the card does: its reference has hidden states of all positions but the last one, and looks at a step only
// when token number `known` + num_drafts + 1 lies before the last. The step that ends the prompt is none of them.
Accepted count(const std::vector<Text>& texts, int32_t num_drafts) {
  Accepted sum;
  for (const Text& text : texts) {
    int32_t known = 1;  // tokens written before the step
    for (size_t i = 1; i < text.per_step.size() && known + num_drafts + 1 < kNewTokens; ++i) {
      sum.tokens += text.per_step[i];
      sum.steps += 1;
      known += text.per_step[i];
    }
  }
  return sum;
}

class GoldenDrafts : public ::testing::TestWithParam<size_t> {};

TEST_P(GoldenDrafts, the_demo_model_accepts_as_many_as_its_card_says_and_writes_the_text_of_no_drafts) {
  const std::vector<Ids> prompts = read_prompts(GetParam());
  ASSERT_EQ(prompts.size(), 4u);
  const std::vector<Text> plain = write_texts(prompts, 0);
  const std::map<int32_t, const char*> names = {{1, "tokens_per_step_1_draft"}, {3, "tokens_per_step_3_drafts"}};
  for (const auto& [num_drafts, name] : names) {
    const std::vector<Text> texts = write_texts(prompts, num_drafts);
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(texts[i].ids.size(), static_cast<size_t>(kNewTokens));
      EXPECT_EQ(texts[i].ids, plain[i].ids) << "prompt " << i << ", " << num_drafts << " drafts";
    }
    const Accepted accepted = count(texts, num_drafts);
    const double card = card_value(GetParam(), name);
    const auto found = fmt::format("{}: {:.3f} ({} tokens in {} steps), the card says {:.3f}", name, accepted.length(),
                                   accepted.tokens, accepted.steps, card);
    RecordProperty(name, found);
    EXPECT_LE(std::abs(accepted.length() / card - 1), kTolerance) << found;
  }
}

INSTANTIATE_TEST_SUITE_P(Prompt, GoldenDrafts, ::testing::Values(1000u, 3000u),
                         [](const auto& param_info) { return std::to_string(param_info.param); });

TEST(GoldenDraftsCount, steps_that_could_reach_the_last_token_and_the_prompt_are_left_out) {
  Text text;
  text.per_step = {1};
  for (int32_t i = 0; i < 53; ++i) text.per_step.push_back(3);  // known: 1, 4, ..., 157
  const Accepted one = count({text}, 1), three = count({text}, 3);
  EXPECT_EQ(one.steps, 53);  // the last: 157 + 2 < 160
  EXPECT_EQ(one.tokens, 159);
  EXPECT_EQ(three.steps, 52);  // the last: 154 + 4 < 160
  EXPECT_EQ(three.tokens, 156);
}

}  // namespace
}  // namespace tidepool::test
