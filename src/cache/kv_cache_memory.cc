// What a cache holds in memory: one layout, counted first and allocated then.
#include <cmath>

#include "base/check.h"
#include "base/text.h"
#include "cache/kv_cache.h"
#include "ops/check.h"

namespace tidepool::cache {
namespace {

constexpr int64_t kAlignBytes = 64;  // what an arena allocation is rounded up to

// Either counts what would be allocated, or allocates.
class Allocator {
 public:
  explicit Allocator(device::Arena* arena) : arena_(arena) {}
  template <typename T>
  T* array(int64_t count, const std::string& what) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    total_bytes_ += static_cast<uint64_t>(round_up(bytes, kAlignBytes));
    return arena_ == nullptr || bytes == 0 ? nullptr
                                           : reinterpret_cast<T*>(arena_->allocate(static_cast<uint64_t>(bytes), what));
  }
  uint64_t total_bytes() const { return total_bytes_; }

 private:
  device::Arena* arena_;
  uint64_t total_bytes_ = 0;
};

using base::bytes_text;

// As a value of an option in GiB: the least with six digits that is at least so many bytes.
std::string gib_option(uint64_t bytes) {
  return fmt::format("{:.6f}", std::ceil(static_cast<double>(bytes) / (1u << 30) * 1e6) * 1e-6);
}

}  // namespace

// Everything the device holds for KV, in one place: `make` runs once to count and once to allocate.
struct KvCache::DeviceLayout {
  KvCache& c;

  void groups(Allocator& a) const {
    const auto& o = c.options_;
    const int64_t slots = o.max_cache_slots, lists = slots * o.q_len, entries = lists * o.topk;
    for (auto& group : c.groups_) {
      group.state.slot_of_token = a.array<int32_t>(slots * c.id_range_, "slot_of_token of a group");
      group.state.token_of_slot = a.array<int32_t>(slots * c.pool_.pool_size, "token_of_slot of a group");
      group.state.slot_state = a.array<int32_t>(slots * c.pool_.pool_size, "slot states of a group");
      group.state.cursor = a.array<int32_t>(slots * c.pool_.num_sets, "cursors of a group");
      group.plan = a.array<ops::PlanEntry>(entries, "plan of a group");
      group.valid_len = a.array<int32_t>(lists, "valid_len of a group");
      group.records = a.array<ops::InstallRecord>(entries, "install records of a group");
      group.num_records = a.array<int32_t>(slots, "record counts of a group");
      group.unique_misses = a.array<int32_t>(entries, "unique misses of a group");
      group.num_unique_misses = a.array<int32_t>(slots, "unique miss counts of a group");
    }
    const int64_t seen_words = ceil_div(c.id_range_, 32);
    c.plan_seen_ = a.array<uint32_t>(slots * seen_words, "positions seen by plan");
    c.install_seen_ = a.array<uint32_t>(slots * seen_words, "positions seen by install");
    c.cursor_copy_ = a.array<int32_t>(slots * c.pool_.num_sets, "cursor copies of install");
  }

  void rows(Allocator& a) const {
    const auto& o = c.options_;
    const int64_t slots = o.max_cache_slots, row = o.format.row_bytes();
    const bool has_pools = o.route == Route::kSelect;
    for (size_t i = 0; i < c.layers_.size(); ++i) {
      auto& layer = c.layers_[i];
      if (has_pools) {
        layer.pool = joint_planes(
            a.array<std::byte>(slots * c.pool_.pool_size * row, fmt::format("pool of layer {}", i)), o.format);
      }
      layer.window =
          joint_planes(a.array<std::byte>(slots * o.window_rows * row, fmt::format("window of layer {}", i)), o.format);
    }
    const int64_t selected = slots * o.q_len * o.topk;
    for (auto& selection : c.selections_) {
      selection.rows = joint_planes(a.array<std::byte>(selected * row, "selection buffer"), o.format, 0,
                                    static_cast<int32_t>(selected));
      if (!has_pools) continue;
      selection.locations = a.array<RowLocation>(selected, "selection locations");
      selection.copies = a.array<ops::RowCopy>(selected, "serve copy lists");
    }
  }

