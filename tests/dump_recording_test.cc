// Dumps of runs with drafts, from steps that are given: a position that was computed twice keeps its last row.
#include "cli/dump_recording.h"

#include <gtest/gtest.h>

#include <cstring>

#include "model/safetensors.h"
#include "program.h"

namespace tidepool::testing {
namespace {

ModelInfo model() {
  ModelInfo info;
  info.vocab_size = 2;
  info.num_layers = 1;
  info.hidden_size = 1;
  info.index_topk = 1;
  info.is_full = {true};
  return info;
}

RowRecord row(int32_t position, float value) {
  return {0, position, {{value}}, {{static_cast<int32_t>(value)}}, {value, value}};
}

Output token(int32_t id) { return {0, id, FinishReason::kNone, "", {}}; }

DraftRecord drafts(int32_t first, int32_t second) {
  const auto value = static_cast<float>(first);
  return {0, 0, {first, second}, {value}, {value, value}, {first}};
}

// A prompt of two tokens, three generated tokens wanted, two drafts a step: of the first pair one is accepted, of the
// second none. The row of the rejected draft at position 4 is followed by that of the right token.
std::vector<StepResult> steps() {
  std::vector<StepResult> out(3);
  out[0].prefill_tokens = 2;
  out[0].rows = {row(0, 10), row(1, 11)};
  out[0].outputs = {token(100)};
  out[0].drafts = {drafts(101, 201)};
  out[1].decode_tokens = 1;
  out[1].rows = {row(2, 12), row(3, 13), row(4, -1)};
  out[1].outputs = {token(101), token(102)};
  out[1].accepted_tokens = 1;
  out[1].drafts = {drafts(202, 203)};
  out[2].decode_tokens = 1;
  out[2].rows = {row(4, 14), row(5, -1), row(6, -1)};
  out[2].outputs = {token(103)};
  return out;
}

template <typename T>
std::vector<T> values(const model::SafetensorsFile& file, const std::string& name) {
  const auto& view = file.at(name);
  std::vector<T> out(static_cast<size_t>(view.num_values()));
  if (!out.empty()) std::memcpy(out.data(), view.data, view.bytes);
  return out;
}

TEST(DumpRecording, KeepsTheLastRowOfEachWantedPosition) {
  cli::Recording recording(model(), {7, 8}, 3, 2);
  for (const StepResult& step : steps()) recording.add(step);
  EXPECT_TRUE(recording.has_all_rows());
  const TemporaryFolder folder;
  recording.write(folder.path() + "/dump");
  const model::SafetensorsFile file(folder.path() + "/dump");
  EXPECT_EQ(values<int64_t>(file, "generated_ids"), (std::vector<int64_t>{100, 101, 102}));
  EXPECT_EQ(values<float>(file, "hidden.0"), (std::vector<float>{10, 11, 12, 13, 14}));
  EXPECT_EQ(values<int32_t>(file, "topk.0"), (std::vector<int32_t>{10, 11, 12, 13, 14}));
  EXPECT_EQ(values<float>(file, "logits.decode"), (std::vector<float>{12, 12, 13, 13, 14, 14}));
}

TEST(DumpRecording, SaysOfEachStepsDraftsHowManyTheNextOneAccepted) {
  cli::Recording recording(model(), {7, 8}, 3, 2);
  for (const StepResult& step : steps()) recording.add(step);
  const TemporaryFolder folder;
  recording.write(folder.path() + "/dump");
  const model::SafetensorsFile file(folder.path() + "/dump");
  EXPECT_EQ(values<int64_t>(file, "draft_ids"), (std::vector<int64_t>{101, 201, 202, 203}));
  EXPECT_EQ(file.at("draft_ids").shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(values<int64_t>(file, "accepted"), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(values<float>(file, "draft_hidden"), (std::vector<float>{101, 202}));
  EXPECT_EQ(file.at("draft_logits").shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(values<int32_t>(file, "draft_topk"), (std::vector<int32_t>{101, 202}));
}

TEST(DumpRecording, WithoutDraftsHasNothingOfThem) {
  cli::Recording recording(model(), {7}, 1, 0);
  StepResult step;
  step.rows = {row(0, 1), row(1, 2)};
  step.outputs = {token(3)};
  recording.add(step);
  const TemporaryFolder folder;
  recording.write(folder.path() + "/dump");
  EXPECT_EQ(model::SafetensorsFile(folder.path() + "/dump").find("draft_ids"), nullptr);
}

TEST(DumpRecording, DraftsWithoutAVerdictAreAnError) {
  cli::Recording recording(model(), {7, 8}, 3, 2);
  recording.add(steps()[0]);
  const TemporaryFolder folder;
  EXPECT_THROW(recording.write(folder.path() + "/dump"), Error);
}

}  // namespace
}  // namespace tidepool::testing
