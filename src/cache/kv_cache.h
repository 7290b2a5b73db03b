// The KV cache of one model: device arena, host store, pools, windows, index keys, block tables; and the operations
// that plan, serve, install, spill and stage rows within a step.
//
// Two routes. `off`: every row lies on the device in blocks (kResident). `select`: every row goes to the host store;
// the device keeps per request and layer a pool and a window ring, per step a selection buffer, and the index keys.
//
// A step, on the host thread:
//   begin_step(rows)                      writes the step's inputs; waits until no operation still reads the last ones
//   for each layer: before_write(L), [model pushes write_row], after_write(L),
//                   owner layers: [model pushes top-k], select(group)
//                   serve(L) -> [model pushes attention of the decode rows], install(L)
//                   for each tile: stage(L, tile) -> [model pushes attention of the tile's rows]
//   end_step()
// All of them push operations (device/executor.h) and return at once; what varies is in memory, so that the pushes of a
// step with the same row counts are byte for byte the same.
//
// Who waits for what (events, never stream order):
//   serve(L,t) < install(L,t) on the side stream; all installs of a group < its commit (the owner's install, last);
//   commit(t) < plan(t+1); install(L,t) < serve(L,t+1); an install still reading a selection buffer < the next serve
//   into it; write_row(L,t) < spill(L,t) on the spill stream; spill complete < any fetch of the row: positions below
//   spilled_len only, which the host raises when it has seen the step's spill mark.
// The window ring holds window_rows rows a layer; begin_step waits for spills before a row that is not yet spilled
// would be overwritten.
//
// A cache slot is one request's place. Blocks for its whole life are taken in open(), so no step allocates.
// Thread safety: the executor's host thread. Lifetime: the executor and decorated stores outlive it or live in it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/block_pool.h"
#include "cache/geometry.h"
#include "cache/host_store.h"
#include "device/executor.h"
#include "device/memory.h"
#include "device/region.h"
#include "tidepool/ops/install.h"
#include "tidepool/ops/plan.h"
#include "tidepool/ops/serve.h"
#include "tidepool/ops/spill.h"
#include "tidepool/ops/stage.h"

namespace tidepool::cache {

struct CacheOptions {
  std::vector<std::vector<int32_t>> layer_groups;  // first of each: the owner
  int32_t num_layers = 0;
  RowFormat format;
  int32_t index_dim = 0;  // values of an index key, stored in format.type
  int32_t topk = 0;
  int32_t max_cache_slots = 1;
  int32_t max_model_len = 0;  // tokens
  int32_t block_size = 128;   // tokens
  bool offload = false;       // route select
  int32_t pool_size = 0, num_ways = 16;
  std::string policy = "fifo";  // a name of src/policy
  int32_t max_chunk_rows = 0;
  int32_t stage_rows =
      0;  // earlier rows staged for a tile of queries; at least topk. 0: 8 x topk, at most max_model_len
  int32_t window_rows = 0;           // 0: 16
  int32_t spill_turns = 0;           // steps whose spills may be in flight; 0: 8
  uint64_t device_budget_bytes = 0;  // 0: what everything needs
  uint64_t host_budget_bytes = 0;    // 0: likewise
  device::Guard guard = device::Guard::kNone;
  bool reference_ops = false;
  StoreDecorator decorate_store;
};

// Whether a request of some length can be taken.
struct Fit {
  enum class Answer { kNow, kLater, kNever };
  Answer answer = Answer::kNow;
  std::string short_budget;  // not kNow: one sentence naming the budget, what is needed and what there is
};

// The rows of one step. Decode rows come first, one query each; then the chunk.
struct StepRows {
  struct Decode {
    int32_t cache_slot;
    int32_t seq_len;  // this step's token included
  };
  std::vector<Decode> decode;
  struct Chunk {
    int32_t cache_slot = -1;
    int32_t first = 0;  // position
    int32_t count = 0;  // 0: no chunk
  } chunk;
};

struct Tile {
  const int32_t* rows;  // [2] in memory: rows of the step
  int32_t index;
};

// Counters of one group or in total; meaning as in include/tidepool/engine.h.
struct Counts {
  int64_t hits = 0, misses = 0, window = 0, unspilled = 0, fetched_rows = 0, installed = 0, evicted = 0, wraps = 0;
  Counts& operator+=(const Counts& o);
};

class KvCache {
 public:
  // Throws Error when budgets cannot hold one request of max_model_len, or the geometry is impossible.
  KvCache(const CacheOptions& options, device::Executor& executor);
  ~KvCache();

  // --- requests ---
  Fit fit(int64_t num_tokens) const;
  // Takes a slot and all blocks for num_tokens; fit(num_tokens) must be kNow. The slot is reset in the next step.
  int32_t open(int64_t num_tokens);
  // The slot goes back once every operation on it has drained (quarantine); the caller no longer uses it.
  void close(int32_t cache_slot);

