#include "schedules.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "base/check.h"
#include "tiny_models.h"

namespace tidepool::test {
namespace {

constexpr int32_t kMaxLen = 192;  // tokens
constexpr int32_t kTopk = 8;      // of every model used

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

ScheduleRequest make_request(Dice& dice, int32_t vocabulary, int32_t pool_size) {
  ScheduleRequest r;
  const bool is_long = dice.chance(85);
  const int32_t least = std::max(kTopk, pool_size) + 2;
  const int32_t len = is_long ? dice.between(least, std::min(kMaxLen - 24, least + 60)) : dice.between(1, kTopk + 4);
  for (int32_t i = 0; i < len; ++i) r.options.prompt.push_back(dice.between(0, vocabulary - 1));
  r.options.max_tokens = dice.between(1, 20);
  r.options.ignore_eos = true;
  r.options.temperature = dice.one_of({0.0, 0.8, 1.5});
  r.options.top_k = dice.one_of({0, 0, 5});
  r.options.top_p = dice.one_of({1.0, 1.0, 0.9});
  r.options.sampling_stream = dice.bits() % 1000;
  if (dice.chance(10)) r.options.forced.assign(r.options.prompt.begin(), r.options.prompt.end());
  if (dice.chance(20)) r.cancel_after_tokens = dice.between(0, r.options.max_tokens);
  return r;
}

// Sets the model; returns its vocabulary.
int32_t draw_model(Dice& dice, Schedule& s) {
  if (dice.chance(50)) {
    s.engine.model = tiny_model();
    return 256;
  }
  s.shares_index = dice.chance(70);
  s.engine.model = accepting_model(s.shares_index);
  return 64;
}

// What changes how a step is computed, and what it stores, but no result of another schedule with the same formats.
void draw_features(Dice& dice, EngineOptions& o) {
  o.route = dice.chance(60) ? OffloadRoute::kSelect : OffloadRoute::kGather;
  o.kv_dtype = dice.chance(50) ? DType::kF32 : DType::kBF16;
  if (dice.chance(50)) o.row_dtype = dice.one_of({DType::kBF16, DType::kF32, DType::kI8, DType::kF8E4M3});
  o.num_draft_tokens = dice.one_of({0, 1, 2, 3, 3});
  o.mtp_gather_reuse = dice.chance(70);
  o.exec = dice.one_of({ExecMode::kEager, ExecMode::kCapture, ExecMode::kCompile});
}

}  // namespace

Schedule make_schedule(uint64_t seed, int max_threads) {
  Dice dice(seed * 0x9e3779b97f4a7c15u + 1);
  Schedule s;
  s.seed = seed;
  auto& o = s.engine;
  const int32_t vocabulary = draw_model(dice, s);
  draw_features(dice, o);
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
    s.requests.push_back(make_request(dice, vocabulary, o.pool_size));
    s.requests.back().arrives_at_step = i == 0 ? 0 : dice.between(0, 12);
    const auto len = static_cast<int32_t>(s.requests.back().options.prompt.size());
    s.longer_than_pool_and_topk |= len > kTopk && len > o.pool_size;
  }
  return s;
}

Logits run_without_offload(const Schedule& schedule) {
  EngineOptions o;
  o.model = schedule.engine.model;
  o.kv_dtype = schedule.engine.kv_dtype;
  o.row_dtype = schedule.engine.row_dtype;
  o.num_draft_tokens = schedule.engine.num_draft_tokens;
  o.num_threads = 1;
  o.max_model_len = kMaxLen;
  o.max_num_batched_tokens = kMaxLen;
  o.record_logits = true;
  EngineImpl engine(o);
  Logits all;
  StepResult result;
  for (const auto& request : schedule.requests) {
    all.emplace_back();
    engine.submit(request.options);
    while (engine.has_work()) {
      engine.step(result);
      for (auto& out : result.outputs) all.back().push_back(std::move(out.logits));
    }
  }
  return all;
}

std::string first_difference(const Logits& off, const Logits& actual, const Schedule& schedule) {
  for (size_t i = 0; i < off.size(); ++i) {
    const bool cancelled = schedule.requests[i].cancel_after_tokens >= 0;
    if (!cancelled && off[i].size() != actual[i].size()) {
      return fmt::format("schedule {}: request {} has {} tokens, {} without offload", schedule.seed, i,
                         actual[i].size(), off[i].size());
    }
    for (size_t t = 0; t < std::min(off[i].size(), actual[i].size()); ++t) {
      if (off[i][t].size() != actual[i][t].size() ||
          std::memcmp(off[i][t].data(), actual[i][t].data(), off[i][t].size() * sizeof(float)) != 0) {
        return fmt::format("schedule {}: request {} token {}: logits differ in bits", schedule.seed, i, t);
      }
    }
  }
  return "";
}

}  // namespace tidepool::test
