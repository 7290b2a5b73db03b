// An engine whose requests have a context that nobody prefilled: seeded rows in the host store (or resident), seeded
// index keys on the device. Steps are driven by hand, on the engine's own cache, model and executor.
//
// Content depends on (seed, request, layer, position) alone, and so do the tokens: two of these with any route and pool
// give the same logits, bit for bit.
// Thread safety: one thread.
#pragma once

#include <memory>
#include <vector>

#include "engine/bench_common.h"
#include "engine/engine_impl.h"

namespace tidepool::engine {

struct BenchContextOptions {
  EngineOptions engine;  // route and pool as wanted; lengths are set here
  int32_t batch = 1;
  int32_t num_filled = 0;  // positions that exist before step 0
  int32_t num_steps = 0;
  const TopkLists* lists = nullptr;  // null: the model's own selections. Outlives the context.
};

class BenchContext {
 public:
  explicit BenchContext(const BenchContextOptions& options);  // loads the model; the context is still empty

  // Of device KV, host store and weights, once all is touched.
  uint64_t memory_bytes() const;
  void fill();
  // Select: brings the pool to where it would be after many steps. A pool that holds the context holds all of it; a
  // smaller one has seen the warm steps of the lists. Without lists a smaller pool stays empty.
  void warm_pool();

  // One decode step of every request; steps are run in order from 0. Returns its wall time in ms.
  double step();
  // The same, all streams idle before and after, with what ran when. (Asking operations for their costs takes time of
  // its own: such steps are not for step times.)
  StepSums timed_step();
  // The same, its operations also kept in `list`.
  void captured_step(device::OpList& list);
  int32_t num_steps_run() const { return next_step_; }

  const float* logits(int32_t row) { return impl_->model().logits(row); }
  cache::Counts counts();  // of all requests and groups, since fill
  EngineImpl& impl() { return *impl_; }
  int32_t batch() const { return options_.batch; }
  bool is_select() const { return options_.engine.route == OffloadRoute::kSelect; }
  int32_t pool_size() const { return is_select() ? options_.engine.pool_size : 0; }

 private:
  void make_row_table();
  void fill_rows(int32_t slot, int32_t layer, int32_t first, int32_t count);
  void fill_keys(int32_t slot, int32_t layer, int32_t first, int32_t count);
  void write_device(std::byte* destination, const std::vector<std::byte>& source, size_t bytes);
  void store_rows(int32_t slot, int32_t layer, int32_t first, int32_t count);
  // Puts lists through plan, serve and install of all layers, without a model; lists[group]: [batch, topk].
  void run_cache(const std::vector<const int32_t*>& lists);
  void begin_step();

  BenchContextOptions options_;
  std::unique_ptr<EngineImpl> impl_;
  std::vector<int32_t> slots_;
  std::vector<std::byte> row_table_;  // rows that contexts are made of
  std::vector<std::byte> staging_;    // rows or keys of one block
  std::vector<cache::LayerPlace> places_;
  cache::StepRows rows_;
  model::StepTokens tokens_;
  int32_t next_step_ = 0;
  std::vector<device::TimelineEntry> timeline_;
};

}  // namespace tidepool::engine