  // Drains what keeps closed slots from being free.
  void settle();

  // --- one step ---
  void begin_step(const StepRows& rows);
  void before_write(int32_t layer);
  const RowLocation* row_dest() const { return dest_.data(); }  // [max_rows] where each row of the step is written
  const int32_t* key_loc() const { return key_loc_.data(); }    // [max_rows] where its index key is written
  const int32_t* row_cache_slot() const { return row_slot_.data(); }  // [max_rows]
  void after_write(int32_t layer);
  // topk_indices: [max_rows, topk] of all rows of the step, on the device.
  void select(int32_t group, const int32_t* topk_indices);
  void serve(int32_t layer);
  void install(int32_t layer);
  const std::vector<Tile>& tiles() const { return tiles_; }  // of the chunk; empty without one, or with route off
  void stage(int32_t layer, const Tile& tile);
  void end_step();
  // Instead of every call from before_write to end_step, when the step's operations were pushed as a replay of an
  // earlier step with the same row counts.
  void end_replayed_step() { ++marks_pushed_; }

  // Where attention finds rows. Decode rows: row m at decode_locations() + m * topk, lengths as selected. Route off:
  // all rows of the step there. Chunk rows (select): chunk_locations() + (m - num_decode) * topk.
  const RowLocation* decode_locations(int32_t layer) const;
  const RowLocation* chunk_locations() const { return chunk_locations_; }
  PlaceTable decode_places(int32_t layer) const;
  PlaceTable chunk_places(int32_t layer) const;
  PlaceTable write_places(int32_t layer) const;  // where row_dest points
  std::byte* index_keys(int32_t layer) const { return index_keys_[static_cast<size_t>(layer)]; }  // null for followers
  const int32_t* key_block_table() const { return device_table_.data(); }
  int32_t max_blocks() const { return max_blocks_; }

  // --- state ---
  // The request's status after a step; kOk or the reason it must end.
  ops::RequestStatus status(int32_t cache_slot) const;
  const int32_t* status_word(int32_t cache_slot) const { return &status_[static_cast<size_t>(cache_slot)]; }
  int32_t spilled_len(int32_t cache_slot) const { return spilled_len_[static_cast<size_t>(cache_slot)]; }
  // Counters of a slot since open(), by group. Waits for the side streams.
  std::vector<Counts> slot_counts(int32_t cache_slot);
  int64_t prefill_fetched_rows() const { return prefill_fetched_; }
  int64_t spilled_rows() const { return spilled_rows_; }
  int64_t slot_resets() const { return slot_resets_; }
  // For who turns a recorded decode step into another list: the event of every step that the host looks at, and what
  // operations touch beside the arena, by name. host_ordered are the window rings and the rows of the host store: the
  // host waits for spills before a ring row is written again, and says through spilled_len what may be fetched.
  device::Event& spill_mark() { return spill_mark_; }
  std::vector<device::Region> regions() const;
  const device::Arena& arena() const { return *arena_; }
  device::Arena& arena() { return *arena_; }
  uint64_t host_bytes() const { return host_bytes_; }
  const CacheOptions& options() const { return options_; }
  int32_t num_free_slots() const { return static_cast<int32_t>(free_slots_.size()); }

  // For benchmarks and tests: pretends that positions [0, len) of a slot were written and spilled (contents: whatever
  // the caller has put there through fill_record / index_keys).
  void assume_filled(int32_t cache_slot, int32_t len);
  ops::RowStore& store() { return *store_; }
  int32_t host_record(int32_t cache_slot, int32_t position) const;
  int32_t device_loc(int32_t cache_slot, int32_t position) const;
  const ops::GroupState& group_state(int32_t group) const { return groups_[static_cast<size_t>(group)].state; }
  // (cache slot, pool slot) of every hit that the last plan of a group found; after the main stream is done. For tests.
  std::vector<std::pair<int32_t, int32_t>> hits_of_last_step(int32_t group) const;
  RowPlanes pool_planes(int32_t layer) const { return layers_[static_cast<size_t>(layer)].pool; }

 private:
  struct Group {
    ops::GroupState state;
    ops::PlanEntry* plan = nullptr;
    int32_t* valid_len = nullptr;
    ops::InstallRecord* records = nullptr;
    int32_t* num_records = nullptr;
    int32_t* unique_misses = nullptr;
    int32_t* num_unique_misses = nullptr;
    std::vector<int64_t> plan_counts;     // [slots, 4]
    std::vector<int64_t> install_counts;  // [slots, 3]
    device::Event committed;
  };
  struct Layer {
    LayerPlace place;
    RowPlanes pool, window, resident;
    int32_t selection = 0;         // which selection buffer
    std::vector<int64_t> fetched;  // [slots]
    std::vector<ops::RowCopy> spill_copies, chunk_copies;
    device::Event written, served, serve_done, installed, spilled;
  };
  struct Selection {
    RowPlanes rows;
    RowLocation* locations = nullptr;
    ops::RowCopy* copies = nullptr;
  };
  struct SpillStep {                                // a step whose spills may be in flight
    std::vector<std::pair<int32_t, int32_t>> ends;  // cache slot, spilled_len once done
    uint64_t number = 0;                            // of spill_mark_
  };

