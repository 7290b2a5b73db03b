#include "tidepool/engine.h"

#include "device/timeline.h"
#include "engine/engine_impl.h"

namespace tidepool {

const char* finish_reason_name(FinishReason reason) {
  constexpr const char* kNames[] = {"", "stop", "length", "cancelled", "error"};
  return kNames[static_cast<int>(reason)];
}

const char* exec_mode_name(ExecMode mode) {
  constexpr const char* kNames[] = {"eager", "capture", "compile"};
  return kNames[static_cast<int>(mode)];
}

Engine::Engine(const EngineOptions& options) : impl_(std::make_unique<EngineImpl>(options)) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

const ModelInfo& Engine::model() const { return impl_->info(); }
Verdict Engine::submit(const RequestOptions& request) { return impl_->submit(request); }
void Engine::cancel(RequestId request) { impl_->cancel(request); }
bool Engine::has_work() const { return impl_->has_work(); }
StepResult Engine::step() {
  StepResult result;
  impl_->step(result);
  return result;
}
void Engine::step(StepResult& result) { impl_->step(result); }
CacheStats Engine::stats() const { return impl_->stats(); }
CacheStats Engine::stats(RequestId request) const { return impl_->stats(request); }
uint64_t Engine::weight_bytes() const { return impl_->weights().resident_bytes(); }
void Engine::write_timeline(const std::string& path) const { device::write_chrome_trace(impl_->timeline(), path); }

}  // namespace tidepool
