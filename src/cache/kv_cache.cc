#include "cache/kv_cache.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/check.h"
#include "base/text.h"
#include "ops/check.h"

namespace tidepool::cache {
namespace {

constexpr int32_t kDefaultWindowRows = 16;
constexpr int32_t kDefaultSpillTurns = 8;
constexpr int32_t kDefaultStageLists = 8;  // staged rows by default, in lists of topk rows
constexpr int64_t kAlignBytes = 64;        // what an arena allocation is rounded up to

// Either counts what would be allocated, or allocates.
class Allocator {
 public:
  explicit Allocator(device::Arena* arena) : arena_(arena) {}
  template <typename T>
  T* array(int64_t count, const std::string& what) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    total_bytes_ += static_cast<uint64_t>(round_up(bytes, kAlignBytes));
    return arena_ == nullptr || bytes == 0 ? nullptr : reinterpret_cast<T*>(arena_->allocate(static_cast<uint64_t>(bytes), what));
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

Counts& Counts::operator+=(const Counts& o) {
  hits += o.hits;
  misses += o.misses;
  window += o.window;
  unspilled += o.unspilled;
  fetched_rows += o.fetched_rows;
  installed += o.installed;
  evicted += o.evicted;
  wraps += o.wraps;
  return *this;
}

// Everything the device holds for KV, in one place: `make` runs once to count and once to allocate.
struct KvCache::DeviceLayout {
  KvCache& c;