  struct DeviceLayout;
  void allocate_host_lists();
  void allocate_device();
  void allocate_host_store();
  uint64_t device_block_bytes() const;
  void see_spills();
  void wait_for_window(const StepRows& rows);
  void release_closed();
  void write_decode_inputs(const StepRows& rows);
  void write_chunk_inputs(const StepRows& rows);
  void write_row_places(const StepRows& rows);
  void write_spill_inputs(const StepRows& rows);
  void push_resets();
  ops::SpillParams spill_params(const Layer& layer);
  void push_install(int32_t layer_id, bool metadata_update);
  ops::DecodeBatch decode_batch() const;
  ops::StageTile stage_tile(const Tile& tile, const int32_t* topk_indices);
  RowPlanes stage_planes(int32_t layer) const;

  CacheOptions options_;
  device::Executor& executor_;
  std::unique_ptr<device::Arena> arena_;
  std::unique_ptr<ops::RowStore> store_;
  PoolGeometry pool_;
  uint64_t host_bytes_ = 0;
  int32_t max_rows_ = 0;    // decode rows + chunk rows
  int32_t max_blocks_ = 0;  // of one request
  int32_t id_range_ = 0;
  std::unique_ptr<BlockPool> device_blocks_, host_blocks_;
  std::vector<int32_t> device_table_, host_table_;  // [slots, max_blocks]
  std::vector<int32_t> slot_blocks_;                // [slots] blocks taken
  std::vector<int32_t> free_slots_;
  struct Closed {
    int32_t slot;
    uint64_t marks;
  };
  std::vector<Closed> closed_;

  std::deque<Group> groups_;
  std::deque<Layer> layers_;
  std::deque<Selection> selections_;
  std::vector<std::byte*> index_keys_;
  uint32_t* plan_seen_ = nullptr;
  uint32_t* install_seen_ = nullptr;
  int32_t* cursor_copy_ = nullptr;
  RowLocation* resident_locations_ = nullptr;

  // Staging of prompt chunks: two halves, layers alternate. Half = chunk part, then stage part.
  std::byte* staging_[2] = {nullptr, nullptr};
  device::Event chunk_spilled_[2], stage_done_;
  std::vector<ops::RowCopy*> tile_copies_;
  int32_t* tile_num_copies_ = nullptr;
  uint64_t* stage_seen_ = nullptr;
  int32_t* stage_index_ = nullptr;
  RowLocation* chunk_locations_ = nullptr;
  std::vector<int32_t> tile_rows_;  // [max_tiles, 2]
  std::vector<Tile> tiles_;

  // Inputs of a step: host memory that operations read.
  std::vector<int32_t> decode_slot_, decode_len_, decode_spilled_;
  int32_t num_decode_ = 0;
  std::vector<int32_t> row_slot_, key_loc_;
  std::vector<RowLocation> dest_;
  std::array<int32_t, 3> chunk_{};  // slot, first, count
  std::array<int32_t, 2> all_rows_{};
  std::vector<int32_t> reset_slots_;
  int32_t num_resets_ = 0;
  std::vector<int32_t> pending_resets_;
  std::vector<int32_t> status_;       // [slots]
  std::vector<int32_t> generation_;   // [slots] requests that have had the slot, this one included
  std::vector<int32_t> spilled_len_;  // [slots]
  std::vector<int32_t> written_len_;  // [slots]

  // Spill lists, one copy per turn.
  int32_t spill_turn_ = 0;   // moved by the spill stream
  int32_t pushed_turn_ = 0;  // of the step being pushed
  uint64_t next_turn_ = 0;   // of the host
  std::vector<int32_t> spill_num_, spill_slot_, spill_first_, spill_count_, spill_base_, spill_origin_, spill_mod_;
  std::array<int32_t, 7> chunk_spill_{};  // num, slot, first, count, base, origin, rows
  int32_t chunk_turn_ = 0;
  device::Event spill_mark_;
  std::vector<SpillStep> spills_;  // [spill_turns] a ring
  size_t first_spill_ = 0, num_spills_ = 0;
  uint64_t marks_pushed_ = 0, marks_seen_ = 0;
  bool last_step_had_chunk_ = false;
  int64_t prefill_fetched_ = 0, spilled_rows_ = 0, slot_resets_ = 0;
};

}  // namespace tidepool::cache