  void gathered(Allocator& a) const {
    const auto& o = c.options_;
    const int64_t lists = int64_t{o.max_cache_slots} * o.q_len;
    for (auto& layer : c.layers_)
      layer.place_status = a.array<int32_t>(lists * (o.topk + 1), "gather status of a layer");
    c.gather_locations_ = a.array<RowLocation>(lists * o.topk, "gather locations");
    c.gather_copies_ = a.array<ops::RowCopy>(lists * o.topk, "gather copy lists");
    c.gather_scratch_ = a.array<int32_t>(lists * ops::kGatherScratch * o.topk, "gather scratch");
  }

  void staging(Allocator& a) const {
    const auto& o = c.options_;
    const int64_t row = o.format.row_bytes();
    for (auto& half : c.staging_)
      half = a.array<std::byte>((o.max_chunk_rows + o.stage_rows) * row, "staging of prompt chunks");
    for (auto& list : c.tile_copies_) list = a.array<ops::RowCopy>(o.stage_rows, "staging list of a tile");
    c.tile_num_copies_ = a.array<int32_t>(static_cast<int64_t>(c.tile_copies_.size()), "staging list lengths");
    c.stage_seen_ = a.array<uint64_t>(ceil_div(c.id_range_, 64), "positions seen by staging");
    c.stage_index_ = a.array<int32_t>(c.id_range_, "staging rows of positions");
    c.chunk_locations_ = a.array<RowLocation>(static_cast<int64_t>(o.max_chunk_rows) * o.topk, "chunk locations");
  }

  void fixed(Allocator& a) const {
    const auto& o = c.options_;
    if (o.offload()) {
      if (o.route == Route::kSelect) groups(a);
      if (o.route == Route::kGather) gathered(a);
      rows(a);
      staging(a);
    } else {
      c.resident_locations_ = a.array<RowLocation>(static_cast<int64_t>(c.max_rows_) * o.topk, "resident locations");
    }
  }

  void blocks(Allocator& a, int64_t num_blocks) const {
    const auto& o = c.options_;
    const int64_t tokens = num_blocks * o.block_size;
    for (size_t i = 0; i < c.layers_.size(); ++i) {
      if (c.layers_[i].place.is_owner) {
        c.index_keys_[i] = a.array<std::byte>(tokens * o.index_dim * static_cast<int64_t>(dtype_bytes(o.key_type)),
                                              fmt::format("index keys of layer {}", i));
      }
      if (!o.offload()) {
        c.layers_[i].resident =
            joint_planes(a.array<std::byte>(tokens * o.format.row_bytes(), fmt::format("rows of layer {}", i)),
                         o.format, 0, static_cast<int32_t>(tokens));
      }
    }
  }
};

uint64_t KvCache::device_block_bytes() const {
  const auto& o = options_;
  const uint64_t key_bytes = static_cast<uint64_t>(o.index_dim) * dtype_bytes(o.key_type) * o.layer_groups.size();
  const uint64_t row_bytes =
      o.offload() ? 0 : static_cast<uint64_t>(o.format.row_bytes()) * static_cast<uint64_t>(o.num_layers);
  return (key_bytes + row_bytes) * static_cast<uint64_t>(o.block_size);
}

void KvCache::allocate_host_lists() {
  const auto& o = options_;
  const auto slots = static_cast<size_t>(o.max_cache_slots), rows = static_cast<size_t>(max_rows_);
  for (auto* list : {&generation_, &slot_blocks_, &status_, &reset_slots_}) list->assign(slots, 0);
  for (Inputs& inputs : inputs_) {
    inputs.q_len = o.q_len;
    for (auto* list : {&inputs.slot, &inputs.len, &inputs.spilled, &inputs.final_len}) list->assign(slots, 0);
    inputs.row_slot.assign(rows, -1);
    inputs.key_loc.assign(rows, -1);
    inputs.dest.assign(rows, {});
  }
  inputs_[static_cast<size_t>(Pass::kMtpDraft)].q_len = 1;
  for (auto* table : {&device_table_, &host_table_}) table->assign(slots * static_cast<size_t>(max_blocks_), 0);
  for (SpillTrack* track : {&main_track_, &mtp_track_})
    track->allocate(o.max_cache_slots, o.spill_turns, o.window_rows);
  for (auto& group : groups_) {
    group.plan_counts.assign(slots * 4, 0);
    group.install_counts.assign(slots * 3, 0);
  }
  for (auto& layer : layers_) {
    layer.spill_copies.resize(slots * static_cast<size_t>(o.q_len));
    layer.chunk_copies.resize(static_cast<size_t>(o.max_chunk_rows));
  }
}

