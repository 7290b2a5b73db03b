#include "schedules.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "base/check.h"
#include "test_store.h"

namespace tidepool::test {
namespace {

constexpr int32_t kMaxLen = 192;  // tokens
constexpr int32_t kVocabulary = 256;

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int32_t between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int32_t percent) { return between(1, 100) <= percent; }
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[between(0, static_cast<int32_t>(values.size()) - 1)];
  }
  uint64_t bits() { return random_(); }

 private:
  std::mt19937_64 random_;
};

ScheduleRequest make_request(Dice& dice, int32_t topk, int32_t pool_size) {
  ScheduleRequest r;
  const bool is_long = dice.chance(85);
  const int32_t least = std::max(topk, pool_size) + 2;
  const int32_t len = is_long ? dice.between(least, std::min(kMaxLen - 24, least + 60)) : dice.between(1, topk + 4);
  for (int32_t i = 0; i < len; ++i) r.options.prompt.push_back(dice.between(0, kVocabulary - 1));
  r.options.max_tokens = dice.between(1, 20);
  r.options.ignore_eos = true;
  r.options.temperature = dice.one_of({0.0, 0.8, 1.5});
  r.options.sampling_stream = dice.bits() % 1000;
  if (dice.chance(20)) r.cancel_after_tokens = dice.between(0, r.options.max_tokens);
  return r;
}

// Rows hit in a step whose slot holds another token once the step's installs are done.
class SameStepEvictions {
 public:
  explicit SameStepEvictions(EngineImpl& engine) : engine_(engine) {}
  int64_t count_after_step() {
    engine_.executor().synchronize(device::kSideStream);
    auto& cache = engine_.cache();
    int64_t evicted = 0;
    before_.resize(cache.options().layer_groups.size());
    for (size_t g = 0; g < before_.size(); ++g) {
      const auto& state = cache.group_state(static_cast<int32_t>(g));
      const auto size = static_cast<size_t>(state.num_cache_slots) * static_cast<size_t>(state.pool_size());
      if (before_[g].size() == size) {
        for (const auto& [slot, index] : cache.hits_of_last_step(static_cast<int32_t>(g))) {
          const size_t i =
              static_cast<size_t>(slot) * static_cast<size_t>(state.pool_size()) + static_cast<size_t>(index);
          evicted += state.token_of_slot[i] != before_[g][i];
        }
      }
      before_[g].assign(state.token_of_slot, state.token_of_slot + size);
    }
    return evicted;
  }

 private:
  EngineImpl& engine_;
  std::vector<std::vector<int32_t>> before_;
};

struct Running {
  RequestId id = -1;
  int32_t tokens = 0;
  bool done = false;
};

}  // namespace

Schedule make_schedule(uint64_t seed, const std::string& model, int32_t topk, int max_threads) {
  Dice dice(seed * 0x9e3779b97f4a7c15u + 1);
  Schedule s;
  s.seed = seed;
  auto& o = s.engine;
  o.model = model;
  o.route = OffloadRoute::kSelect;
  o.kv_dtype = dice.chance(50) ? DType::kF32 : DType::kBF16;
  o.num_threads = dice.between(1, max_threads);
  o.max_model_len = kMaxLen;
  o.max_num_seqs = dice.between(1, 4);
  o.max_num_batched_tokens = dice.one_of({1, 3, 7, 16, 33, 64, 200});
  o.block_size = dice.one_of({32, 64, 128, 256});
  o.num_ways = dice.one_of({1, 2, 4, 16, 16});
  o.pool_size = o.num_ways * dice.one_of({1, 1, 2, 4});
  o.record_logits = true;
  o.check_order = dice.chance(50);
  o.protect_memory = dice.chance(15);
  s.hooks.schedule = dice.chance(70) ? device::Schedule::kRandom : device::Schedule::kPreferMain;
  s.hooks.schedule_seed = dice.bits();
  s.hooks.window_rows = dice.one_of({2, 4, 16, 32});
  s.hooks.spill_turns = dice.one_of({1, 3, 8});
  s.hooks.stage_rows = dice.one_of({8, 8, 24, 0});
  s.delayed_store = dice.chance(75);
  s.store_thread = s.delayed_store && dice.chance(30);
  const int32_t count = dice.between(1, 5);
  for (int32_t i = 0; i < count; ++i) {
    s.requests.push_back(make_request(dice, topk, o.pool_size));
    s.requests.back().arrives_at_step = i == 0 ? 0 : dice.between(0, 12);
    const auto len = static_cast<int32_t>(s.requests.back().options.prompt.size());
    s.longer_than_pool_and_topk |= len > topk && len > o.pool_size;
  }
  return s;
}

