// The KV cache of one model: device arena, host store, pools, windows, index keys, block tables; and the operations
// that plan, serve, install, spill and stage rows within a step.
//
// Three routes. `off`: every row lies on the device in blocks (kResident). `select`: every row goes to the host store;
// the device keeps per request and layer a pool and a window ring, per step a selection buffer, and the index keys.
// `gather`: likewise without pools; each layer keeps its last selection (ops/gather.h).
//
// A step, on the host thread:
//   begin_step(rows)                      writes the step's inputs; waits until no operation still reads the last ones
//   for each layer: before_write(L), [model pushes write_row], after_write(L),
//                   owner layers: [model pushes top-k], select(group)
//                   serve(L) -> [model pushes attention of the decode rows], install(L)
//                   for each tile: stage(L, tile) -> [model pushes attention of the tile's rows]
//   end_pass()
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
// Drafts (q_len > 1): each request has q_len rows in a step, at positions seq_len - q_len ... seq_len - 1. How many of
// them stand is known only when their logits are; the next step begins behind the last one that does and overwrites the
// others. Rows are final, so spilled and pooled, from the next step on. The MTP layer is the last layer, with a group,
// window and spill track of its own, and runs in passes of its own behind the main one (enum Pass): its installs wait
// for the last of them.
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
#include "cache/spill_track.h"
#include "device/executor.h"
#include "device/memory.h"
#include "device/region.h"
#include "tidepool/ops/gather.h"
#include "tidepool/ops/install.h"
#include "tidepool/ops/plan.h"
#include "tidepool/ops/serve.h"
#include "tidepool/ops/spill.h"
#include "tidepool/ops/stage.h"

namespace tidepool::cache {

enum class Route { kOff, kSelect, kGather };

// What a call is about. A pass has inputs of its own; those of kMtpDraft are written again for every draft.
enum class Pass : int32_t {
  kMain,       // every layer but the MTP layer
  kMtpPrompt,  // the MTP layer, rows of the step's chunk
  kMtpRows,    // the MTP layer, the rows that were just verified: q_len a request, those that do not stand are pads
  kMtpDraft,   // the MTP layer, one row a request behind the one before
};
inline constexpr size_t kNumPasses = 4;

struct CacheOptions {
  std::vector<std::vector<int32_t>> layer_groups;  // first of each: the owner; the MTP layer's is the last one
  int32_t num_layers = 0;                          // the MTP layer included
  bool has_mtp = false;                            // the last layer is an MTP layer
  int32_t q_len = 1;                               // rows of a request in the main pass: 1 + drafts
  RowFormat format;
  int32_t index_dim = 0;          // values of an index key
  DType key_type = DType::kBF16;  // of index keys: kBF16 or kF32
  int32_t topk = 0;
  int32_t max_cache_slots = 1;
  int32_t max_model_len = 0;  // tokens
  int32_t block_size = 128;   // tokens
  Route route = Route::kOff;
  int32_t pool_size = 0, num_ways = 16;
  std::string policy = "fifo";  // a name of src/policy
  int32_t max_chunk_rows = 0;
  int32_t stage_rows =
      0;  // earlier rows staged for a tile of queries; at least topk. 0: 8 x topk, at most max_model_len
  int32_t window_rows = 0;           // 0: 16; at least 4 x q_len with drafts
  int32_t spill_turns = 0;           // steps whose spills may be in flight; 0: 8
  uint64_t device_budget_bytes = 0;  // 0: what everything needs
  uint64_t host_budget_bytes = 0;    // 0: likewise
  device::Guard guard = device::Guard::kNone;
  bool reference_ops = false;
  StoreDecorator decorate_store;