  void groups(Allocator& a) const {
    const auto& o = c.options_;
    const int64_t slots = o.max_cache_slots, entries = slots * o.topk;
    for (auto& group : c.groups_) {
      group.state.slot_of_token = a.array<int32_t>(slots * c.id_range_, "slot_of_token of a group");
      group.state.token_of_slot = a.array<int32_t>(slots * c.pool_.pool_size, "token_of_slot of a group");
      group.state.slot_state = a.array<int32_t>(slots * c.pool_.pool_size, "slot states of a group");
      group.state.cursor = a.array<int32_t>(slots * c.pool_.num_sets, "cursors of a group");
      group.plan = a.array<ops::PlanEntry>(entries, "plan of a group");
      group.valid_len = a.array<int32_t>(slots, "valid_len of a group");
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
    for (size_t i = 0; i < c.layers_.size(); ++i) {
      auto& layer = c.layers_[i];
      layer.pool = joint_planes(a.array<std::byte>(slots * c.pool_.pool_size * row, fmt::format("pool of layer {}", i)), o.format);
      layer.window = joint_planes(a.array<std::byte>(slots * o.window_rows * row, fmt::format("window of layer {}", i)), o.format);
    }
    for (auto& selection : c.selections_) {
      const int64_t selected = slots * o.topk;
      selection.rows = joint_planes(a.array<std::byte>(selected * row, "selection buffer"), o.format, 0, static_cast<int32_t>(selected));
      selection.locations = a.array<RowLocation>(selected, "selection locations");
      selection.copies = a.array<ops::RowCopy>(selected, "serve copy lists");
    }
  }

  void staging(Allocator& a) const {
    const auto& o = c.options_;
    const int64_t row = o.format.row_bytes();
    for (auto& half : c.staging_) half = a.array<std::byte>((o.max_chunk_rows + o.stage_rows) * row, "staging of prompt chunks");
    for (auto& list : c.tile_copies_) list = a.array<ops::RowCopy>(o.stage_rows, "staging list of a tile");
    c.tile_num_copies_ = a.array<int32_t>(static_cast<int64_t>(c.tile_copies_.size()), "staging list lengths");
    c.stage_seen_ = a.array<uint64_t>(ceil_div(c.id_range_, 64), "positions seen by staging");
    c.stage_index_ = a.array<int32_t>(c.id_range_, "staging rows of positions");
    c.chunk_locations_ = a.array<RowLocation>(static_cast<int64_t>(o.max_chunk_rows) * o.topk, "chunk locations");
  }

  void fixed(Allocator& a) const {
    const auto& o = c.options_;
    if (o.offload) {
      groups(a);
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
        c.index_keys_[i] = a.array<std::byte>(tokens * o.index_dim * static_cast<int64_t>(dtype_bytes(o.format.type)),
                                              fmt::format("index keys of layer {}", i));
      }
      if (!o.offload) {
        c.layers_[i].resident = joint_planes(a.array<std::byte>(tokens * o.format.row_bytes(), fmt::format("rows of layer {}", i)), o.format, 0, static_cast<int32_t>(tokens));
      }
    }
  }
};

uint64_t KvCache::device_block_bytes() const {
  const auto& o = options_;
  const uint64_t key_bytes = static_cast<uint64_t>(o.index_dim) * dtype_bytes(o.format.type) * o.layer_groups.size();
  const uint64_t row_bytes = o.offload ? 0 : static_cast<uint64_t>(o.format.row_bytes()) * static_cast<uint64_t>(o.num_layers);
  return (key_bytes + row_bytes) * static_cast<uint64_t>(o.block_size);
}

KvCache::KvCache(const CacheOptions& options, device::Executor& executor) : options_(options), executor_(executor) {
  auto& o = options_;
  tidepool_check(o.block_size >= 32 && o.block_size % 32 == 0, "--block-size is {}, must be a multiple of 32 tokens", o.block_size);
  tidepool_check(o.max_model_len > 0 && o.max_cache_slots > 0 && o.topk > 0, "cache: max_model_len {}, slots {} and topk {} must be positive",
                 o.max_model_len, o.max_cache_slots, o.topk);
  max_blocks_ = static_cast<int32_t>(ceil_div(o.max_model_len, o.block_size));
  id_range_ = max_blocks_ * o.block_size;
  max_rows_ = o.max_cache_slots + o.max_chunk_rows;
  if (o.offload) pool_ = PoolGeometry::make(o.pool_size, o.num_ways);
  const int64_t most_rows = o.offload ? PoolGeometry::most_rows(o.num_ways, o.max_model_len) : 0;
  tidepool_check(pool_.pool_size <= most_rows, "--pool-size is {} rows, more than {} are of no use for requests of {} tokens",
                 o.pool_size, most_rows, o.max_model_len);
  if (o.window_rows == 0) o.window_rows = kDefaultWindowRows;
  if (o.spill_turns == 0) o.spill_turns = kDefaultSpillTurns;
  if (o.stage_rows == 0) o.stage_rows = std::min<int32_t>(id_range_, kDefaultStageLists * o.topk);
  tidepool_check(o.stage_rows >= std::min(o.topk, id_range_), "cache: {} staged rows cannot hold one list of {} rows", o.stage_rows, o.topk);
  // An unspilled row is at most as old as the spills that may be in flight.
  o.spill_turns = std::min(o.spill_turns, std::max(1, o.window_rows - 1));

  const auto places = layer_places(o.layer_groups, o.num_layers);
  size_t largest_group = 1;
  for (const auto& group : o.layer_groups) largest_group = std::max(largest_group, group.size());
  const auto num_selections = static_cast<int32_t>(largest_group) + 1;
  layers_.resize(static_cast<size_t>(o.num_layers));
  groups_.resize(o.layer_groups.size());
  index_keys_.resize(layers_.size(), nullptr);
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i].place = places[i];
    layers_[i].selection = static_cast<int32_t>(i) % num_selections;
    layers_[i].fetched.resize(static_cast<size_t>(o.max_cache_slots));
  }
  if (o.offload) {
    selections_.resize(static_cast<size_t>(num_selections));
    const int32_t queries = std::max(1, o.stage_rows / o.topk);
    const auto max_tiles = static_cast<size_t>(std::max<int64_t>(1, ceil_div(o.max_chunk_rows, queries)));
    tile_copies_.resize(max_tiles, nullptr);
    tile_rows_.resize(max_tiles * 2);
  }
  allocate_host_lists();
  allocate_device();
  if (o.offload) allocate_host_store();
  for (int32_t slot = o.max_cache_slots - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

KvCache::~KvCache() {
  executor_.drain();
  store_.reset();  // a store may still hold requests of a step that was given up; their lists and rows are members here
}

void KvCache::allocate_host_lists() {
  const auto& o = options_;
  const auto slots = static_cast<size_t>(o.max_cache_slots), rows = static_cast<size_t>(max_rows_);
  for (auto* list : {&generation_, &decode_slot_, &decode_len_, &decode_spilled_, &slot_blocks_, &status_, &spilled_len_, &written_len_, &reset_slots_}) {
    list->assign(slots, 0);
  }
  for (auto* table : {&device_table_, &host_table_}) table->assign(slots * static_cast<size_t>(max_blocks_), 0);
  row_slot_.assign(rows, -1);
  key_loc_.assign(rows, -1);
  dest_.assign(rows, {});
  const size_t turns = static_cast<size_t>(o.spill_turns);
  spill_num_.assign(turns, 0);
  spills_.resize(turns);
  for (auto& step : spills_) step.ends.reserve(slots + 1);
  for (auto* list : {&spill_slot_, &spill_first_, &spill_count_, &spill_base_, &spill_origin_, &spill_mod_}) list->assign(turns * slots, 0);
  for (auto& group : groups_) {
    group.plan_counts.assign(slots * 4, 0);
    group.install_counts.assign(slots * 3, 0);
  }
  for (auto& layer : layers_) {
    layer.spill_copies.resize(slots);
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
  tidepool_check(o.device_budget_bytes == 0 || o.device_budget_bytes >= least.total_bytes(),
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
  arena_ = std::make_unique<device::Arena>("device KV", o.device_budget_bytes > 0 ? o.device_budget_bytes : count.total_bytes(), o.guard);
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
  if (o.host_budget_bytes > 0) blocks = std::min<int64_t>(blocks, static_cast<int64_t>(o.host_budget_bytes / block_bytes));
  tidepool_check(blocks >= max_blocks_, "host budget (--host-kv-gib) of {} is too small for one request of {} tokens, which needs {}; the least that works is {}",
                 bytes_text(o.host_budget_bytes), o.max_model_len, bytes_text(block_bytes * static_cast<uint64_t>(max_blocks_)),
                 gib_option(block_bytes * static_cast<uint64_t>(max_blocks_)));
  store.num_blocks = static_cast<int32_t>(blocks);
  host_bytes_ = block_bytes * static_cast<uint64_t>(blocks);
  std::unique_ptr<ops::RowStore> made = std::make_unique<MemoryHostStore>(store);
  store_ = o.decorate_store ? o.decorate_store(std::move(made)) : std::move(made);
  host_blocks_ = std::make_unique<BlockPool>(static_cast<int32_t>(blocks));
}

Fit KvCache::fit(int64_t num_tokens) const {
  const int64_t blocks = ceil_div(num_tokens, options_.block_size);
  const auto answer = [&](const char* name, int64_t free, int64_t all, uint64_t block_bytes) -> Fit {
    const auto kind = blocks > all ? Fit::Answer::kNever : Fit::Answer::kLater;
    return {kind, fmt::format("the {} is short: {} tokens need {} blocks of {} ({}), {} are free of {}", name, num_tokens, blocks,
                              options_.block_size, bytes_text(static_cast<uint64_t>(blocks) * block_bytes), free, all)};
  };
  if (num_tokens > options_.max_model_len) {
    return {Fit::Answer::kNever, fmt::format("{} tokens are more than max_model_len {}", num_tokens, options_.max_model_len)};
  }
  if (blocks > device_blocks_->num_free()) {
    return answer("device KV budget (--device-kv-gib)", device_blocks_->num_free(), device_blocks_->num_blocks(), device_block_bytes());
  }
  if (host_blocks_ && blocks > host_blocks_->num_free()) {
    return answer("host KV budget (--host-kv-gib)", host_blocks_->num_free(), host_blocks_->num_blocks(),
                  host_bytes_ / static_cast<uint64_t>(host_blocks_->num_blocks()));
  }
  if (free_slots_.empty()) {
    return {Fit::Answer::kLater, fmt::format("all {} cache slots (--max-num-seqs) are taken", options_.max_cache_slots)};
  }
  return {};
}

int32_t KvCache::open(int64_t num_tokens) {
  tidepool_check(fit(num_tokens).answer == Fit::Answer::kNow, "cache: a request of {} tokens was opened that does not fit", num_tokens);
  const int32_t slot = free_slots_.back();
  free_slots_.pop_back();
  const auto s = static_cast<size_t>(slot);
  slot_blocks_[s] = static_cast<int32_t>(ceil_div(num_tokens, options_.block_size));
  const size_t row = s * static_cast<size_t>(max_blocks_);
  device_blocks_->take(slot_blocks_[s], device_table_.data() + row);
  if (host_blocks_) host_blocks_->take(slot_blocks_[s], host_table_.data() + row);
  status_[s] = 0;
  generation_[s] = generation_[s] == INT32_MAX ? 1 : generation_[s] + 1;
  spilled_len_[s] = written_len_[s] = 0;
  for (auto& group : groups_) {
    std::fill_n(group.plan_counts.begin() + slot * 4, 4, 0);
    std::fill_n(group.install_counts.begin() + slot * 3, 3, 0);
  }
  for (auto& layer : layers_) layer.fetched[s] = 0;
  if (options_.offload) pending_resets_.push_back(slot);
  return slot;
}

void KvCache::close(int32_t cache_slot) {
  std::erase(pending_resets_, cache_slot);
  closed_.push_back({cache_slot, marks_pushed_});
}

// A closed slot is free once main and install are idle (begin_step has waited for them) and every spill pushed before the
// close is done: until then a late copy could still write into its blocks.
void KvCache::release_closed() {
  std::erase_if(closed_, [&](const Closed& closed) {
    if (marks_seen_ < closed.marks) return false;
    const auto s = static_cast<size_t>(closed.slot);
    const size_t row = s * static_cast<size_t>(max_blocks_);
    device_blocks_->give_back(slot_blocks_[s], device_table_.data() + row);
    if (host_blocks_) host_blocks_->give_back(slot_blocks_[s], host_table_.data() + row);
    slot_blocks_[s] = 0;
    free_slots_.push_back(closed.slot);
    return true;
  });
}

void KvCache::settle() {
  executor_.synchronize(device::kSideStream);
  if (!closed_.empty()) executor_.synchronize(device::kSpillStream);
  see_spills();
  release_closed();
}

ops::RequestStatus KvCache::status(int32_t cache_slot) const {
  return static_cast<ops::RequestStatus>(status_[static_cast<size_t>(cache_slot)]);
}

std::vector<Counts> KvCache::slot_counts(int32_t cache_slot) {
  executor_.synchronize(device::kSideStream);
  std::vector<Counts> all(groups_.size());
  const auto s = static_cast<size_t>(cache_slot);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int64_t* plan = groups_[g].plan_counts.data() + s * 4;
    const int64_t* install = groups_[g].install_counts.data() + s * 3;
    all[g] = {plan[0], plan[1], plan[2], plan[3], 0, install[0], install[1], install[2]};
  }
  for (const auto& layer : layers_) all[static_cast<size_t>(layer.place.group)].fetched_rows += layer.fetched[s];
  return all;
}

int32_t KvCache::host_record(int32_t cache_slot, int32_t position) const {
  return host_table_[static_cast<size_t>(cache_slot * max_blocks_ + position / options_.block_size)] * options_.block_size +
         position % options_.block_size;
}

int32_t KvCache::device_loc(int32_t cache_slot, int32_t position) const {
  return device_table_[static_cast<size_t>(cache_slot * max_blocks_ + position / options_.block_size)] * options_.block_size +
         position % options_.block_size;
}

void KvCache::assume_filled(int32_t cache_slot, int32_t len) {
  spilled_len_[static_cast<size_t>(cache_slot)] = len;
  written_len_[static_cast<size_t>(cache_slot)] = len;
}

std::vector<std::pair<int32_t, int32_t>> KvCache::hits_of_last_step(int32_t group) const {
  std::vector<std::pair<int32_t, int32_t>> hits;
  for (int64_t b = 0; b < num_decode_; ++b) {
    for (int64_t i = 0; i < options_.topk; ++i) {
      const ops::PlanEntry& entry = groups_[static_cast<size_t>(group)].plan[b * options_.topk + i];
      if (entry.source == static_cast<int32_t>(ops::Source::kHit)) hits.emplace_back(decode_slot_[static_cast<size_t>(b)], entry.index);
    }
  }
  return hits;
}

PlaceTable KvCache::write_places(int32_t layer_id) const {
  const auto& layer = layers_[static_cast<size_t>(layer_id)];
  PlaceTable table;
  if (options_.offload) {
    table[Place::kWindow] = layer.window;
    table[Place::kStaging] = stage_planes(layer_id);
  } else {
    table[Place::kResident] = layer.resident;
  }
  return table;
}

PlaceTable KvCache::decode_places(int32_t layer_id) const {
  const auto& layer = layers_[static_cast<size_t>(layer_id)];
  PlaceTable table;
  if (options_.offload) {
    table[Place::kSelection] = selections_[static_cast<size_t>(layer.selection)].rows;
  } else {
    table[Place::kResident] = layer.resident;
  }
  return table;
}

PlaceTable KvCache::chunk_places(int32_t layer_id) const {
  if (!options_.offload) return decode_places(layer_id);
  PlaceTable table;
  table[Place::kStaging] = stage_planes(layer_id);
  return table;
}

const RowLocation* KvCache::decode_locations(int32_t layer) const {
  if (!options_.offload) return resident_locations_;
  return selections_[static_cast<size_t>(layers_[static_cast<size_t>(layer)].selection)].locations;
}

RowPlanes KvCache::stage_planes(int32_t layer) const {
  return joint_planes(staging_[layer % 2], options_.format, 0, options_.max_chunk_rows + options_.stage_rows);
}

}  // namespace tidepool::cache
