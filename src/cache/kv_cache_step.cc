// The operations of a pass, layer by layer.
#include <algorithm>

#include "base/check.h"
#include "cache/kv_cache.h"

namespace tidepool::cache {

using device::kMainStream;
using device::kSideStream;
using device::kSpillStream;

void KvCache::before_write(int32_t layer) {
  if (options_.offload() && in().chunk[2] > 0) executor_.wait(kMainStream, chunk_spilled_[layer % 2]);
}

ops::SpillParams KvCache::spill_params(const Layer& layer) {
  ops::SpillParams p;
  p.store = store_.get();
  p.group = layer.place.group;
  p.layer_in_group = layer.place.index;
  p.block_table = host_table_.data();
  p.max_blocks = max_blocks_;
  p.block_size = options_.block_size;
  p.status = status_.data();
  return p;
}

void KvCache::after_write(int32_t layer_id) {
  if (!options_.offload()) return;
  auto& layer = layers_[static_cast<size_t>(layer_id)];
  const auto& type = options_.reference_ops ? ops::spill_ref() : ops::spill_cpu();
  executor_.record(kMainStream, layer.written);
  executor_.wait(kSpillStream, layer.written);
  const Inputs& inputs = in();
  if (inputs.num_decode > 0 && pass_ != Pass::kMtpDraft) {
    ops::SpillParams p = spill_params(layer);
    track().fill_decode(p);
    p.source = layer.window;
    p.done = &layer.spilled;
    p.copies = layer.spill_copies.data();
    p.max_copies = static_cast<int32_t>(layer.spill_copies.size());
    executor_.push_async(kSpillStream, type, p, layer.spilled);
  }
  if (inputs.chunk[2] > 0) {
    ops::SpillParams p = spill_params(layer);
    track().fill_chunk(p);
    p.source = stage_planes(layer_id);
    p.done = &chunk_spilled_[layer_id % 2];
    p.copies = layer.chunk_copies.data();
    p.max_copies = options_.max_chunk_rows;
    executor_.push_async(kSpillStream, type, p, chunk_spilled_[layer_id % 2]);
  }
}

ops::DecodeBatch KvCache::decode_batch() const {
  const Inputs& inputs = in();
  return {options_.max_cache_slots, inputs.q_len,          &inputs.num_decode,     inputs.slot.data(),
          inputs.len.data(),        inputs.spilled.data(), inputs.final_len.data()};
}

ops::StageTile KvCache::stage_tile(const Tile& tile, const int32_t* topk_indices) {
  ops::StageTile t;
  t.rows = tile.rows;
  t.row_base = first_chunk_row();
  t.chunk = in().chunk.data();
  t.topk = options_.topk;
  t.topk_indices = topk_indices + static_cast<int64_t>(first_chunk_row()) * options_.topk;
  t.stage_capacity = options_.stage_rows;
  t.chunk_capacity = options_.max_chunk_rows;
  t.copies = tile_copies_[static_cast<size_t>(tile.index)];
  t.num_copies = tile_num_copies_ + tile.index;
  t.locations = chunk_locations_;
  t.seen = stage_seen_;
  t.index_of = stage_index_;
  t.id_range = id_range_;
  t.block_table = host_table_.data();
  t.max_blocks = max_blocks_;
  t.block_size = options_.block_size;
  t.status = status_.data();
  return t;
}

void KvCache::push_plan(Group& group, const int32_t* topk_indices) {
  ops::PlanParams p;
  p.batch = decode_batch();
  p.state = group.state;
  p.topk = options_.topk;
  p.topk_indices = topk_indices;
  p.plan = group.plan;
  p.valid_len = group.valid_len;
  p.records = group.records;
  p.num_records = group.num_records;
  p.unique_misses = group.unique_misses;
  p.num_unique_misses = group.num_unique_misses;
  p.seen = plan_seen_;
  p.counts = group.plan_counts.data();
  p.status = status_.data();
  executor_.wait(kMainStream, group.committed);
  executor_.push(kMainStream, options_.reference_ops ? ops::plan_ref() : ops::plan_cpu(), p);
}

void KvCache::select(int32_t group_id, const int32_t* topk_indices) {
  const Inputs& inputs = in();
  if (!options_.offload()) {
    const ops::LocateResidentParams params{
        inputs.all_rows.data(), max_rows_,   options_.topk,       inputs.row_slot.data(), topk_indices,
        device_table_.data(),   max_blocks_, options_.block_size, resident_locations_};
    executor_.push(kMainStream, ops::locate_resident(), params);
    return;
  }
  auto& group = groups_[static_cast<size_t>(group_id)];
  group.topk_indices = topk_indices;
  if (inputs.num_decode > 0 && options_.route == Route::kSelect) push_plan(group, topk_indices);
  for (const Tile& tile : inputs.tiles) {
    const ops::StageTile t = stage_tile(tile, topk_indices);
    executor_.push(kMainStream, ops::stage_list(), ops::StageListParams{t});
    executor_.push(kMainStream, ops::stage_locate(), ops::StageLocateParams{t});
  }
}

template <typename Params>
void KvCache::fill_sources(Layer& layer, Params& p) {
  p.batch = decode_batch();
  p.topk = options_.topk;
  p.window_rows = options_.window_rows;
  p.window = layer.window;
  p.store = store_.get();
  p.group = layer.place.group;
  p.layer_in_group = layer.place.index;
  p.block_table = host_table_.data();
  p.max_blocks = max_blocks_;
  p.block_size = options_.block_size;
  p.done = &layer.serve_done;
  p.status = status_.data();
  p.fetched_rows = layer.fetched.data();
}

void KvCache::push_gather(int32_t layer_id) {
  auto& layer = layers_[static_cast<size_t>(layer_id)];
  auto& group = groups_[static_cast<size_t>(layer.place.group)];
  ops::GatherParams p;
  fill_sources(layer, p);
  p.num_cache_slots = options_.max_cache_slots;
  p.topk_indices = group.topk_indices;
  p.place_status = layer.place_status;
  p.status_queries = options_.q_len;
  p.selection = selections_[static_cast<size_t>(layer.selection)].rows;
  p.locations = gather_locations_;
  p.copies = gather_copies_;
  p.scratch = gather_scratch_;
  p.counts = layer.place.is_owner ? group.plan_counts.data() : nullptr;
  executor_.push_async(kMainStream, options_.reference_ops ? ops::gather_ref() : ops::gather_cpu(), p,
                       layer.serve_done);
  executor_.wait(kMainStream, layer.serve_done);
}

void KvCache::serve(int32_t layer_id) {
  if (!options_.offload() || in().num_decode == 0) return;
  if (options_.route == Route::kGather) return push_gather(layer_id);
  auto& layer = layers_[static_cast<size_t>(layer_id)];
  auto& group = groups_[static_cast<size_t>(layer.place.group)];
  auto& selection = selections_[static_cast<size_t>(layer.selection)];
  executor_.wait(kMainStream, layer.installed);
  if (layer_id < options_.num_main_layers()) {
    // Whichever layer used this selection buffer last, in this step or the one before: its install may still read it.
    const int32_t stride = num_main_selections_;
    int32_t last_user = layer_id - stride;
    if (last_user < 0) last_user = layer_id + (options_.num_main_layers() - 1 - layer_id) / stride * stride;
    executor_.wait(kMainStream, layers_[static_cast<size_t>(last_user)].installed);
  }
  ops::ServeParams p;
  fill_sources(layer, p);
  p.plan = group.plan;
  p.pool_size = pool_.pool_size;
  p.pool = layer.pool;
  p.selection = selection.rows;
  p.locations = selection.locations;
  p.copies = selection.copies;
  executor_.push_async(kMainStream, options_.reference_ops ? ops::serve_ref() : ops::serve_cpu(), p, layer.serve_done);
  executor_.wait(kMainStream, layer.serve_done);
  executor_.record(kMainStream, layer.served);
}

void KvCache::push_install(int32_t layer_id, bool metadata_update) {
  auto& layer = layers_[static_cast<size_t>(layer_id)];
  auto& group = groups_[static_cast<size_t>(layer.place.group)];
  ops::InstallParams p;
  p.batch = decode_batch();
  p.state = group.state;
  p.topk = options_.topk;
  p.metadata_update = metadata_update ? 1 : 0;
  p.records = group.records;
  p.num_records = group.num_records;
  p.selection = selections_[static_cast<size_t>(layer.selection)].rows;
  p.status = status_.data();
  p.pool = layer.pool;
  p.cursor_copy = cursor_copy_;
  p.seen = install_seen_;
  p.counts = group.install_counts.data();
  executor_.wait(kSideStream, layer.served);
  executor_.push(kSideStream, options_.reference_ops ? ops::install_ref() : ops::install_cpu(), p);
  executor_.record(kSideStream, layer.installed);
  if (metadata_update) executor_.record(kSideStream, group.committed);
}

void KvCache::install(int32_t layer_id) {
  if (options_.route != Route::kSelect || in().num_decode == 0) return;
  const LayerPlace& place = layers_[static_cast<size_t>(layer_id)].place;
  if (!place.is_owner) push_install(layer_id, false);
  if (place.is_last) push_install(options_.layer_groups[static_cast<size_t>(place.group)][0], true);
}

void KvCache::stage(int32_t layer_id, const Tile& tile) {
  const auto& layer = layers_[static_cast<size_t>(layer_id)];
  ops::StageFetchParams p;
  p.chunk = in().chunk.data();
  p.block_table = host_table_.data();
  p.max_blocks = max_blocks_;
  p.block_size = options_.block_size;
  p.copies = tile_copies_[static_cast<size_t>(tile.index)];
  p.num_copies = tile_num_copies_ + tile.index;
  p.store = store_.get();
  p.group = layer.place.group;
  p.layer_in_group = layer.place.index;
  p.staging = stage_planes(layer_id);
  p.stage_capacity = options_.stage_rows;
  p.chunk_capacity = options_.max_chunk_rows;
  p.status = status_.data();
  p.fetched_rows = &prefill_fetched_;
  p.done = &stage_done_;
  executor_.push_async(kMainStream, ops::stage_fetch(), p, stage_done_);
  executor_.wait(kMainStream, stage_done_);
}

void KvCache::end_pass() {
  if (!options_.offload() || pass_ == Pass::kMtpDraft) return;
  const bool has_decode_rows = in().num_decode > 0;
  if (has_decode_rows) {
    const auto first = static_cast<size_t>(pass_ == Pass::kMain ? 0 : options_.num_main_layers());
    const auto end = static_cast<size_t>(pass_ == Pass::kMain ? options_.num_main_layers() : options_.num_layers);
    for (size_t i = first; i < end; ++i) executor_.wait(kSpillStream, layers_[i].spilled);
  }
  if (in().chunk[2] > 0) {
    for (auto& event : chunk_spilled_) executor_.wait(kSpillStream, event);
  }
  track().push_end(executor_, has_decode_rows);
}

void KvCache::end_replayed_pass() {
  if (options_.offload() && pass_ != Pass::kMtpDraft) track().end_replayed();
}

}  // namespace tidepool::cache