  bool offload() const { return route != Route::kOff; }
  int32_t num_main_layers() const { return num_layers - (has_mtp ? 1 : 0); }
};

// Whether a request of some length can be taken.
struct Fit {
  enum class Answer { kNow, kLater, kNever };
  Answer answer = Answer::kNow;
  std::string short_budget;  // not kNow: one sentence naming the budget, what is needed and what there is
};

// The rows of one step. Decode rows come first, q_len of each request; then the chunk.
struct StepRows {
  struct Decode {
    int32_t cache_slot;
    int32_t seq_len;  // this step's q_len tokens included
  };
  std::vector<Decode> decode;
  struct Chunk {
    int32_t cache_slot = -1;
    int32_t first = 0;      // position
    int32_t count = 0;      // 0: no chunk
    int32_t mtp_count = 0;  // the first so many of them go through the MTP layer in this step, too
  } chunk;
};

// A request in the passes behind the main one: rows at positions [first, first + count) stand, 1 <= count <= q_len.
struct MtpRows {
  int32_t cache_slot;
  int32_t first;
  int32_t count;
  int32_t last() const { return first + count - 1; }
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
  // Which pass the calls below are about; begin_step sets kMain.
  void use(Pass pass) { pass_ = pass; }
  // Inputs of kMtpRows, for requests of the main pass and the one whose prompt it ended; main stream idle. Row b *
  // q_len + j: position first + j of request b; a pad from count on. Waits for spills where it must.
  void begin_mtp_rows(const std::vector<MtpRows>& requests);
  // Inputs of kMtpDraft, number `draft` >= 1 behind kMtpRows: row b at position last() + draft. keeps_rows: later
  // drafts may select the row; otherwise it is nowhere written. Main stream idle.
  void begin_mtp_draft(const std::vector<MtpRows>& requests, int32_t draft, bool keeps_rows);
  void before_write(int32_t layer);
  const RowLocation* row_dest() const { return in().dest.data(); }  // [max_rows] where each row of the pass is written
  const int32_t* key_loc() const { return in().key_loc.data(); }    // [max_rows] where its index key is written
  const int32_t* row_cache_slot() const { return in().row_slot.data(); }  // [max_rows]
  void after_write(int32_t layer);
  // topk_indices: [max_rows, topk] of all rows of the step, on the device.
  void select(int32_t group, const int32_t* topk_indices);
  void serve(int32_t layer);
  void install(int32_t layer);
  const std::vector<Tile>& tiles() const { return in().tiles; }  // of the chunk; empty without one, or with route off
  void stage(int32_t layer, const Tile& tile);
  void end_pass();
  // Instead of every call from before_write to end_pass, when the pass's operations were pushed as a replay of an
  // earlier pass with the same row counts.
  void end_replayed_pass();

  // Where attention finds rows. Decode rows: row m at decode_locations() + m * topk, lengths as selected. Route off:
  // all rows of the pass there. Chunk rows (offload): chunk_locations() + (m - first chunk row) * topk.
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
  int32_t spilled_len(int32_t cache_slot) const { return main_track_.spilled_len(cache_slot); }
  // Counters of a slot since open(), by group. Waits for the side streams.
  std::vector<Counts> slot_counts(int32_t cache_slot);
  int64_t prefill_fetched_rows() const { return prefill_fetched_; }
  int64_t spilled_rows() const { return spilled_rows_; }
  int64_t slot_resets() const { return slot_resets_; }
  // For who turns the recorded list of a pass into another one: what operations touch beside the arena, by name;
  // host_ordered are the window rings and the rows of the host store, as the host waits for spills before a ring row is
  // written again, and says through spilled_len what may be fetched.
  std::vector<device::Region> regions() const;
  // The events that the host observes: another list must record them as often as the pass did.
  std::vector<device::Event*> host_events() { return {&main_track_.mark(), &mtp_track_.mark()}; }
  // Events of the MTP layer that one pass records and another waits for. The host has waited for all streams behind
  // them when it writes the inputs of that other pass, so that lists of single passes can leave them out.
  std::vector<const device::Event*> events_between_passes() const;
  const device::Arena& arena() const { return *arena_; }
  device::Arena& arena() { return *arena_; }
  uint64_t host_bytes() const { return host_bytes_; }
  const CacheOptions& options() const { return options_; }
  int32_t num_free_slots() const { return static_cast<int32_t>(free_slots_.size()); }

