// Random requests over TestSteps.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "cache/test_steps.h"

namespace tidepool::cache::testing {

// Requests with prompts and answers of random lengths, in chunks and decode rows of random steps, until `num_requests`
// have ended. Some end early, and their slots are taken again.
class RandomRequests {
 public:
  RandomRequests(TestSteps& steps, const CacheOptions& options, uint64_t seed)
      : steps_(steps), options_(options), random_(seed) {}
  void run(int32_t num_requests) {
    while (num_ended_ < num_requests) {
      if (num_opened_ < num_requests && below(3) == 0) open();
      const StepRows rows = next_step();
      if (rows.decode.empty() && rows.chunk.count == 0) continue;
      steps_.step(rows);
      advance(rows);
    }
  }

 private:
  struct Running {
    int32_t slot, prompt, total, len = 0;
  };
  int32_t below(int32_t limit) { return static_cast<int32_t>(random_() % static_cast<uint64_t>(limit)); }
  void open() {
    const int32_t prompt = 1 + below(70), total = prompt + 1 + below(40);
    if (running_.empty()) steps_.cache.settle();  // nothing else would free closed slots
    if (steps_.cache.fit(total).answer != Fit::Answer::kNow) return;
    running_.push_back({steps_.open(total), prompt, total});
    ++num_opened_;
  }
  StepRows next_step() {
    StepRows rows;
    for (const Running& r : running_) {
      const bool prefilling = r.len < r.prompt;
      if (!prefilling && below(10) > 0) rows.decode.push_back({r.slot, r.len + 1});
      if (prefilling && rows.chunk.count == 0)
        rows.chunk = {r.slot, r.len, std::min(r.prompt - r.len, 1 + below(options_.max_chunk_rows))};
    }
    return rows;
  }
  void advance(const StepRows& rows) {
    for (Running& r : running_) {
      for (const auto& decode : rows.decode) r.len += decode.cache_slot == r.slot;
      if (rows.chunk.count > 0 && rows.chunk.cache_slot == r.slot) r.len += rows.chunk.count;
    }
    std::erase_if(running_, [&](const Running& r) {
      if (r.len < r.total && below(60) > 0) return false;
      steps_.cache.close(r.slot);
      ++num_ended_;
      return true;
    });
  }

  TestSteps& steps_;
  CacheOptions options_;
  std::mt19937_64 random_;
  std::vector<Running> running_;
  int32_t num_opened_ = 0, num_ended_ = 0;
};

}  // namespace tidepool::cache::testing
