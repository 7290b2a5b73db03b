#include "cache/spill_track.h"

#include <algorithm>

namespace tidepool::cache {

void SpillTrack::allocate(int32_t num_cache_slots, int32_t num_turns, int32_t window_rows) {
  num_slots_ = num_cache_slots;
  num_turns_ = num_turns;
  window_rows_ = window_rows;
  const auto slots = static_cast<size_t>(num_cache_slots), turns = static_cast<size_t>(num_turns);
  num_.assign(turns, 0);
  for (auto* list : {&slot_, &first_, &count_, &base_, &origin_, &rows_}) list->assign(turns * slots, 0);
  passes_.resize(turns);
  for (Pass& pass : passes_) pass.ends.reserve(slots + 1);
  spilled_len_.assign(slots, 0);
  pushed_len_.assign(slots, 0);
}

void SpillTrack::reset(int32_t cache_slot, int32_t len) {
  spilled_len_[static_cast<size_t>(cache_slot)] = pushed_len_[static_cast<size_t>(cache_slot)] = len;
}

void SpillTrack::see(device::Executor& executor) {
  marks_seen_ = executor.observe(mark_);
  for (; num_passes_ > 0 && passes_[first_pass_].number <= marks_seen_; --num_passes_) {
    for (const auto& [slot, len] : passes_[first_pass_].ends) {
      auto& spilled = spilled_len_[static_cast<size_t>(slot)];
      spilled = std::max(spilled, len);
    }
    first_pass_ = (first_pass_ + 1) % passes_.size();
  }
}

void SpillTrack::begin_pass(bool has_decode_rows) {
  ++num_passes_;
  current().ends.clear();
  current().number = marks_pushed_ + 1;
  set_no_chunk();
  if (!has_decode_rows) return;
  const auto turn = static_cast<size_t>(next_turn_++ % static_cast<uint64_t>(num_turns_));
  pushed_turn_ = static_cast<int32_t>(turn);
  num_[turn] = 0;
}

int32_t SpillTrack::add_decode(int32_t cache_slot, int32_t final_len) {
  auto& pushed = pushed_len_[static_cast<size_t>(cache_slot)];
  const int32_t count = std::max(0, final_len - pushed);
  const auto turn = static_cast<size_t>(pushed_turn_);
  const size_t i = turn * static_cast<size_t>(num_slots_) + static_cast<size_t>(num_[turn]++);
  slot_[i] = cache_slot;
  first_[i] = pushed;
  count_[i] = count;
  base_[i] = cache_slot * window_rows_;
  origin_[i] = 0;
  rows_[i] = window_rows_;
  if (count > 0) {
    pushed = final_len;
    current().ends.emplace_back(cache_slot, final_len);
  }
  return count;
}

void SpillTrack::set_chunk(int32_t cache_slot, int32_t first, int32_t count, int32_t chunk_capacity) {
  chunk_ = {1, cache_slot, first, count, 0, first, std::max(1, chunk_capacity)};
  pushed_len_[static_cast<size_t>(cache_slot)] = first + count;
  current().ends.emplace_back(cache_slot, first + count);
}

void SpillTrack::push_end(device::Executor& executor, bool has_decode_rows) {
  if (has_decode_rows) {
    executor.push(device::kSpillStream, ops::spill_advance(), ops::SpillAdvanceParams{&turn_});
  }
  executor.record(device::kSpillStream, mark_);
  ++marks_pushed_;
}

void SpillTrack::fill_decode(ops::SpillParams& p) const {
  p.max_rows = num_slots_;
  p.num_turns = num_turns_;
  p.turn = &turn_;
  p.pushed_turn = &pushed_turn_;
  p.num_rows = num_.data();
  p.cache_slot = slot_.data();
  p.first = first_.data();
  p.count = count_.data();
  p.source_base = base_.data();
  p.source_origin = origin_.data();
  p.source_rows = rows_.data();
}

void SpillTrack::fill_chunk(ops::SpillParams& p) const {
  p.max_rows = 1;
  p.turn = &chunk_turn_;
  p.num_rows = &chunk_[0];
  p.cache_slot = &chunk_[1];
  p.first = &chunk_[2];
  p.count = &chunk_[3];
  p.source_base = &chunk_[4];
  p.source_origin = &chunk_[5];
  p.source_rows = &chunk_[6];
}

}  // namespace tidepool::cache
