#include "cache/kv_cache.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "base/text.h"

namespace tidepool::cache {
namespace {

constexpr int32_t kDefaultWindowRows = 16;
constexpr int32_t kDefaultSpillTurns = 8;
constexpr int32_t kDefaultStageLists = 8;  // staged rows by default, in lists of topk rows

using base::bytes_text;

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

KvCache::KvCache(const CacheOptions& options, device::Executor& executor) : options_(options), executor_(executor) {
  auto& o = options_;
  tidepool_check(o.block_size >= 32 && o.block_size % 32 == 0, "--block-size is {}, must be a multiple of 32 tokens",
                 o.block_size);
  tidepool_check(o.max_model_len > 0 && o.max_cache_slots > 0 && o.topk > 0,
                 "cache: max_model_len {}, slots {} and topk {} must be positive", o.max_model_len, o.max_cache_slots,
                 o.topk);
  max_blocks_ = static_cast<int32_t>(ceil_div(o.max_model_len, o.block_size));
  id_range_ = max_blocks_ * o.block_size;
  tidepool_check(o.q_len >= 1 && (!o.has_mtp || (o.num_layers >= 2 && o.layer_groups.back().size() == 1)),
                 "cache: q_len {} or the MTP layer's group is impossible", o.q_len);
  max_rows_ = o.max_cache_slots * o.q_len + o.max_chunk_rows;
  if (o.route == Route::kSelect) pool_ = PoolGeometry::make(o.pool_size, o.num_ways);
  const int64_t most_rows = o.route == Route::kSelect ? PoolGeometry::most_rows(o.num_ways, o.max_model_len) : 0;
  tidepool_check(pool_.pool_size <= most_rows,
                 "--pool-size is {} rows, more than {} are of no use for requests of {} tokens", o.pool_size, most_rows,
                 o.max_model_len);
  if (o.window_rows == 0) o.window_rows = kDefaultWindowRows;
  // With drafts the ring holds the rows of this pass and of the drafts behind it, and those accepted in the last step,
  // which are spilled in this one.
  if (o.q_len > 1) o.window_rows = std::max(o.window_rows, 4 * o.q_len);
  if (o.spill_turns == 0) o.spill_turns = kDefaultSpillTurns;
  if (o.stage_rows == 0) o.stage_rows = std::min<int32_t>(id_range_, kDefaultStageLists * o.topk);
  tidepool_check(o.stage_rows >= std::min(o.topk, id_range_), "cache: {} staged rows cannot hold one list of {} rows",
                 o.stage_rows, o.topk);
  // An unspilled row is at most as old as the spills that may be in flight.
  o.spill_turns = std::min(o.spill_turns, std::max(1, o.window_rows - 1));

  const auto places = layer_places(o.layer_groups, o.num_layers);
  // A group's owner installs behind its last layer: so many selections and one more are alive at once. The MTP layer
  // has one of its own: no layer of the main pass waits for it.
  size_t largest_group = 1;
  for (size_t g = 0; g + (o.has_mtp ? 1 : 0) < o.layer_groups.size(); ++g)
    largest_group = std::max(largest_group, o.layer_groups[g].size());
  num_main_selections_ = static_cast<int32_t>(largest_group) + 1;
  const int32_t num_selections = o.route == Route::kGather ? o.num_layers : num_main_selections_ + (o.has_mtp ? 1 : 0);
  layers_.resize(static_cast<size_t>(o.num_layers));
  groups_.resize(o.layer_groups.size());
  index_keys_.resize(layers_.size(), nullptr);
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i].place = places[i];
    const bool is_mtp = o.has_mtp && i + 1 == layers_.size();
    layers_[i].selection = o.route == Route::kGather ? static_cast<int32_t>(i)
                           : is_mtp                  ? num_main_selections_
                                                     : static_cast<int32_t>(i) % num_main_selections_;
    layers_[i].fetched.resize(static_cast<size_t>(o.max_cache_slots));
  }
  if (o.offload()) {
    selections_.resize(static_cast<size_t>(num_selections));
    const int32_t queries = std::max(1, o.stage_rows / o.topk);
    const auto max_tiles = static_cast<size_t>(std::max<int64_t>(1, ceil_div(o.max_chunk_rows, queries)));
    tile_copies_.resize(max_tiles, nullptr);
    for (Inputs& inputs : inputs_) inputs.tile_rows.resize(max_tiles * 2);
  }
  allocate_host_lists();
  allocate_device();
  if (o.offload()) allocate_host_store();
  for (int32_t slot = o.max_cache_slots - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

KvCache::~KvCache() {
  executor_.drain();
  store_.reset();  // a store may still hold requests of a step that was given up; their lists and rows are members here
}

Fit KvCache::fit(int64_t num_tokens) const {
  const int64_t blocks = ceil_div(num_tokens, options_.block_size);
  const auto answer = [&](const char* name, int64_t free, int64_t all, uint64_t block_bytes) -> Fit {
    const auto kind = blocks > all ? Fit::Answer::kNever : Fit::Answer::kLater;
    return {kind, fmt::format("the {} is short: {} tokens need {} blocks of {} ({}), {} are free of {}", name,
                              num_tokens, blocks, options_.block_size,
                              bytes_text(static_cast<uint64_t>(blocks) * block_bytes), free, all)};
  };
  if (num_tokens > options_.max_model_len) {
    return {Fit::Answer::kNever,
            fmt::format("{} tokens are more than max_model_len {}", num_tokens, options_.max_model_len)};
  }
  if (blocks > device_blocks_->num_free()) {
    return answer("device KV budget (--device-kv-gib)", device_blocks_->num_free(), device_blocks_->num_blocks(),
                  device_block_bytes());
  }
  if (host_blocks_ && blocks > host_blocks_->num_free()) {
    return answer("host KV budget (--host-kv-gib)", host_blocks_->num_free(), host_blocks_->num_blocks(),
                  host_bytes_ / static_cast<uint64_t>(host_blocks_->num_blocks()));
  }
  if (free_slots_.empty()) {
    return {Fit::Answer::kLater,
            fmt::format("all {} cache slots (--max-num-seqs) are taken", options_.max_cache_slots)};
  }
  return {};
}

int32_t KvCache::open(int64_t num_tokens) {
  tidepool_check(fit(num_tokens).answer == Fit::Answer::kNow,
                 "cache: a request of {} tokens was opened that does not fit", num_tokens);
  const int32_t slot = free_slots_.back();
  free_slots_.pop_back();
  const auto s = static_cast<size_t>(slot);
  slot_blocks_[s] = static_cast<int32_t>(ceil_div(num_tokens, options_.block_size));
  const size_t row = s * static_cast<size_t>(max_blocks_);
  device_blocks_->take(slot_blocks_[s], device_table_.data() + row);
  if (host_blocks_) host_blocks_->take(slot_blocks_[s], host_table_.data() + row);
  status_[s] = 0;
  generation_[s] = generation_[s] == INT32_MAX ? 1 : generation_[s] + 1;
  main_track_.reset(slot, 0);
  mtp_track_.reset(slot, 0);
  for (auto& group : groups_) {
    std::fill_n(group.plan_counts.begin() + slot * 4, 4, 0);
    std::fill_n(group.install_counts.begin() + slot * 3, 3, 0);
  }
  for (auto& layer : layers_) layer.fetched[s] = 0;
  if (options_.offload()) pending_resets_.push_back(slot);
  return slot;
}

void KvCache::close(int32_t cache_slot) {
  std::erase(pending_resets_, cache_slot);
  closed_.push_back({cache_slot, main_track_.marks_pushed(), mtp_track_.marks_pushed()});
}

// A closed slot is free once main and install are idle (begin_step has waited for them) and every spill pushed before
// the close is done: until then a late copy could still write into its blocks.
void KvCache::release_closed() {
  std::erase_if(closed_, [&](const Closed& closed) {
    if (main_track_.marks_seen() < closed.main_marks || mtp_track_.marks_seen() < closed.mtp_marks) return false;
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

std::vector<const device::Event*> KvCache::events_between_passes() const {
  if (!options_.has_mtp) return {};
  return {&layers_.back().served, &layers_.back().installed, &groups_.back().committed};
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
  return host_table_[static_cast<size_t>(cache_slot * max_blocks_ + position / options_.block_size)] *
             options_.block_size +
         position % options_.block_size;
}

int32_t KvCache::device_loc(int32_t cache_slot, int32_t position) const {
  return device_table_[static_cast<size_t>(cache_slot * max_blocks_ + position / options_.block_size)] *
             options_.block_size +
         position % options_.block_size;
}

void KvCache::assume_filled(int32_t cache_slot, int32_t len) {
  main_track_.reset(cache_slot, len);
  assume_mtp_filled(cache_slot, len);
}

void KvCache::assume_mtp_filled(int32_t cache_slot, int32_t len) { mtp_track_.reset(cache_slot, len); }

std::vector<std::pair<int32_t, int32_t>> KvCache::hits_of_last_step(int32_t group) const {
  std::vector<std::pair<int32_t, int32_t>> hits;
  const Inputs& inputs = inputs_[static_cast<size_t>(Pass::kMain)];
  const int64_t entries = int64_t{inputs.q_len} * options_.topk;
  for (int64_t b = 0; b < inputs.num_decode; ++b) {
    for (int64_t i = 0; i < entries; ++i) {
      const ops::PlanEntry& entry = groups_[static_cast<size_t>(group)].plan[b * entries + i];
      if (entry.source == static_cast<int32_t>(ops::Source::kHit))
        hits.emplace_back(inputs.slot[static_cast<size_t>(b)], entry.index);
    }
  }
  return hits;
}

PlaceTable KvCache::write_places(int32_t layer_id) const {
  const auto& layer = layers_[static_cast<size_t>(layer_id)];
  PlaceTable table;
  if (options_.offload()) {
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
  if (options_.offload()) {
    table[Place::kSelection] = selections_[static_cast<size_t>(layer.selection)].rows;
  } else {
    table[Place::kResident] = layer.resident;
  }
  return table;
}

PlaceTable KvCache::chunk_places(int32_t layer_id) const {
  if (!options_.offload()) return decode_places(layer_id);
  PlaceTable table;
  table[Place::kStaging] = stage_planes(layer_id);
  return table;
}

const RowLocation* KvCache::decode_locations(int32_t layer) const {
  if (!options_.offload()) return resident_locations_;
  if (options_.route == Route::kGather) return gather_locations_;
  return selections_[static_cast<size_t>(layers_[static_cast<size_t>(layer)].selection)].locations;
}

RowPlanes KvCache::stage_planes(int32_t layer) const {
  return joint_planes(staging_[layer % 2], options_.format, 0, options_.max_chunk_rows + options_.stage_rows);
}

}  // namespace tidepool::cache
