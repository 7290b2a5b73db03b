#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "schedules.h"
#include "test_store.h"

namespace tidepool::test {
namespace {

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

// One schedule on an engine of its own.
class Run {
 public:
  Run(const Schedule& schedule, Coverage& coverage, std::vector<std::string>& problems)
      : schedule_(schedule),
        coverage_(coverage),
        problems_(problems),
        engine_(schedule.engine, hooks()),
        same_step_(engine_),
        running_(schedule.requests.size()),
        logits_(schedule.requests.size()) {
    if (delayed_ == nullptr) return;
    if (schedule.store_thread) delayed_->start_thread();
    if (!schedule.store_thread) engine_.executor().add_pump([this] { return delayed_->pump(); });
  }

  Logits run() {
    const auto is_done = [](const Running& r) { return r.done; };
    for (int32_t step = 0; !std::all_of(running_.begin(), running_.end(), is_done); ++step) {
      submit_and_cancel(step);
      engine_.step(result_);
      count_step();
      take_outputs();
    }
    check_end();
    count_end();
    return std::move(logits_);
  }

 private:
  EngineHooks hooks() {
    EngineHooks hooks = schedule_.hooks;
    if (!schedule_.delayed_store) return hooks;
    hooks.decorate_store = [this](std::unique_ptr<ops::RowStore> store) -> std::unique_ptr<ops::RowStore> {
      inner_ = std::move(store);
      auto made =
          std::make_unique<testing::DelayedRowStore>(*inner_, testing::DelayOptions{schedule_.seed, 40, 0, nullptr});
      delayed_ = made.get();
      return made;
    };
    return hooks;
  }

  void submit_and_cancel(int32_t step) {
    for (size_t i = 0; i < running_.size(); ++i) {
      const auto& r = schedule_.requests[i];
      if (r.arrives_at_step == step) running_[i].id = engine_.submit(r.options).request;
      const bool cancels = running_[i].id >= 0 && !running_[i].done && r.cancel_after_tokens >= 0 &&
                           running_[i].tokens >= r.cancel_after_tokens;
      if (cancels) engine_.cancel(running_[i].id);
    }
  }

  void take_outputs() {
    std::vector<int32_t> new_tokens(running_.size());
    for (auto& out : result_.outputs) {
      const auto at = std::find_if(running_.begin(), running_.end(), [&](auto& r) { return r.id == out.request; });
      const auto i = static_cast<size_t>(at - running_.begin());
      new_tokens[i] += out.token >= 0;
      if (out.token >= 0) logits_[i].push_back(std::move(out.logits));
      running_[i].done = out.finish != FinishReason::kNone;
      coverage_.cancelled += out.finish == FinishReason::kCancelled;
      if (!out.error.empty()) problems_.push_back(out.error);
    }
    for (size_t i = 0; i < running_.size(); ++i) {
      count_drafts(i, new_tokens[i]);
      running_[i].tokens += new_tokens[i];
    }
  }

  // What became of the drafts of a request's step that gave it `new_tokens`.
  void count_drafts(size_t i, int32_t new_tokens) {
    const int32_t drafts = schedule_.engine.num_draft_tokens, before = running_[i].tokens;
    if (drafts == 0 || new_tokens == 0) return;
    if (!running_[i].done) (schedule_.shares_index ? coverage_.kept_lists : coverage_.own_lists) += drafts - 1;
    const auto& options = schedule_.requests[i].options;
    // The first token follows the prompt, not drafts; near the end not all of what stands is handed out.
    if (before == 0 || options.max_tokens - before <= drafts) return;
    const int32_t accepted = new_tokens - 1;
    ++coverage_.accepted.at(static_cast<size_t>(accepted));
    const auto newest = static_cast<int32_t>(options.prompt.size()) + before - 1;  // position of the step's first row
    const int32_t block = schedule_.engine.block_size;
    coverage_.block_rollbacks += accepted < drafts && (newest + accepted) / block != (newest + drafts) / block;
  }

