// The one case list of the offload operators, corner cases first, and the world a case runs in. Reference, backends and
// benchmarks run the same list.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "test_store.h"
#include "tidepool/op.h"
#include "tidepool/ops/gather.h"
#include "tidepool/ops/install.h"
#include "tidepool/ops/plan.h"
#include "tidepool/ops/serve.h"
#include "tidepool/ops/spill.h"

namespace tidepool::testing {

struct OpGeometry {
  int32_t max_rows = 1, num_cache_slots = 2;
  int32_t q_len = 1, topk = 16;
  int32_t num_sets = 4, num_ways = 16, id_range = 512;
  int32_t window_rows = 8;
  int32_t block_size = 16, max_blocks = 32;
  int32_t num_layers = 2;  // of the one group
  Layout layout = Layout::kInterleaved;
  RowFormat format{DType::kBF16, 8, 4};
  uint64_t seed = 1;
  bool gather = false;         // the route: reset, spill and gather make a step, not reset, spill, plan, serve, install
  int32_t status_queries = 0;  // of gather; 0: q_len
  int32_t num_status_queries() const { return status_queries == 0 ? q_len : status_queries; }
};

// What the host says of one step.
struct OpStep {
  std::vector<int32_t> resets;  // cache slots that get a new request before the step
  int32_t num_rows = 1;
  std::vector<int32_t> cache_slot, seq_len, spilled_len;       // [max_rows]
  std::vector<int32_t> final_len;                              // [max_rows], or empty: the batch has none
  std::vector<int32_t> topk;                                   // [max_rows, q_len, topk]
  std::vector<std::pair<int32_t, int32_t>> rewritten;          // (cache slot, position): rows from here on are new ones
  std::vector<std::pair<int32_t, ops::RequestStatus>> failed;  // cache slots failed by something else
  std::vector<std::pair<int32_t, int32_t>> missing_blocks;     // (cache slot, logical block) unmapped from here on
};

struct OpCase {
  std::string name;
  OpGeometry geometry;
  std::vector<OpStep> steps;
};

// Every case in both layouts; always the same list.
std::vector<OpCase> op_cases();
// The same for gather: cases of its own, then those above.
std::vector<OpCase> gather_cases();

struct OpSet {
  const device::OpType &plan, &serve, &install, &reset, &spill, &gather, &gather_reset;
};
OpSet ref_ops();
OpSet cpu_ops();

// A named part of a world's memory.
struct Region {
  std::string name;
  std::byte* base;
  size_t bytes;
  bool workspace;  // contents between operations are nobody's business
};

// All memory of one layer group and its operators, run step by step with the host's part done by the test. The rows
// have contents that tell (cache slot, request, layer, position, version) apart.
class OpWorld {
 public:
  OpWorld(const OpGeometry& geometry, const OpSet& ops);
  OpWorld(const OpWorld&) = delete;
  OpWorld& operator=(const OpWorld&) = delete;

  // The host's part: batch arrays, new rows in the window ring, rows spilled before the ring lost them.
  void begin_step(const OpStep& step);
  // One operator in one layer; outputs are poisoned first (of gather: what no place of a selection names), pieces run
  // in random order. Layers install as published: every layer but 0 without metadata, then layer 0 with it.
  struct Call {
    std::string name;
    const device::OpType* type;
    std::vector<std::byte> params;
    bool asynchronous;
  };
  std::vector<Call> calls();  // of the step begun, in order
  void poison_outputs(const Call& call);
  void run(const Call& call);
  void run_step(const OpStep& step);

  std::vector<Region> regions();
  // Problems with the maps, the cursors and the workspaces; none when all is well.
  std::vector<std::string> integrity() const;
  // The row of a position of the request that has the cache slot now.
  std::vector<std::byte> row(int32_t cache_slot, int32_t layer, int32_t position) const;

  const OpGeometry& geometry() const { return geometry_; }
  MemoryRowStore& store() { return store_; }
  RowPlanes pool(int32_t layer) { return pool_.planes(layer); }
  RowPlanes selection(int32_t layer) { return selection_[static_cast<size_t>(layer)].planes(0); }
  RowPlanes window(int32_t layer) { return window_.planes(layer); }
  ops::GroupState state() const;
  ops::PlanParams plan_params();
  ops::ServeParams serve_params(int32_t layer);
  ops::InstallParams install_params(int32_t layer, bool update);
  ops::ResetParams reset_params();
  ops::SpillParams spill_params(int32_t layer);
  ops::GatherParams gather_params(int32_t layer);
  ops::GatherResetParams gather_reset_params(int32_t layer);

  // Memory, as in the parameter structs.
  int32_t num_rows = 0, num_resets = 0;
  std::vector<int32_t> cache_slot, seq_len, spilled_len, final_len, topk, resets;
  std::vector<ops::PlanEntry> plan;
  std::vector<int32_t> valid_len, num_records, unique_misses, num_unique_misses, status;
  std::vector<ops::InstallRecord> records;
  std::vector<RowLocation> locations;
  std::vector<int64_t> plan_counts, install_counts, fetched_rows;
  std::vector<int32_t> slot_of_token, token_of_slot, slot_state, generation, cursor, block_table;
  std::vector<std::vector<int32_t>> place_status;  // by layer
  std::vector<int32_t> spill_first, spill_count, spill_base, spill_origin, spill_rows;

 private:
  ops::DecodeBatch batch();
  void poison_unused_places(int32_t layer);

  OpGeometry geometry_;
  OpSet ops_;
  MemoryRowStore store_;
  RowMemory pool_, window_;
  std::vector<RowMemory> selection_;  // per layer
  std::vector<uint32_t> seen_plan_, seen_install_;
  std::vector<int32_t> cursor_copy_, gather_scratch_;
  std::vector<ops::RowCopy> serve_copies_, spill_copies_;
  std::vector<int32_t> request_of_slot_, stored_len_;
  std::vector<std::vector<int32_t>> rewritten_;  // by cache slot
  bool has_final_len_ = false;
  device::Event done_;
  std::mt19937_64 random_;
};

// Where two worlds of the same geometry differ, workspaces aside; one sentence per region.
std::vector<std::string> differences(OpWorld& got, OpWorld& want);

}  // namespace tidepool::testing
