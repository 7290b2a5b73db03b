// How a pass is launched: pushed, or replayed from the list that an earlier pass with as many requests left.
#include "base/check.h"
#include "engine/engine_impl.h"

namespace tidepool {
namespace {

const char* pass_name(cache::Pass pass) {
  constexpr const char* kNames[] = {"main", "mtp-prompt", "mtp-rows", "mtp-draft"};
  return kNames[static_cast<size_t>(pass)];
}

}  // namespace

// Prompt chunks differ in their row counts from step to step: such passes are always pushed.
bool EngineImpl::repeats(cache::Pass pass) const {
  return pass == cache::Pass::kMain ? rows_.chunk.count == 0 : pass != cache::Pass::kMtpPrompt;
}

void EngineImpl::run_pass(cache::Pass pass, int32_t num_requests, int32_t variant, const std::function<void()>& push) {
  cache_->use(pass);
  if (options_.exec == ExecMode::kEager || !repeats(pass)) {
    push();
    cache_->end_pass();
    return;
  }
  const PassKey key{static_cast<int32_t>(pass), num_requests, variant};
  if (const auto known = lists_.find(key); known != lists_.end()) {
    executor_->replay(known->second.compiled ? known->second.compiled->list() : known->second.recorded);
    cache_->use(pass);
    cache_->end_replayed_pass();
    return;
  }
  record_pass(key, push);
}

// The list is kept only when all has gone well: a pass that cannot be recorded or compiled fails each time it is asked
// for, and never runs in another mode instead.
void EngineImpl::record_pass(const PassKey& key, const std::function<void()>& push) {
  const auto [kind, num_requests, variant] = key;
  const auto pass = static_cast<cache::Pass>(kind);
  PassList list;
  {
    struct Capture {
      device::Executor& executor;
      ~Capture() { executor.end_capture(); }
    };
    executor_->begin_capture(list.recorded);
    const Capture capture{*executor_};
    push();
    cache_->end_pass();
  }
  if (options_.exec == ExecMode::kCompile) {
    executor_->synchronize_all();  // activations may lie elsewhere in the next step
    list.compiled = std::make_unique<graph::CompiledStep>(
        compile_pass(list.recorded, fmt::format("{}-{}{}", pass_name(pass), num_requests, variant > 0 ? "-last" : "")));
  }
  lists_.emplace(key, std::move(list));
}

graph::CompiledStep EngineImpl::compile_pass(const device::OpList& recorded, const std::string& name) {
  graph::CompileOptions options;
  options.activations = &model_->arena();
  options.arenas = {&cache_->arena()};
  if (model_->kept_arena() != nullptr) options.arenas.push_back(model_->kept_arena());
  options.regions = cache_->regions();
  options.host_events = cache_->host_events();
  options.waited_by_host = cache_->events_between_passes();
  options.dump_dir = options_.dump_graph;
  options.name = name;
  return graph::compile(recorded, options);
}

}  // namespace tidepool