  void count_step() {
    coverage_.prompt_chunks += result_.prefill_tokens > 0;
    coverage_.mixed_steps += result_.prefill_tokens > 0 && result_.decode_tokens > 0;
    const bool readable = !schedule_.engine.protect_memory && schedule_.engine.route == OffloadRoute::kSelect;
    if (result_.decode_tokens > 0 && readable) coverage_.same_step_evictions += same_step_.count_after_step();
  }

  void check_end() {
    const CacheStats stats = engine_.stats();
    if (stats.device_kv_bytes > stats.device_kv_budget_bytes)
      problems_.push_back("device_kv_bytes is above the budget");
    if (delayed_ == nullptr) return;
    engine_.executor().synchronize_all();
    coverage_.reordered += delayed_->num_reordered();
    for (auto& violation : delayed_->violations()) problems_.push_back(violation);
  }

  void count_end() {
    const CacheStats stats = engine_.stats();
    const EngineOptions& o = schedule_.engine;
    coverage_.schedules += 1;
    coverage_.long_schedules += schedule_.longer_than_pool_and_topk;
    coverage_.requests += static_cast<int64_t>(running_.size());
    for (const auto& r : running_) coverage_.tokens += r.tokens;
    coverage_.hits += stats.total.hits;
    coverage_.misses += stats.total.misses;
    coverage_.window += stats.total.window;
    coverage_.unspilled += stats.total.unspilled;
    coverage_.wraps += stats.total.wraps;
    coverage_.evictions += stats.total.evictions;
    coverage_.slot_resets += stats.slot_resets;
    (o.route == OffloadRoute::kSelect ? coverage_.select : coverage_.gather) += 1;
    ++coverage_.modes.at(static_cast<size_t>(o.exec));
    coverage_.coded_rows += o.row_dtype == DType::kI8 || o.row_dtype == DType::kF8E4M3;
  }

  const Schedule& schedule_;
  Coverage& coverage_;
  std::vector<std::string>& problems_;
  std::unique_ptr<ops::RowStore> inner_;
  testing::DelayedRowStore* delayed_ = nullptr;
  EngineImpl engine_;
  SameStepEvictions same_step_;
  std::vector<Running> running_;
  Logits logits_;
  StepResult result_;
};

}  // namespace

Logits run_schedule(const Schedule& schedule, Coverage& coverage, std::vector<std::string>& problems) {
  return Run(schedule, coverage, problems).run();
}

std::vector<std::pair<std::string, int64_t>> Coverage::wanted() const {
  return {{"hit", hits},
          {"miss", misses},
          {"window", window},
          {"unspilled", unspilled},
          {"wrap", wraps},
          {"eviction", evictions},
          {"same-step eviction", same_step_evictions},
          {"slot reset", slot_resets},
          {"reordered copies", reordered},
          {"mixed steps", mixed_steps},
          {"no draft accepted", accepted[0]},
          {"one draft accepted", accepted[1]},
          {"two drafts accepted", accepted[2]},
          {"three drafts accepted", accepted[3]},
          {"rollback over a block edge", block_rollbacks},
          {"draft steps with the first one's list", kept_lists},
          {"draft steps with lists of their own", own_lists},
          {"route select", select},
          {"route gather", gather},
          {"mode eager", modes[0]},
          {"mode capture", modes[1]},
          {"mode compile", modes[2]},
          {"coded rows", coded_rows}};
}

std::string Coverage::text() const {
  std::string text = fmt::format(
      "{} schedules ({} with lists and pool smaller than the text), {} requests, {} cancelled, {} tokens, {} prompt "
      "chunks",
      schedules, long_schedules, requests, cancelled, tokens, prompt_chunks);
  for (const auto& [name, count] : wanted()) text += fmt::format("{} {} {}", name == "hit" ? ";" : ",", name, count);
  return text;
}

}  // namespace tidepool::test
