// Drafts, routes and modes from the command line: none of them changes a token, and what they did is recorded.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "model/safetensors.h"
#include "program.h"

namespace tidepool::testing {
namespace {

using Arguments = std::vector<std::string>;
using base::Json;

const std::string kPrompt = "In the beginning was a long line of text, and the text was about 80 tokens long.";

ProgramResult generate(const Arguments& more) {
  Arguments arguments{"generate", "--model", tiny_model(), "--ignore-eos", "--prompt", kPrompt, "--max-tokens", "30"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments);
}

std::string ids(const Arguments& more) {
  Arguments arguments = more;
  arguments.push_back("--json");
  const ProgramResult result = generate(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.json().at("generated_ids").dump();
}

template <typename T>
std::vector<T> values(const model::SafetensorsFile& file, const std::string& name) {
  const auto& view = file.at(name);
  std::vector<T> out(static_cast<size_t>(view.num_values()));
  if (!out.empty()) std::memcpy(out.data(), view.data, view.bytes);
  return out;
}

TEST(CliDrafts, ChangeNoTokenOfAnyRouteOrMode) {
  const std::string plain = ids({});
  for (const std::string route : {"off", "gather", "select"}) {
    for (const std::string mode : {"eager", "capture", "compile"}) {
      EXPECT_EQ(ids({"--num-draft-tokens", "3", "--offload", route, "--exec", mode, "--pool-size", "16"}), plain)
          << route << ", " << mode;
    }
  }
  EXPECT_EQ(ids({"--num-draft-tokens", "1"}), plain);
}

TEST(CliDrafts, StreamTheSameText) { EXPECT_EQ(generate({"--num-draft-tokens", "3"}).out, generate({}).out); }

TEST(CliDrafts, AreReportedWithTheLengthThatWasAccepted) {
  const ProgramResult result = generate({"--num-draft-tokens", "2"});
  EXPECT_NE(result.err.find("2 drafts a step: "), std::string::npos) << result.err;
  EXPECT_EQ(generate({}).err.find("drafts"), std::string::npos);
}

TEST(CliDrafts, ARunOfEachRouteComparesWithTheSameDraftsWithoutOffload) {
  for (const std::string route : {"gather", "select"}) {
    const ProgramResult result = generate({"--num-draft-tokens", "3", "--offload", route, "--pool-size", "16",
                                           "--batch", "2", "--compare-offload", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(result.json().at("compare").at("identical").as_bool());
  }
}

TEST(CliDrafts, BenchMeasuresTheMainModelAlone) {
  expect_refused({"bench", "decode", "--model", tiny_model(), "--num-draft-tokens", "1"}, 2,
                 {"--num-draft-tokens", "--rows"});
}

class CliDumpWithDrafts : public ::testing::Test {
 protected:
  std::string dump(const std::string& drafts) const {
    const std::string path = folder_.path() + "/" + drafts;
    const ProgramResult result = run_program({"dump", "--model", tiny_model(), "--ids", ids_, "--num-tokens", "12",
                                              "--out", path, "--dtype", "float32", "--num-draft-tokens", drafts});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return path;
  }

  const TemporaryFolder folder_;
  const std::string ids_ = folder_.file("ids.json", "[5, 6, 7, 8, 9, 10, 11, 12, 13, 14]");
};

TEST_F(CliDumpWithDrafts, HasTheRowsOfARunWithoutThem) {
  const model::SafetensorsFile plain(dump("0")), drafted(dump("3"));
  for (const std::string name : {"generated_ids", "logits.prefill", "logits.decode", "hidden.7", "topk.6"}) {
    ASSERT_EQ(plain.at(name).bytes, drafted.at(name).bytes) << name;
    EXPECT_EQ(std::memcmp(plain.at(name).data, drafted.at(name).data, plain.at(name).bytes), 0) << name;
  }
}

TEST_F(CliDumpWithDrafts, SaysOfEachStepWhatWasProposedAndAccepted) {
  const model::SafetensorsFile file(dump("3"));
  const std::vector<int64_t> accepted = values<int64_t>(file, "accepted");
  const auto steps = std::ssize(accepted);
  ASSERT_GT(steps, 0);
  using Shape = std::vector<int64_t>;
  const Json info = run_program({"info", "--model", tiny_model(), "--json"}).json();
  const int64_t vocab = info.at("vocab_size").as_int();
  EXPECT_EQ(file.at("draft_ids").shape, (Shape{steps, 3}));
  EXPECT_EQ(file.at("draft_hidden").shape, (Shape{steps, info.at("hidden_size").as_int()}));
  EXPECT_EQ(file.at("draft_logits").shape, (Shape{steps, vocab}));
  EXPECT_EQ(file.at("draft_topk").shape, (Shape{steps, info.at("index_topk").as_int()}));
  for (const int64_t count : accepted) EXPECT_TRUE(count >= 0 && count <= 3) << count;
  const std::vector<int64_t> drafts = values<int64_t>(file, "draft_ids");
  const std::vector<float> logits = values<float>(file, "draft_logits");
  for (int64_t step = 0; step < steps; ++step) {
    const auto row = logits.begin() + step * vocab;
    EXPECT_EQ(drafts[static_cast<size_t>(3 * step)], std::max_element(row, row + vocab) - row) << "step " << step;
  }
}

TEST(CliDumpGraph, IsForExecCompile) {
  const TemporaryFolder folder;
  const std::string out = folder.path() + "/graph";
  for (const Arguments& mode : {Arguments{}, {"--exec", "capture"}}) {
    Arguments arguments{"generate", "--model", tiny_model(), "--prompt", "x", "--dump-graph", out};
    arguments.insert(arguments.end(), mode.begin(), mode.end());
    expect_refused(arguments, 2, {"--dump-graph " + out, "--exec compile"});
  }
}

TEST(CliDumpGraph, WritesTheGraphAsDotFiles) {
  const TemporaryFolder folder;
  const ProgramResult result = generate({"--exec", "compile", "--dump-graph", folder.path()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Arguments names = folder.names();
  ASSERT_FALSE(names.empty());
  EXPECT_TRUE(std::any_of(names.begin(), names.end(), [](const auto& name) { return name.ends_with(".dot"); }));
}

}  // namespace
}  // namespace tidepool::testing
