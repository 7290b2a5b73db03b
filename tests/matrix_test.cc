// Every combination of route, number of drafts, execution mode, block size, row format and batch gives the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/check.h"
#include "engine/engine_impl.h"
#include "tiny_models.h"

namespace tidepool::test {
namespace {

constexpr int32_t kTokens = 10;

struct Setting {
  OffloadRoute route = OffloadRoute::kOff;
  int32_t num_drafts = 0;
  ExecMode exec = ExecMode::kEager;
  int32_t block_size = 128;
  DType rows = DType::kBF16;
  int32_t batch = 1;
  std::string text() const {
    return fmt::format("route {}, {} drafts, mode {}, blocks of {}, rows {}, batch {}", static_cast<int>(route),
                       num_drafts, static_cast<int>(exec), block_size, dtype_name(rows), batch);
  }
};

// A text over the edge of a block of 128, a short one, and a sampled one.
std::vector<RequestOptions> requests_of(int32_t vocab_size) {
  std::vector<RequestOptions> requests;
  for (int32_t len : {124, 40, 31}) {
    RequestOptions r;
    for (int32_t i = 0; i < len; ++i) r.prompt.push_back((i * i + 7 * len + i / 5) % vocab_size);
    r.max_tokens = kTokens;
    r.ignore_eos = true;
    r.sampling_stream = static_cast<uint64_t>(len);
    requests.push_back(r);
  }
  requests.back().temperature = 0.8;
  requests.back().top_p = 0.95;
  return requests;
}

struct Text {
  std::vector<int32_t> ids;
  std::vector<std::vector<float>> logits;
};

struct Outcome {
  std::vector<Text> texts;  // by request
  int64_t drafted = 0, accepted = 0;
  int64_t fetched = 0;  // rows from the host store
};

bool same_bits(const Text& a, const Text& b) {
  const auto same = [](const std::vector<float>& x, const std::vector<float>& y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  };
  return a.ids == b.ids && std::equal(a.logits.begin(), a.logits.end(), b.logits.begin(), b.logits.end(), same);
}

Outcome run(const std::string& model, const Setting& setting) {
  EngineOptions o;
  o.model = model;
  o.num_threads = 1;
  o.max_model_len = 124 + kTokens;
  o.max_num_batched_tokens = 64;
  o.pool_size = 32;
  o.record_logits = true;
  o.route = setting.route;
  o.num_draft_tokens = setting.num_drafts;
  o.exec = setting.exec;
  o.block_size = setting.block_size;
  o.row_dtype = setting.rows;
  o.max_num_seqs = setting.batch;
  EngineImpl engine(o);
  Outcome result;
  std::map<RequestId, size_t> index;
  for (const auto& request : requests_of(engine.info().vocab_size)) {
    const size_t next = index.size();
    index[engine.submit(request).request] = next;
  }
  result.texts.resize(index.size());
  StepResult step;
  while (engine.has_work()) {
    engine.step(step);
    result.drafted += step.drafted_tokens;
    result.accepted += step.accepted_tokens;
    for (auto& out : step.outputs) {
      EXPECT_EQ(out.error, "");
      Text& text = result.texts[index.at(out.request)];
      text.ids.push_back(out.token);
      text.logits.push_back(std::move(out.logits));
    }
  }
  result.fetched = engine.stats().total.fetched_rows;
  return result;
}

// The simplest way to compute a setting's text: everything on the device, eagerly, one request at a time. What is
// sampled depends on the number of drafts, what is greedy does not.
const Outcome& reference(const std::string& model, DType rows, int32_t num_drafts) {
  static std::map<std::tuple<std::string, DType, int32_t>, Outcome> runs;
  const auto key = std::make_tuple(model, rows, num_drafts);
  if (!runs.contains(key)) {
    Setting simple;
    simple.rows = rows;
    simple.num_drafts = num_drafts;
    runs[key] = run(model, simple);
  }
  return runs.at(key);
}

void expect_as_reference(const std::string& model, const Setting& setting, const Outcome& actual) {
  const Outcome& plain = reference(model, setting.rows, 0);
  const Outcome& drafted = reference(model, setting.rows, setting.num_drafts);
  for (size_t i = 0; i < actual.texts.size(); ++i) {
    const bool sampled = i + 1 == actual.texts.size();
    EXPECT_EQ(actual.texts[i].ids.size(), static_cast<size_t>(kTokens)) << setting.text();
    EXPECT_TRUE(same_bits(actual.texts[i], (sampled ? drafted : plain).texts[i]))
        << "request " << i << ": " << setting.text();
  }
  EXPECT_EQ(actual.accepted, drafted.accepted) << setting.text();
  EXPECT_EQ(actual.fetched > 0, setting.route != OffloadRoute::kOff) << setting.text();
}

class Matrix : public ::testing::TestWithParam<std::tuple<OffloadRoute, int32_t>> {
 protected:
  static void check(const std::string& model, bool accepts) {
    Setting s;
    std::tie(s.route, s.num_drafts) = GetParam();
    int64_t drafted = 0, accepted = 0;
    for (ExecMode exec : {ExecMode::kEager, ExecMode::kCapture, ExecMode::kCompile}) {
      for (int32_t block_size : {128, 256}) {
        for (DType rows : {DType::kBF16, DType::kF32, DType::kI8, DType::kF8E4M3}) {
          for (int32_t batch : {1, 3}) {
            s.exec = exec, s.block_size = block_size, s.rows = rows, s.batch = batch;
            const Outcome actual = run(model, s);
            expect_as_reference(model, s, actual);
            drafted += actual.drafted;
            accepted += actual.accepted;
          }
        }
      }
    }
    EXPECT_EQ(drafted > 0, s.num_drafts > 0);
    EXPECT_GE(accepted * 100, accepts ? drafted * 20 : 0);
  }
};

TEST_P(Matrix, every_mode_block_size_row_format_and_batch_gives_the_same_bits) { check(tiny_model(), false); }

TEST_P(Matrix, and_so_it_does_where_drafts_are_often_accepted) { check(accepting_model(true), true); }

TEST(MatrixReference, row_formats_differ_from_each_other) {
  const std::vector<DType> formats = {DType::kBF16, DType::kF32, DType::kI8, DType::kF8E4M3};
  for (size_t i = 0; i < formats.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(
          same_bits(reference(tiny_model(), formats[i], 0).texts[0], reference(tiny_model(), formats[j], 0).texts[0]))
          << dtype_name(formats[i]) << " " << dtype_name(formats[j]);
    }
  }
}

std::string setting_name(const ::testing::TestParamInfo<std::tuple<OffloadRoute, int32_t>>& info) {
  const char* names[] = {"off", "select", "gather"};
  return fmt::format("{}_{}_drafts", names[static_cast<int>(std::get<0>(info.param))], std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Setting, Matrix,
                         ::testing::Combine(::testing::Values(OffloadRoute::kOff, OffloadRoute::kSelect,
                                                              OffloadRoute::kGather),
                                            ::testing::Range(0, kMaxDraftTokens + 1)),
                         setting_name);

}  // namespace
}  // namespace tidepool::test
