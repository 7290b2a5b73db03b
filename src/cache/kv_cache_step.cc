// One step of the cache: inputs, then the operations of each layer in order.
#include <algorithm>

#include "base/check.h"
#include "cache/kv_cache.h"

namespace tidepool::cache {

using device::kMainStream;
using device::kSideStream;
using device::kSpillStream;

// Raises spilled_len for every step whose spill mark the executor has reached.
void KvCache::see_spills() {
  marks_seen_ = executor_.observe(spill_mark_);
  for (; num_spills_ > 0 && spills_[first_spill_].number <= marks_seen_; --num_spills_) {
    for (const auto& [slot, len] : spills_[first_spill_].ends) {
      auto& spilled = spilled_len_[static_cast<size_t>(slot)];
      spilled = std::max(spilled, len);
    }
    first_spill_ = (first_spill_ + 1) % spills_.size();
  }
}

// The ring row of position p is that of p - window_rows, which must be readable elsewhere first; and the lists of the
// turn about to be written must have been used.
void KvCache::wait_for_window(const StepRows& rows) {
  bool must_wait = num_spills_ == spills_.size();
  for (const auto& row : rows.decode) {
    must_wait |= spilled_len_[static_cast<size_t>(row.cache_slot)] <= row.seq_len - 1 - options_.window_rows;
  }
  if (must_wait) {
    executor_.synchronize(kSpillStream);
    see_spills();
  }
}

void KvCache::begin_step(const StepRows& rows) {
  tidepool_check(static_cast<int32_t>(rows.decode.size()) <= options_.max_cache_slots &&
                     rows.chunk.count <= options_.max_chunk_rows,
                 "cache: a step of {} decode rows and {} prompt rows is larger than {} and {}", rows.decode.size(),
                 rows.chunk.count, options_.max_cache_slots, options_.max_chunk_rows);
  executor_.synchronize(kSideStream);                             // installs still read the last step's lists
  if (last_step_had_chunk_) executor_.synchronize(kSpillStream);  // so do its spills; its rows are in no ring
  see_spills();
  if (options_.offload) wait_for_window(rows);
  release_closed();
  last_step_had_chunk_ = options_.offload && rows.chunk.count > 0;
  write_decode_inputs(rows);
  write_chunk_inputs(rows);
  write_row_places(rows);
  if (options_.offload) {
    write_spill_inputs(rows);
    push_resets();
  }
}

void KvCache::write_decode_inputs(const StepRows& rows) {
  num_decode_ = static_cast<int32_t>(rows.decode.size());
  for (size_t b = 0; b < rows.decode.size(); ++b) {
    decode_slot_[b] = rows.decode[b].cache_slot;
    decode_len_[b] = rows.decode[b].seq_len;
    decode_spilled_[b] = spilled_len_[static_cast<size_t>(rows.decode[b].cache_slot)];
    written_len_[static_cast<size_t>(rows.decode[b].cache_slot)] = rows.decode[b].seq_len;
  }
}

void KvCache::write_chunk_inputs(const StepRows& rows) {
  chunk_ = {rows.chunk.cache_slot, rows.chunk.first, rows.chunk.count};
  all_rows_ = {0, num_decode_ + rows.chunk.count};
  tiles_.clear();
  if (!options_.offload || rows.chunk.count == 0) return;
  // Where all earlier rows fit the stage part one tile serves the whole chunk; otherwise each query may want topk
  // others.
  const bool all_fit = rows.chunk.first <= options_.stage_rows;
  const int32_t queries = all_fit ? rows.chunk.count : std::max(1, options_.stage_rows / options_.topk);
  for (int32_t begin = 0; begin < rows.chunk.count; begin += queries) {
    const size_t t = tiles_.size();
    tile_rows_[2 * t] = num_decode_ + begin;
    tile_rows_[2 * t + 1] = num_decode_ + std::min(begin + queries, rows.chunk.count);
    tiles_.push_back({&tile_rows_[2 * t], static_cast<int32_t>(t)});
  }
}

void KvCache::write_row_places(const StepRows& rows) {
  size_t m = 0;
  const auto place = [&](int32_t slot, int32_t position, RowLocation offloaded) {
    row_slot_[m] = slot;
    key_loc_[m] = device_loc(slot, position);
    dest_[m] = options_.offload ? offloaded : RowLocation{Place::kResident, key_loc_[m]};
    ++m;
  };
  for (const auto& row : rows.decode) {
    const int32_t p = row.seq_len - 1;
    place(row.cache_slot, p, {Place::kWindow, row.cache_slot * options_.window_rows + p % options_.window_rows});
  }
  for (int32_t i = 0; i < rows.chunk.count; ++i)
    place(rows.chunk.cache_slot, rows.chunk.first + i, {Place::kStaging, i});
}

void KvCache::write_spill_inputs(const StepRows& rows) {
  SpillStep& step = spills_[(first_spill_ + num_spills_++) % spills_.size()];
  step.ends.clear();
  if (num_decode_ > 0) {
    const size_t turn = next_turn_++ % static_cast<uint64_t>(options_.spill_turns);
    pushed_turn_ = static_cast<int32_t>(turn);
    const size_t base = turn * static_cast<size_t>(options_.max_cache_slots);
    spill_num_[turn] = num_decode_;
    for (size_t b = 0; b < rows.decode.size(); ++b) {
      const auto& row = rows.decode[b];
      spill_slot_[base + b] = row.cache_slot;
      spill_first_[base + b] = row.seq_len - 1;
      spill_count_[base + b] = 1;
      spill_base_[base + b] = row.cache_slot * options_.window_rows;
      spill_origin_[base + b] = 0;
      spill_mod_[base + b] = options_.window_rows;
      step.ends.emplace_back(row.cache_slot, row.seq_len);
    }
  }
  const auto& chunk = rows.chunk;
  chunk_spill_ = {chunk.count > 0 ? 1 : 0,
                  chunk.cache_slot,
                  chunk.first,
                  chunk.count,
                  0,
                  chunk.first,
                  std::max(1, options_.max_chunk_rows)};
  if (chunk.count > 0) step.ends.emplace_back(chunk.cache_slot, chunk.first + chunk.count);
  spilled_rows_ += static_cast<int64_t>(num_decode_ + chunk.count) * options_.num_layers;
  step.number = marks_pushed_ + 1;
}

void KvCache::push_resets() {
  if (pending_resets_.empty()) return;
  num_resets_ = static_cast<int32_t>(pending_resets_.size());
  std::copy(pending_resets_.begin(), pending_resets_.end(), reset_slots_.begin());
  slot_resets_ += num_resets_;
  pending_resets_.clear();
  for (auto& group : groups_) {
    const ops::ResetParams params{group.state, reset_slots_.data(), &num_resets_};
    executor_.push(kMainStream, options_.reference_ops ? ops::reset_ref() : ops::reset_cpu(), params);
  }
}

void KvCache::before_write(int32_t layer) {
  if (options_.offload && chunk_[2] > 0) executor_.wait(kMainStream, chunk_spilled_[layer % 2]);
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
  if (!options_.offload) return;
  auto& layer = layers_[static_cast<size_t>(layer_id)];
  const auto& type = options_.reference_ops ? ops::spill_ref() : ops::spill_cpu();
  executor_.record(kMainStream, layer.written);
  executor_.wait(kSpillStream, layer.written);
  if (num_decode_ > 0) {
    ops::SpillParams p = spill_params(layer);
    p.max_rows = options_.max_cache_slots;
    p.num_turns = options_.spill_turns;
    p.turn = &spill_turn_;
    p.pushed_turn = &pushed_turn_;
    p.num_rows = spill_num_.data();
    p.cache_slot = spill_slot_.data();
    p.first = spill_first_.data();
    p.count = spill_count_.data();
    p.source_base = spill_base_.data();
    p.source_origin = spill_origin_.data();
    p.source_rows = spill_mod_.data();
    p.source = layer.window;
    p.done = &layer.spilled;
    p.copies = layer.spill_copies.data();
    p.max_copies = options_.max_cache_slots;
    executor_.push_async(kSpillStream, type, p, layer.spilled);
  }
  if (chunk_[2] > 0) {
    ops::SpillParams p = spill_params(layer);
    p.max_rows = 1;
    p.turn = &chunk_turn_;
    p.num_rows = &chunk_spill_[0];
    p.cache_slot = &chunk_spill_[1];
    p.first = &chunk_spill_[2];
    p.count = &chunk_spill_[3];
    p.source_base = &chunk_spill_[4];
    p.source_origin = &chunk_spill_[5];
    p.source_rows = &chunk_spill_[6];
    p.source = stage_planes(layer_id);
    p.done = &chunk_spilled_[layer_id % 2];
    p.copies = layer.chunk_copies.data();
    p.max_copies = options_.max_chunk_rows;
    executor_.push_async(kSpillStream, type, p, chunk_spilled_[layer_id % 2]);
  }
}

ops::DecodeBatch KvCache::decode_batch() const {
  return {options_.max_cache_slots, 1, &num_decode_, decode_slot_.data(), decode_len_.data(), decode_spilled_.data()};
}

ops::StageTile KvCache::stage_tile(const Tile& tile, const int32_t* topk_indices) {
  ops::StageTile t;
  t.rows = tile.rows;
  t.row_base = num_decode_;
  t.chunk = chunk_.data();
  t.topk = options_.topk;
  t.topk_indices = topk_indices + static_cast<int64_t>(num_decode_) * options_.topk;
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

void KvCache::select(int32_t group_id, const int32_t* topk_indices) {
  if (!options_.offload) {
    const ops::LocateResidentParams params{all_rows_.data(), max_rows_,           options_.topk,
                                           row_slot_.data(), topk_indices,        device_table_.data(),
                                           max_blocks_,      options_.block_size, resident_locations_};
    executor_.push(kMainStream, ops::locate_resident(), params);
    return;
  }
  auto& group = groups_[static_cast<size_t>(group_id)];
  if (num_decode_ > 0) {
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
  for (const Tile& tile : tiles_) {
    const ops::StageTile t = stage_tile(tile, topk_indices);
    executor_.push(kMainStream, ops::stage_list(), ops::StageListParams{t});
    executor_.push(kMainStream, ops::stage_locate(), ops::StageLocateParams{t});
  }
}

void KvCache::serve(int32_t layer_id) {
  if (!options_.offload || num_decode_ == 0) return;
  auto& layer = layers_[static_cast<size_t>(layer_id)];
  auto& group = groups_[static_cast<size_t>(layer.place.group)];
  auto& selection = selections_[static_cast<size_t>(layer.selection)];
  executor_.wait(kMainStream, layer.installed);
  // Whichever layer used this selection buffer last, in this step or the one before: its install may still read it.
  const int32_t stride = static_cast<int32_t>(selections_.size());
  int32_t last_user = layer_id - stride;
  if (last_user < 0) last_user = layer_id + (options_.num_layers - 1 - layer_id) / stride * stride;
  executor_.wait(kMainStream, layers_[static_cast<size_t>(last_user)].installed);
  ops::ServeParams p;
  p.batch = decode_batch();
  p.topk = options_.topk;
  p.plan = group.plan;
  p.pool_size = pool_.pool_size;
  p.pool = layer.pool;
  p.window_rows = options_.window_rows;
  p.window = layer.window;
  p.store = store_.get();
  p.group = layer.place.group;
  p.layer_in_group = layer.place.index;
  p.block_table = host_table_.data();
  p.max_blocks = max_blocks_;
  p.block_size = options_.block_size;
  p.done = &layer.serve_done;
  p.selection = selection.rows;
  p.locations = selection.locations;
  p.copies = selection.copies;
  p.status = status_.data();
  p.fetched_rows = layer.fetched.data();
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
  if (!options_.offload || num_decode_ == 0) return;
  const LayerPlace& place = layers_[static_cast<size_t>(layer_id)].place;
  if (!place.is_owner) push_install(layer_id, false);
  if (place.is_last) push_install(options_.layer_groups[static_cast<size_t>(place.group)][0], true);
}

void KvCache::stage(int32_t layer_id, const Tile& tile) {
  const auto& layer = layers_[static_cast<size_t>(layer_id)];
  ops::StageFetchParams p;
  p.chunk = chunk_.data();
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

void KvCache::end_step() {
  if (!options_.offload) return;
  if (num_decode_ > 0) {
    for (auto& layer : layers_) executor_.wait(kSpillStream, layer.spilled);
    executor_.push(kSpillStream, ops::spill_advance(), ops::SpillAdvanceParams{&spill_turn_});
  }
  if (chunk_[2] > 0) {
    for (auto& event : chunk_spilled_) executor_.wait(kSpillStream, event);
  }
  executor_.record(kSpillStream, spill_mark_);
  ++marks_pushed_;
}

}  // namespace tidepool::cache
