// Random schedules of requests: the property that offload changes no bit, whatever else happens.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine_impl.h"

namespace tidepool::test {

struct ScheduleRequest {
  RequestOptions options;
  int32_t arrives_at_step = 0;
  int32_t cancel_after_tokens = -1;  // -1: not cancelled
};

struct Schedule {
  uint64_t seed = 0;
  EngineOptions engine;  // route select or gather
  EngineHooks hooks;     // schedule of streams, window, turns, staged rows; not the store
  std::vector<ScheduleRequest> requests;
  bool delayed_store = false;
  bool store_thread = false;  // delayed requests are moved by a thread of the store, not by the executor's pump
  bool longer_than_pool_and_topk = false;
  // What is drafted: half of the schedules use a model whose drafts are often accepted.
  bool shares_index = true;  // draft steps after the first keep its list
};

// The schedule of a seed; the same everywhere. `max_threads` bounds the engine's team.
Schedule make_schedule(uint64_t seed, int max_threads);

// Logits of every token of every request, in order.
using Logits = std::vector<std::vector<std::vector<float>>>;

struct Coverage {
  int64_t schedules = 0, long_schedules = 0, requests = 0, cancelled = 0, tokens = 0;
  int64_t hits = 0, misses = 0, window = 0, unspilled = 0, wraps = 0, evictions = 0, same_step_evictions = 0;
  int64_t slot_resets = 0, reordered = 0, prompt_chunks = 0, mixed_steps = 0;
  std::array<int64_t, kMaxDraftTokens + 1> accepted{};  // decode steps of a request, by accepted drafts
  int64_t block_rollbacks = 0;            // a rejected draft's row lay in another block than the last accepted one's
  int64_t kept_lists = 0, own_lists = 0;  // draft steps after the first, by where their list came from
  int64_t select = 0, gather = 0;         // schedules, by route
  std::array<int64_t, 3> modes{};         // by execution mode
  int64_t coded_rows = 0;                 // of int8 or fp8
  std::string text() const;
  // Everything that a long campaign must have met at least once, with its name.
  std::vector<std::pair<std::string, int64_t>> wanted() const;
};

// Runs a schedule; coverage is added to. A violation of the store or an error of a request is reported in `problems`.
Logits run_schedule(const Schedule& schedule, Coverage& coverage, std::vector<std::string>& problems);

// What the requests give with everything on the device, eagerly, each alone, with as many drafts.
Logits run_without_offload(const Schedule& schedule);

// Empty, or the first difference as a sentence. Cancelled requests are compared as far as both went.
std::string first_difference(const Logits& off, const Logits& actual, const Schedule& schedule);

}  // namespace tidepool::test
