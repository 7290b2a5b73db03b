// The numbers of a timed run, from step times that are given.
#include "cli/published_report.h"

#include <gtest/gtest.h>

#include "cli/generate_report.h"
#include "cli/latency.h"

namespace tidepool::testing {
namespace {

using cli::mean_latency_ms;

double mean(const std::vector<double>& steps) { return mean_latency_ms(steps); }

TEST(MeanLatency, LeavesTheFirstStepOut) {
  EXPECT_EQ(mean({100, 4, 6}), 5);
  EXPECT_EQ(mean({1, 7}), 7);
}

TEST(MeanLatency, OfLessThanTwoStepsIsNothing) {
  EXPECT_EQ(mean({}), 0);
  EXPECT_EQ(mean({5}), 0);
}

TEST(MeanLatency, LeavesOutWhatLiesFarAboveTheUpperQuartile) {
  // Without the first: quartiles 2 and 4 at places 1 and 3, so everything above 4 + 1.5 * 2 = 7 is left out.
  EXPECT_EQ(mean({0, 1, 2, 3, 4, 7.5}), 2.5);
  EXPECT_EQ(mean({0, 1, 2, 3, 4, 7}), 17.0 / 5) << "the fence itself is kept";
  EXPECT_EQ(mean({0, 7.5, 4, 3, 2, 1}), 2.5) << "in any order";
}

TEST(MeanLatency, InterpolatesQuartilesBetweenValues) {
  // 1 2 3 10: the lower quartile at place 0.75 is 1.75, the upper at 2.25 is 3 + 0.25 * 7 = 4.75, the fence 9.25.
  EXPECT_EQ(mean({0, 1, 2, 3, 10}), 2);
  // 1 2 3 9: upper 4.5, fence 4.5 + 1.5 * 2.75 = 8.625.
  EXPECT_EQ(mean({0, 1, 2, 3, 9}), 2);
  // 1 2 3 8: upper 4.25, fence 8.
  EXPECT_EQ(mean({0, 1, 2, 3, 8}), 3.5);
}

TEST(MeanLatency, KeepsStepsFarBelow) { EXPECT_EQ(mean({0, 10, 10, 10, 10, 0}), 8); }

cli::RequestResult request(int64_t prompt_tokens, size_t generated) {
  cli::RequestResult out;
  out.prompt_tokens = prompt_tokens;
  out.ids.resize(generated);
  return out;
}

TEST(PublishedFigures, AreThoseOfTheStepsInWhichMostRequestsDecode) {
  cli::RunResult run;
  run.requests = {request(5, 3), request(9, 3)};
  run.decode_steps = {{100, 1}, {50, 2}, {10, 2}, {30, 2}, {1, 1}};
  EngineOptions options;
  const cli::PublishedFigures figures = cli::published_figures(options, run);
  EXPECT_EQ(figures.batch, 2);
  EXPECT_EQ(figures.input_tokens, 9);
  EXPECT_EQ(figures.decoding_requests, 2);
  EXPECT_EQ(figures.decode_steps, 3);
  EXPECT_EQ(figures.latency_ms, 20);
  EXPECT_EQ(figures.assumed_tokens_per_s(), 100);
}

TEST(PublishedFigures, AssumeThePublishedAcceptLengthWithDraftsAndMeasureTheOther) {
  cli::RunResult run;
  run.requests = {request(5, 11), request(5, 21)};  // the first token of each is the prompt's
  run.request_steps = 12;
  run.decode_steps = {{9, 2}, {10, 2}};
  EngineOptions options;
  options.num_draft_tokens = 3;
  const cli::PublishedFigures figures = cli::published_figures(options, run);
  EXPECT_EQ(figures.assumed_accept_length, 2.7);
  EXPECT_EQ(figures.accept_length, 2.5);
  EXPECT_DOUBLE_EQ(figures.assumed_tokens_per_s(), 540);
  EXPECT_DOUBLE_EQ(figures.measured_tokens_per_s(), 500);
}

TEST(RunResult, CountsTokensOfStepsWithoutDraftsOnceEach) {
  cli::RunResult run;
  EXPECT_EQ(run.accept_length(), 1.0) << "of no step at all";
  run.requests = {request(5, 3), request(5, 2)};
  run.request_steps = 3;
  EXPECT_EQ(run.accept_length(), 1.0);
  run.decode_steps = {{4, 2}, {8, 1}};
  run.decode_ms = 12;
  run.decode_tokens = run.decode_requests = 3;
  EXPECT_DOUBLE_EQ(run.ms_per_token(), 6);
  EXPECT_DOUBLE_EQ(run.tokens_per_s(), 250);
}

TEST(DraftWarning, ComesWhenDraftsWereMeasuredAndBroughtNothing) {
  cli::RunResult run;
  run.requests = {request(5, 105)};
  EngineOptions options;
  options.num_draft_tokens = 3;
  EXPECT_EQ(cli::draft_warning(options, run), "") << "nothing was measured";
  run.request_steps = 100;
  EXPECT_NE(cli::draft_warning(options, run).find("drafts do not pay: 3 a step give 1.04"), std::string::npos);
  run.request_steps = 99;
  EXPECT_EQ(cli::draft_warning(options, run), "") << "1.051";
  options.num_draft_tokens = 0;
  run.request_steps = 104;
  EXPECT_EQ(cli::draft_warning(options, run), "") << "there are none";
}

}  // namespace
}  // namespace tidepool::testing
