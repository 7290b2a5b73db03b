// What a pass reads: batch arrays, where its rows go, spill lists. Written by the host while the main stream is idle.
#include <algorithm>

#include "base/check.h"
#include "cache/kv_cache.h"

namespace tidepool::cache {

using device::kSideStream;
using device::kSpillStream;

void KvCache::see_spills() {
  main_track_.see(executor_);
  if (options_.has_mtp) mtp_track_.see(executor_);
}

// The ring row of position p is that of p - window_rows, which must be readable elsewhere first; and the lists of the
// turns about to be written must have been used.
void KvCache::wait_for_window(const StepRows& rows) {
  const int32_t drafts = options_.q_len - 1;
  bool must_wait = main_track_.is_full() || mtp_track_.is_full();
  for (const auto& row : rows.decode) {
    const int32_t newest = row.seq_len - 1, newest_draft = newest + drafts;
    must_wait |= main_track_.spilled_len(row.cache_slot) <= newest - options_.window_rows;
    must_wait |= options_.has_mtp && mtp_track_.spilled_len(row.cache_slot) <= newest_draft - options_.window_rows;
  }
  if (must_wait) {
    executor_.synchronize(kSpillStream);
    see_spills();
  }
}

void KvCache::begin_step(const StepRows& rows) {
  tidepool_check(static_cast<int32_t>(rows.decode.size()) <= options_.max_cache_slots &&
                     rows.chunk.count <= options_.max_chunk_rows,
                 "cache: a step of {} requests and {} prompt rows is larger than {} and {}", rows.decode.size(),
                 rows.chunk.count, options_.max_cache_slots, options_.max_chunk_rows);
  executor_.synchronize(kSideStream);                        // installs still read the last step's lists
  if (step_has_chunk_) executor_.synchronize(kSpillStream);  // so do its spills; its rows are in no ring
  see_spills();
  if (options_.offload()) wait_for_window(rows);
  release_closed();
  step_has_chunk_ = options_.offload() && rows.chunk.count > 0;
  if (options_.has_mtp && rows.chunk.mtp_count > 0) write_mtp_prompt_inputs(rows);
  write_main_inputs(rows);
  if (options_.offload()) push_resets();
}

int32_t KvCache::first_chunk_row() const {
  const Inputs& main = inputs_[static_cast<size_t>(Pass::kMain)];
  return main.num_decode * main.q_len;
}

RowLocation KvCache::ring_row(int32_t cache_slot, int32_t position) const {
  return {Place::kWindow, cache_slot * options_.window_rows + position % options_.window_rows};
}

void KvCache::add_decode(int32_t cache_slot, int32_t seq_len, int32_t final_len) {
  Inputs& inputs = in();
  const auto b = static_cast<size_t>(inputs.num_decode++);
  inputs.slot[b] = cache_slot;
  inputs.len[b] = seq_len;
  inputs.spilled[b] = track().spilled_len(cache_slot);
  inputs.final_len[b] = final_len;
}

void KvCache::add_row(size_t row, int32_t cache_slot, int32_t position, RowLocation offloaded) {
  Inputs& inputs = in();
  inputs.row_slot[row] = cache_slot;
  inputs.key_loc[row] = device_loc(cache_slot, position);
  inputs.dest[row] = options_.offload() ? offloaded : RowLocation{Place::kResident, inputs.key_loc[row]};
}

void KvCache::add_pad(size_t row) {
  in().key_loc[row] = -1;
  in().dest[row] = {};
}

void KvCache::write_chunk_inputs(const StepRows& rows, int32_t count) {
  Inputs& inputs = in();
  const int32_t first_row = first_chunk_row();
  inputs.chunk = {rows.chunk.cache_slot, rows.chunk.first, count};
  inputs.tiles.clear();
  for (int32_t i = 0; i < count; ++i) {
    add_row(static_cast<size_t>(first_row + i), rows.chunk.cache_slot, rows.chunk.first + i, {Place::kStaging, i});
  }
  if (!options_.offload() || count == 0) return;
  track().set_chunk(rows.chunk.cache_slot, rows.chunk.first, count, options_.max_chunk_rows);
  spilled_rows_ += int64_t{count} * (pass_ == Pass::kMain ? options_.num_main_layers() : 1);
  // Where all earlier rows fit the stage part one tile serves the whole chunk; otherwise each query may want topk
  // others.
  const bool all_fit = rows.chunk.first <= options_.stage_rows;
  const int32_t queries = all_fit ? count : std::max(1, options_.stage_rows / options_.topk);
  for (int32_t begin = 0; begin < count; begin += queries) {
    const size_t t = inputs.tiles.size();
    inputs.tile_rows[2 * t] = first_row + begin;
    inputs.tile_rows[2 * t + 1] = first_row + std::min(begin + queries, count);
    inputs.tiles.push_back({&inputs.tile_rows[2 * t], static_cast<int32_t>(t)});
  }
}

void KvCache::write_main_inputs(const StepRows& rows) {
  use(Pass::kMain);
  Inputs& inputs = in();
  const int32_t q_len = options_.q_len;
  inputs.num_decode = 0;
  if (options_.offload()) main_track_.begin_pass(!rows.decode.empty());
  for (const auto& row : rows.decode) {
    const auto first_row = static_cast<size_t>(inputs.num_decode * q_len);
    const int32_t first = row.seq_len - q_len;
    add_decode(row.cache_slot, row.seq_len, first);
    for (int32_t j = 0; j < q_len; ++j) {
      add_row(first_row + static_cast<size_t>(j), row.cache_slot, first + j, ring_row(row.cache_slot, first + j));
    }
    // Without drafts a row is final as soon as it is written.
    const int32_t final_len = q_len == 1 ? row.seq_len : first;
    if (options_.offload())
      spilled_rows_ += int64_t{main_track_.add_decode(row.cache_slot, final_len)} * options_.num_main_layers();
  }
  inputs.all_rows = {0, inputs.num_decode * q_len + rows.chunk.count};
  write_chunk_inputs(rows, rows.chunk.count);
}

void KvCache::write_mtp_prompt_inputs(const StepRows& rows) {
  use(Pass::kMain);
  in().num_decode = static_cast<int32_t>(rows.decode.size());  // the chunk's rows lie behind them in every pass
  use(Pass::kMtpPrompt);
  in().num_decode = 0;
  in().all_rows = {first_chunk_row(), first_chunk_row() + rows.chunk.mtp_count};
  if (options_.offload()) mtp_track_.begin_pass(false);
  write_chunk_inputs(rows, rows.chunk.mtp_count);
}

void KvCache::begin_mtp_rows(const std::vector<MtpRows>& requests) {
  use(Pass::kMtpRows);
  Inputs& inputs = in();
  const int32_t q_len = inputs.q_len;
  if (options_.offload()) {
    // Rows of this step's chunk are in no ring; and the pass needs a turn.
    if (step_has_chunk_ || mtp_track_.is_full()) executor_.synchronize(kSpillStream);
    see_spills();
    mtp_track_.begin_pass(!requests.empty());
  }
  inputs.num_decode = 0;
  inputs.chunk = {};
  inputs.tiles.clear();
  for (const MtpRows& r : requests) {
    const auto first_row = static_cast<size_t>(inputs.num_decode * q_len);
    add_decode(r.cache_slot, r.first + q_len, r.first);
    for (int32_t j = 0; j < q_len; ++j) {
      const size_t row = first_row + static_cast<size_t>(j);
      add_row(row, r.cache_slot, r.first + j, ring_row(r.cache_slot, r.first + j));
      if (j >= r.count) add_pad(row);
    }
    if (options_.offload()) spilled_rows_ += mtp_track_.add_decode(r.cache_slot, r.first + r.count);
  }
  inputs.all_rows = {0, inputs.num_decode * q_len};
}

void KvCache::begin_mtp_draft(const std::vector<MtpRows>& requests, int32_t draft, bool keeps_rows) {
  if (keeps_rows) executor_.synchronize(kSideStream);  // the draft before has installs that read these lists
  use(Pass::kMtpDraft);
  Inputs& inputs = in();
  inputs.num_decode = 0;
  inputs.chunk = {};
  inputs.tiles.clear();
  for (const MtpRows& r : requests) {
    const auto row = static_cast<size_t>(inputs.num_decode);
    const int32_t position = r.last() + draft;
    add_decode(r.cache_slot, position + 1, r.first);
    add_row(row, r.cache_slot, position, ring_row(r.cache_slot, position));
    if (!keeps_rows) add_pad(row);
  }
  inputs.all_rows = {0, inputs.num_decode};
}

void KvCache::push_resets() {
  if (pending_resets_.empty()) return;
  num_resets_ = static_cast<int32_t>(pending_resets_.size());
  std::copy(pending_resets_.begin(), pending_resets_.end(), reset_slots_.begin());
  slot_resets_ += num_resets_;
  pending_resets_.clear();
  if (options_.route == Route::kGather) {
    for (auto& layer : layers_) {
      executor_.push(device::kMainStream, ops::gather_reset(),
                     ops::GatherResetParams{options_.max_cache_slots, options_.q_len, options_.topk, layer.place_status,
                                            reset_slots_.data(), &num_resets_});
    }
    return;
  }
  for (auto& group : groups_) {
    const ops::ResetParams params{group.state, reset_slots_.data(), &num_resets_};
    executor_.push(device::kMainStream, options_.reference_ops ? ops::reset_ref() : ops::reset_cpu(), params);
  }
}

}  // namespace tidepool::cache
