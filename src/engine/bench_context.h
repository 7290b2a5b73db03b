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
  EngineOptions engine;  // route, pool and mode as wanted; lengths and drafts are set here
  int32_t batch = 1;
  int32_t rows = 1;        // of each request in a step: more than 1 as with rows - 1 drafts that all stand
  int32_t num_filled = 0;  // positions that exist before step 0
  int32_t num_steps = 0;
  // Null: the model's own selections. Row j of step s has those of list step s * rows + j. Outlives the context.
  const TopkLists* lists = nullptr;
};

class BenchContext {
 public:
  explicit BenchContext(const BenchContextOptions& options);  // loads the model; the context is still empty
  BenchContext(const BenchContext&) = delete;
  BenchContext& operator=(const BenchContext&) = delete;

  // Of device KV, host store and weights, once all is touched.
  uint64_t memory_bytes() const;
  void fill();
  // Select: brings the pool to where it would be after many steps. A pool that holds the context holds all of it; a
  // smaller one has seen the warm steps of the lists. Without lists a smaller pool stays empty.
  void warm_pool();

  // One main pass over `rows` new positions of every request, launched as the engine does it; steps are run in order
  // from 0. Returns its wall time in ms.
  double step();
  // The same with what ran when, all streams idle before and after, both within its time. Asking operations for their
  // costs takes time of its own: the wall time is meant without it.
  StepSums timed_step(bool with_costs);
  // The same, its operations also kept in `list`.
  void captured_step(device::OpList& list);
  int32_t next_position() const { return options_.num_filled + next_step_ * options_.rows; }

  // Of the last step.
  const float* logits(int32_t request, int32_t row = 0) { return impl_->model().logits(request * options_.rows + row); }
  cache::Counts counts();  // of all requests and groups, since fill
  EngineImpl& impl() { return *impl_; }
  int32_t batch() const { return options_.batch; }
  int32_t rows() const { return options_.rows; }
  ExecMode exec() const { return options_.engine.exec; }
  bool is_select() const { return options_.engine.route == OffloadRoute::kSelect; }
  int32_t pool_size() const { return is_select() ? options_.engine.pool_size : 0; }

 private:
  void make_row_table();
  void fill_rows(int32_t slot, int32_t layer, int32_t first, int32_t count);
  void fill_keys(int32_t slot, int32_t layer, int32_t first, int32_t count);
  void write_device(std::byte* destination, const std::vector<std::byte>& source, size_t bytes);
  void store_rows(int32_t slot, int32_t layer, int32_t first, int32_t count);
  void copy_lists(int32_t first);  // list steps first ... first + rows - 1
  // Puts lists_ through plan, serve and install of the main layers, without a model.
  void run_cache();
  void begin_step();

  BenchContextOptions options_;
  std::unique_ptr<EngineImpl> impl_;
  std::vector<int32_t> slots_;
  std::vector<std::byte> row_table_;  // rows that contexts are made of
  std::vector<std::byte> staging_;    // rows or keys of one block
  std::vector<cache::LayerPlace> places_;
  // By group of the main layers: [batch, rows, topk] of the step. Captured steps read them where they are.
  std::vector<std::vector<int32_t>> lists_;
  cache::StepRows rows_;
  model::StepTokens tokens_;
  int32_t next_step_ = 0;
  std::vector<device::TimelineEntry> timeline_;
};

}  // namespace tidepool::engine