Logits run_schedule(const Schedule& schedule, Coverage& coverage, std::vector<std::string>& problems) {
  std::unique_ptr<ops::RowStore> inner;
  testing::DelayedRowStore* delayed = nullptr;
  EngineHooks hooks = schedule.hooks;
  if (schedule.delayed_store) {
    hooks.decorate_store = [&](std::unique_ptr<ops::RowStore> store) -> std::unique_ptr<ops::RowStore> {
      inner = std::move(store);
      auto made =
          std::make_unique<testing::DelayedRowStore>(*inner, testing::DelayOptions{schedule.seed, 40, 0, nullptr});
      delayed = made.get();
      return made;
    };
  }
  EngineImpl engine(schedule.engine, hooks);
  if (delayed != nullptr && schedule.store_thread) delayed->start_thread();
  if (delayed != nullptr && !schedule.store_thread) engine.executor().add_pump([delayed] { return delayed->pump(); });
  SameStepEvictions same_step(engine);

  const size_t count = schedule.requests.size();
  std::vector<Running> running(count);
  Logits logits(count);
  StepResult result;
  size_t done = 0;
  for (int32_t step = 0; done < count; ++step) {
    for (size_t i = 0; i < count; ++i) {
      const auto& r = schedule.requests[i];
      if (r.arrives_at_step == step) running[i].id = engine.submit(r.options).request;
      const bool cancels = running[i].id >= 0 && !running[i].done && r.cancel_after_tokens >= 0 &&
                           running[i].tokens >= r.cancel_after_tokens;
      if (cancels) engine.cancel(running[i].id);
    }
    engine.step(result);
    coverage.prompt_chunks += result.prefill_tokens > 0;
    coverage.mixed_steps += result.prefill_tokens > 0 && result.decode_tokens > 0;
    if (result.decode_tokens > 0 && !schedule.engine.protect_memory)
      coverage.same_step_evictions += same_step.count_after_step();
    for (auto& out : result.outputs) {
      const auto i = static_cast<size_t>(
          std::find_if(running.begin(), running.end(), [&](auto& r) { return r.id == out.request; }) - running.begin());
      if (out.token >= 0) logits[i].push_back(std::move(out.logits));
      running[i].tokens += out.token >= 0;
      running[i].done = out.finish != FinishReason::kNone;
      done += running[i].done;
      coverage.cancelled += out.finish == FinishReason::kCancelled;
      if (!out.error.empty()) problems.push_back(out.error);
    }
  }
  const CacheStats stats = engine.stats();
  coverage.schedules += 1;
  coverage.long_schedules += schedule.longer_than_pool_and_topk;
  coverage.requests += static_cast<int64_t>(count);
  for (const auto& r : running) coverage.tokens += r.tokens;
  coverage.hits += stats.total.hits;
  coverage.misses += stats.total.misses;
  coverage.window += stats.total.window;
  coverage.unspilled += stats.total.unspilled;
  coverage.wraps += stats.total.wraps;
  coverage.evictions += stats.total.evictions;
  coverage.slot_resets += stats.slot_resets;
  if (stats.device_kv_bytes > stats.device_kv_budget_bytes) problems.push_back("device_kv_bytes is above the budget");
  if (delayed != nullptr) {
    engine.executor().synchronize_all();
    coverage.reordered += delayed->num_reordered();
    for (auto& violation : delayed->violations()) problems.push_back(violation);
  }
  return logits;
}

OffReference::OffReference(const std::string& model, DType kv_dtype)
    : engine_([&] {
        EngineOptions o;
        o.model = model;
        o.kv_dtype = kv_dtype;
        o.num_threads = 1;
        o.max_model_len = kMaxLen;
        o.max_num_batched_tokens = kMaxLen;
        o.record_logits = true;
        return o;
      }()) {}

Logits OffReference::run(const std::vector<ScheduleRequest>& requests) {
  Logits all;
  StepResult result;
  for (const auto& request : requests) {
    all.emplace_back();
    engine_.submit(request.options);
    while (engine_.has_work()) {
      engine_.step(result);
      for (auto& out : result.outputs) all.back().push_back(std::move(out.logits));
    }
  }
  return all;
}

std::string first_difference(const Logits& off, const Logits& select, const Schedule& schedule) {
  for (size_t i = 0; i < off.size(); ++i) {
    const bool cancelled = schedule.requests[i].cancel_after_tokens >= 0;
    if (!cancelled && off[i].size() != select[i].size()) {
      return fmt::format("schedule {}: request {} has {} tokens, {} without offload", schedule.seed, i,
                         select[i].size(), off[i].size());
    }
    for (size_t t = 0; t < std::min(off[i].size(), select[i].size()); ++t) {
      if (off[i][t].size() != select[i][t].size() ||
          std::memcmp(off[i][t].data(), select[i][t].data(), off[i][t].size() * sizeof(float)) != 0) {
        return fmt::format("schedule {}: request {} token {}: logits differ in bits", schedule.seed, i, t);
      }
    }
  }
  return "";
}

std::string Coverage::text() const {
  return fmt::format(
      "{} schedules ({} with lists and pool smaller than the text), {} requests, {} cancelled, {} tokens; hit {}, miss "
      "{}, window {}, "
      "unspilled {}, wrap {}, eviction {}, same-step eviction {}, slot reset {}, reordered copies {}, prompt chunks "
      "{}, mixed steps {}",
      schedules, long_schedules, requests, cancelled, tokens, hits, misses, window, unspilled, wraps, evictions,
      same_step_evictions, slot_resets, reordered, prompt_chunks, mixed_steps);
}

}  // namespace tidepool::test
