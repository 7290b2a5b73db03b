// The prefill of seeded prompts, in chunks, through the engine itself.
#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/parallel.h"
#include "engine/bench_common.h"
#include "engine/engine_impl.h"

namespace tidepool {
namespace {

RequestOptions seeded_request(const model::Config& config, uint64_t seed, int32_t num_tokens) {
  RequestOptions request;
  request.prompt = engine::seeded_ids(config.vocab_size, seed, num_tokens);
  request.max_tokens = 1;
  return request;
}

// Touches what every chunk uses, for the first time: pages come from the system then.
void warm_up(EngineImpl& impl, const EngineOptions& o, int32_t num_tokens) {
  StepResult result;
  impl.submit(seeded_request(impl.config(), o.seed + 1, std::min(num_tokens, o.max_num_batched_tokens)));
  while (impl.has_work()) impl.step(result);
  impl.executor().synchronize_all();
}

BenchRow measure_prompt(const PrefillBenchOptions& options, int32_t num_tokens, const MachineRates& rates) {
  EngineOptions o = options.engine;
  o.max_num_seqs = 1;
  o.max_model_len = num_tokens + 1;
  EngineImpl impl(o);
  warm_up(impl, o, num_tokens);
  const Verdict verdict = impl.submit(seeded_request(impl.config(), o.seed, num_tokens));
  tidepool_check(verdict.admitted, "bench: {}", verdict.reason);
  BenchRow row;
  row.what = o.route == OffloadRoute::kSelect ? "prefill select" : "prefill off";
  row.context_tokens = num_tokens;
  row.batch = 1;
  row.pool_size = o.route == OffloadRoute::kSelect ? o.pool_size : 0;
  std::vector<device::TimelineEntry> timeline;
  timeline.reserve(1 << 16);
  impl.executor().set_timeline(&timeline);
  engine::StepSums sums;
  StepResult result;
  int32_t done = 0;
  while (impl.has_work()) {
    timeline.clear();
    const auto begin = std::chrono::steady_clock::now();
    impl.step(result);
    impl.executor().synchronize_all();
    row.step_ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    sums.add(engine::sum_step(timeline));
    done += result.prefill_tokens;
    if (options.progress)
      options.progress(fmt::format("prefill of {} tokens: {} done, {:.1f} s", num_tokens, done, row.step_ms * 1e-3));
  }
  impl.executor().set_timeline(nullptr);
  engine::set_parts({sums}, rates, row);
  double multiply_adds = 0;
  for (const auto& part : sums.parts) multiply_adds += static_cast<double>(part.multiply_adds);
  row.peak_share = multiply_adds / (row.step_ms * 1e-3) / rates.multiply_adds_per_s;
  row.overhead_share = std::max(0.0, 1 - sums.busy_ms / row.step_ms);
  return row;
}

}  // namespace

BenchResult bench_prefill(const PrefillBenchOptions& options) {
  PrefillBenchOptions o = options;
  if (o.engine.num_threads == 0) o.engine.num_threads = base::available_threads();
  BenchResult result;
  if (o.progress) o.progress("measuring the machine");
  result.machine = measure_machine(o.engine.num_threads);
  for (int32_t context : o.contexts) {
    tidepool_check(context >= 1, "--contexts has {} tokens, must be at least 1", context);
    result.rows.push_back(measure_prompt(o, context, result.machine));
  }
  return result;
}

}  // namespace tidepool
