// What the published runner reports of a timed run, computed as it does.
#pragma once

#include <string>

#include "base/json.h"
#include "generation.h"
#include "tidepool/engine.h"

namespace tidepool::cli {

struct PublishedFigures {
  int64_t batch = 0;         // requests of the run
  int64_t input_tokens = 0;  // of the longest prompt
  // The steps that are measured: those without prompt rows in which most requests decoded together. With a batch that
  // does not fit, or requests that end early, these are fewer than the batch, and the throughput is theirs.
  int64_t decoding_requests = 0, decode_steps = 0;
  double latency_ms = 0;  // mean_latency_ms of these steps; main model and drafts together
  // Tokens that a request gets from a step: as the published tables assume, and as it was in this run.
  double assumed_accept_length = 1, accept_length = 1;
  double assumed_tokens_per_s() const { return tokens_per_s(assumed_accept_length); }
  double measured_tokens_per_s() const { return tokens_per_s(accept_length); }

 private:
  double tokens_per_s(double length) const {
    return latency_ms > 0 ? 1000 * static_cast<double>(decoding_requests) * length / latency_ms : 0;
  }
};

PublishedFigures published_figures(const EngineOptions& options, const RunResult& run);
base::Json published_json(const EngineOptions& options, const PublishedFigures& figures);
std::string published_summary(const EngineOptions& options, const PublishedFigures& figures);

}  // namespace tidepool::cli
