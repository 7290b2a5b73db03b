// What the engine samples with drafts is distributed as what it samples without.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "chi_square.h"
#include "engine/engine_impl.h"
#include "model/testing_checkpoint.h"
#include "nn/sample.h"
#include "tiny_models.h"

namespace tidepool::test {
namespace {

constexpr nn::SamplingParams kParams{.temperature = 2.0, .top_k = 3};
constexpr int32_t kFirst = 5;    // token behind the prompt: the same in every text
constexpr int32_t kSampled = 3;  // tokens behind it
constexpr int32_t kTexts = 4000, kBatch = 16;
const std::vector<int32_t> kPrompt = {3, 60, 41, 7};

EngineOptions options_of(int32_t num_drafts) {
  EngineOptions o;
  o.model = accepting_model(true);
  o.num_threads = 1;
  o.max_model_len = 16;
  o.max_num_seqs = kBatch;
  o.num_draft_tokens = num_drafts;
  o.seed = 4;
  return o;
}

RequestOptions request_of(const std::vector<int32_t>& forced, int32_t max_tokens) {
  RequestOptions r;
  r.prompt = kPrompt;
  r.max_tokens = max_tokens;
  r.temperature = kParams.temperature;
  r.top_k = kParams.top_k;
  r.ignore_eos = true;
  r.forced = forced;
  return r;
}

using Text = std::vector<int32_t>;

// The probability of every text that can be drawn, from the model's logits behind each of its beginnings.
class Exact {
 public:
  Exact() : engine_(with_logits()) { extend({kFirst}, 1.0); }
  const std::map<Text, double>& texts() const { return texts_; }

 private:
  static EngineOptions with_logits() {
    EngineOptions o = options_of(0);
    o.record_logits = true;
    return o;
  }
  std::vector<float> logits_behind(const Text& text) {
    engine_.submit(request_of(text, static_cast<int32_t>(text.size()) + 1));
    std::vector<float> logits;
    StepResult result;
    while (engine_.has_work()) {
      engine_.step(result);
      for (auto& out : result.outputs) logits = std::move(out.logits);
    }
    return logits;
  }
  void extend(const Text& text, double probability) {
    if (text.size() == kSampled + 1) {
      texts_[text] = probability;
      return;
    }
    const std::vector<float> logits = logits_behind(text);
    std::vector<double> p(logits.size());
    std::vector<int32_t> ids;
    std::vector<double> scratch;
    ASSERT_TRUE(nn::probabilities(logits, kParams, ids, scratch, p));
    for (size_t id = 0; id < p.size(); ++id) {
      if (p[id] == 0) continue;
      Text longer = text;
      longer.push_back(static_cast<int32_t>(id));
      extend(longer, probability * p[id]);
    }
  }

  EngineImpl engine_;
  std::map<Text, double> texts_;
};

// Texts sampled with drafts; accepted[i]: how often i drafts stood at once.
std::map<Text, int64_t> sample_texts(int32_t num_drafts, std::vector<int64_t>& accepted) {
  EngineImpl engine(options_of(num_drafts));
  std::map<RequestId, Text> texts;
  for (uint64_t i = 0; i < kTexts; ++i) {
    RequestOptions request = request_of({kFirst}, kSampled + 1);
    request.sampling_stream = i;
    texts[engine.submit(request).request] = {};
  }
  StepResult result;
  while (engine.has_work()) {
    engine.step(result);
    std::map<RequestId, size_t> new_tokens;
    for (const auto& out : result.outputs) {
      texts.at(out.request).push_back(out.token);
      ++new_tokens[out.request];
    }
    for (const auto& [request, count] : new_tokens) ++accepted.at(count - 1);
  }
  std::map<Text, int64_t> counts;
  for (const auto& [request, text] : texts) ++counts[text];
  return counts;
}

TEST(Drafts, sampled_texts_are_distributed_as_without_drafts) {
  const Exact exact;
  ASSERT_EQ(exact.texts().size(), 27u);
  for (int32_t num_drafts : {0, 1, 2, 3}) {
    std::vector<int64_t> accepted(4);
    auto drawn = sample_texts(num_drafts, accepted);
    std::vector<int64_t> counts;
    std::vector<double> expected;
    for (const auto& [text, probability] : exact.texts()) {
      expected.push_back(probability);
      counts.push_back(drawn[text]);
      drawn.erase(text);
    }
    EXPECT_TRUE(drawn.empty()) << "texts that plain sampling never draws";
    EXPECT_LT(misfit(counts, expected), 1) << num_drafts << " drafts";
    for (size_t i = 1; i < accepted.size(); ++i) {
      const bool possible = i <= static_cast<size_t>(num_drafts) && i + 1 <= kSampled;
      EXPECT_EQ(accepted[i] > kTexts / 20, possible) << num_drafts << " drafts, " << i << " accepted";
    }
  }
}

// The outputs of one request, step by step.
std::vector<std::vector<Output>> steps_of(const EngineOptions& options, bool ignore_eos) {
  EngineImpl engine(options);
  RequestOptions request = request_of({}, 60);
  request.ignore_eos = ignore_eos;
  engine.submit(request);
  std::vector<std::vector<Output>> steps;
  while (engine.has_work()) {
    StepResult result;
    engine.step(result);
    steps.push_back(result.outputs);
  }
  return steps;
}

Text text_of(const std::vector<std::vector<Output>>& steps) {
  Text text;
  for (const auto& outputs : steps) {
    for (const auto& out : outputs) text.push_back(out.token);
  }
  return text;
}

// How long the text is up to an accepted draft that has accepted ones behind it and no like before it; 0: none.
size_t end_among_accepted_drafts(const std::vector<std::vector<Output>>& steps) {
  Text text;
  for (const auto& outputs : steps) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      const bool is_new = std::find(text.begin(), text.end(), outputs[i].token) == text.end();
      text.push_back(outputs[i].token);
      if (i > 0 && i + 2 < outputs.size() && is_new) return text.size();
    }
  }
  return 0;
}

TEST(Drafts, a_text_ends_at_a_token_that_ends_texts_also_among_accepted_drafts) {
  EngineOptions options = options_of(3);
  options.max_model_len = 80;
  options.pool_size = 16;
  const auto endless = steps_of(options, true);
  Text expected = text_of(endless);
  const size_t len = end_among_accepted_drafts(endless);
  ASSERT_GT(len, 0u);
  expected.resize(len);

  model::testing::TemporaryDirectory directory;
  model::Config config = model::Config::read_directory(options.model);
  config.eos_ids = {expected.back()};
  model::testing::write_checkpoint(directory.path(), config, model::testing::read_tensors(options.model));
  options.model = directory.path();
  for (OffloadRoute route : {OffloadRoute::kOff, OffloadRoute::kSelect, OffloadRoute::kGather}) {
    options.route = route;
    const auto steps = steps_of(options, false);
    EXPECT_EQ(text_of(steps), expected);
    EXPECT_EQ(steps.back().back().finish, FinishReason::kStop);
  }
}

}  // namespace
}  // namespace tidepool::test
