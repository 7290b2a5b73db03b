#include "published_report.h"

#include <algorithm>

#include "base/check.h"
#include "config_option.h"
#include "engine_flags.h"
#include "latency.h"
#include "output.h"

namespace tidepool::cli {
namespace {

constexpr double kAssumedAcceptLength = 2.7;  // of the published tables, with three drafts

int32_t pool_rows(const EngineOptions& options) {
  return options.route == OffloadRoute::kSelect ? options.pool_size : 0;
}

}  // namespace

PublishedFigures published_figures(const EngineOptions& options, const RunResult& run) {
  PublishedFigures out;
  out.batch = std::ssize(run.requests);
  for (const RequestResult& request : run.requests)
    out.input_tokens = std::max(out.input_tokens, request.prompt_tokens);
  for (const DecodeStep& step : run.decode_steps) {
    out.decoding_requests = std::max<int64_t>(out.decoding_requests, step.num_requests);
  }
  std::vector<double> steps_ms;
  for (const DecodeStep& step : run.decode_steps) {
    if (step.num_requests == out.decoding_requests) steps_ms.push_back(step.ms);
  }
  out.decode_steps = std::ssize(steps_ms);
  out.latency_ms = mean_latency_ms(steps_ms);
  out.assumed_accept_length = options.num_draft_tokens > 0 ? kAssumedAcceptLength : 1.0;
  out.accept_length = run.accept_length();
  return out;
}

base::Json published_json(const EngineOptions& options, const PublishedFigures& figures) {
  base::Json out = base::Json::object();
  out.set("exe_mode", published_mode(options.exec));
  out.set("route", route_name(options.route));
  out.set("pool_size", pool_rows(options));
  out.set("num_draft_tokens", options.num_draft_tokens);
  out.set("batch", figures.batch);
  out.set("decoding_requests", figures.decoding_requests);
  out.set("input_tokens", figures.input_tokens);
  out.set("decode_steps", figures.decode_steps);
  out.set("latency_ms", figures.latency_ms);
  out.set("assumed_accept_length", figures.assumed_accept_length);
  out.set("assumed_tokens_per_s", figures.assumed_tokens_per_s());
  out.set("accept_length", figures.accept_length);
  out.set("measured_tokens_per_s", figures.measured_tokens_per_s());
  return out;
}

std::string published_summary(const EngineOptions& options, const PublishedFigures& figures) {
  const std::string pool = pool_rows(options) > 0 ? count_text(pool_rows(options)) + " rows" : "none";
  std::string out = fmt::format("timed run: mode {}, offload {}, pool {}, batch {}, input of {} tokens\n",
                                published_mode(options.exec), route_name(options.route), pool,
                                count_text(figures.batch), count_text(figures.input_tokens));
  if (figures.latency_ms == 0) return out + "  fewer than two steps decoded the same requests: nothing to average\n";
  out += fmt::format("  main model and {} drafts: {:.2f} ms a decode step, mean of {} steps of {} requests\n",
                     options.num_draft_tokens, figures.latency_ms, count_text(figures.decode_steps),
                     count_text(figures.decoding_requests));
  out += fmt::format("  {:.1f} tokens/s at the assumed {:.1f} tokens a step, {:.1f} at the measured {:.2f}\n",
                     figures.assumed_tokens_per_s(), figures.assumed_accept_length, figures.measured_tokens_per_s(),
                     figures.accept_length);
  return out;
}

}  // namespace tidepool::cli