void KvCache::allocate_device() {
  const auto& o = options_;
  const DeviceLayout layout{*this};
  Allocator count(nullptr);
  layout.fixed(count);
  const uint64_t block_bytes = device_block_bytes();
  const int64_t wanted = static_cast<int64_t>(o.max_cache_slots) * max_blocks_;
  int64_t blocks = wanted;
  if (o.device_budget_bytes > 0) {
    const uint64_t left = o.device_budget_bytes - std::min(o.device_budget_bytes, count.total_bytes());
    blocks = std::min<int64_t>(wanted, static_cast<int64_t>(left / block_bytes));
  }
  Allocator least = count;
  layout.blocks(least, max_blocks_);
  tidepool_check(
      o.device_budget_bytes == 0 || o.device_budget_bytes >= least.total_bytes(),
      "device budget (--device-kv-gib) of {} is too small for one request of {} tokens: {} fixed (pools, windows, "
      "selections, staging, metadata of {} slots) and {} for its blocks; the least that works is {}",
      bytes_text(o.device_budget_bytes), o.max_model_len, bytes_text(count.total_bytes()), o.max_cache_slots,
      bytes_text(least.total_bytes() - count.total_bytes()), gib_option(least.total_bytes()));
  layout.blocks(count, blocks);
  // Rounding single allocations up to 64 bytes may pass the budget by less than a block.
  while (o.device_budget_bytes > 0 && count.total_bytes() > o.device_budget_bytes && blocks > max_blocks_) {
    --blocks;
    Allocator again(nullptr);
    layout.fixed(again);
    layout.blocks(again, blocks);
    count = again;
  }
  arena_ = std::make_unique<device::Arena>(
      "device KV", o.device_budget_bytes > 0 ? o.device_budget_bytes : count.total_bytes(), o.guard);
  Allocator real(arena_.get());
  layout.fixed(real);
  layout.blocks(real, blocks);
  device_blocks_ = std::make_unique<BlockPool>(static_cast<int32_t>(blocks));
  for (auto& group : groups_) {
    group.state.num_cache_slots = o.max_cache_slots;
    group.state.generation = generation_.data();
    group.state.id_range = id_range_;
    group.state.num_sets = pool_.num_sets;
    group.state.num_ways = pool_.num_ways;
    group.state.policy = ops::policy_number(o.policy);
  }
  if (o.guard == device::Guard::kProtected) executor_.protect(*arena_);
}

void KvCache::allocate_host_store() {
  const auto& o = options_;
  HostStoreOptions store;
  for (const auto& group : o.layer_groups) store.layers_of_group.push_back(static_cast<int32_t>(group.size()));
  store.format = o.format;
  store.block_size = o.block_size;
  const auto block_bytes = static_cast<uint64_t>(host_block_bytes(store));
  int64_t blocks = static_cast<int64_t>(o.max_cache_slots) * max_blocks_;
  if (o.host_budget_bytes > 0)
    blocks = std::min<int64_t>(blocks, static_cast<int64_t>(o.host_budget_bytes / block_bytes));
  tidepool_check(blocks >= max_blocks_,
                 "host budget (--host-kv-gib) of {} is too small for one request of {} tokens, which needs {}; the "
                 "least that works is {}",
                 bytes_text(o.host_budget_bytes), o.max_model_len,
                 bytes_text(block_bytes * static_cast<uint64_t>(max_blocks_)),
                 gib_option(block_bytes * static_cast<uint64_t>(max_blocks_)));
  store.num_blocks = static_cast<int32_t>(blocks);
  host_bytes_ = block_bytes * static_cast<uint64_t>(blocks);
  std::unique_ptr<ops::RowStore> made = std::make_unique<MemoryHostStore>(store);
  store_ = o.decorate_store ? o.decorate_store(std::move(made)) : std::move(made);
  host_blocks_ = std::make_unique<BlockPool>(static_cast<int32_t>(blocks));
}

}  // namespace tidepool::cache