  // For benchmarks and tests: pretends that positions [0, len) of a slot were written and spilled (contents: whatever
  // the caller has put there through fill_record / index_keys).
  void assume_filled(int32_t cache_slot, int32_t len);
  void assume_mtp_filled(int32_t cache_slot, int32_t len);  // the MTP layer alone, whose passes are left out
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
    const int32_t* topk_indices = nullptr;  // of the last select (gather)
    std::vector<int64_t> plan_counts;       // [slots, 4]
    std::vector<int64_t> install_counts;    // [slots, 3]
    device::Event committed;
  };
  struct Layer {
    LayerPlace place;
    RowPlanes pool, window, resident;
    int32_t selection = 0;            // which selection buffer
    int32_t* place_status = nullptr;  // gather: [slots, q_len, topk + 1]
    std::vector<int64_t> fetched;     // [slots]
    std::vector<ops::RowCopy> spill_copies, chunk_copies;
    device::Event written, served, serve_done, installed, spilled;
  };
  struct Selection {
    RowPlanes rows;
    RowLocation* locations = nullptr;
    ops::RowCopy* copies = nullptr;
  };
  struct Inputs {  // of a pass: host memory that operations read
    int32_t q_len = 1;
    int32_t num_decode = 0;                              // requests
    std::vector<int32_t> slot, len, spilled, final_len;  // [slots]
    std::vector<int32_t> row_slot, key_loc;              // [max_rows]
    std::vector<RowLocation> dest;                       // [max_rows]
    std::array<int32_t, 3> chunk{};                      // slot, first, count
    std::array<int32_t, 2> all_rows{};
    std::vector<int32_t> tile_rows;  // [max_tiles, 2]
    std::vector<Tile> tiles;
  };
  struct DeviceLayout;
  void allocate_host_lists();
  void allocate_device();
  void allocate_host_store();
  uint64_t device_block_bytes() const;
  void see_spills();
  void wait_for_window(const StepRows& rows);
  void release_closed();
  const Inputs& in() const { return inputs_[static_cast<size_t>(pass_)]; }
  Inputs& in() { return inputs_[static_cast<size_t>(pass_)]; }
  SpillTrack& track() { return pass_ == Pass::kMain ? main_track_ : mtp_track_; }
  int32_t first_chunk_row() const;
  void add_decode(int32_t cache_slot, int32_t seq_len, int32_t final_len);
  void add_row(size_t row, int32_t cache_slot, int32_t position, RowLocation offloaded);
  void add_pad(size_t row);
  RowLocation ring_row(int32_t cache_slot, int32_t position) const;
  void write_main_inputs(const StepRows& rows);
  void write_mtp_prompt_inputs(const StepRows& rows);
  void write_chunk_inputs(const StepRows& rows, int32_t count);
  void push_resets();
  void push_plan(Group& group, const int32_t* topk_indices);
  // What serve and gather have in common.
  template <typename Params>
  void fill_sources(Layer& layer, Params& params);
  void push_gather(int32_t layer);
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
    uint64_t main_marks, mtp_marks;
  };
  std::vector<Closed> closed_;

  std::deque<Group> groups_;
  std::deque<Layer> layers_;
  std::deque<Selection> selections_;
  int32_t num_main_selections_ = 0;  // layer i of the main pass uses i % so many (select)
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

  // What gather fills, one layer after the other.
  RowLocation* gather_locations_ = nullptr;
  ops::RowCopy* gather_copies_ = nullptr;
  int32_t* gather_scratch_ = nullptr;

  Pass pass_ = Pass::kMain;
  std::array<Inputs, kNumPasses> inputs_;
  std::vector<int32_t> reset_slots_;
  int32_t num_resets_ = 0;
  std::vector<int32_t> pending_resets_;
  std::vector<int32_t> status_;      // [slots]
  std::vector<int32_t> generation_;  // [slots] requests that have had the slot, this one included
  SpillTrack main_track_, mtp_track_;
  bool step_has_chunk_ = false;
  int64_t prefill_fetched_ = 0, spilled_rows_ = 0, slot_resets_ = 0;
};

}  // namespace tidepool::cache
