// Rows on their way to the host store, for layers that advance together: which positions were handed to the spill
// stream, which have arrived, and the lists that spill operations read (ops/spill.h: one copy per turn).
//
// A pass that spills: begin_pass(), add_decode() per request, set_chunk(), the operations, then push_end(). Positions
// of a cache slot go [0, spilled_len) in the store, [spilled_len, pushed_len) on their way, the rest in the ring only.
// Thread safety: the executor's host thread. The lists are read by operations of the spill stream.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "device/executor.h"
#include "tidepool/ops/spill.h"

namespace tidepool::cache {

class SpillTrack {
 public:
  // window_rows: rows of a slot's ring, what add_decode's rows are read from.
  void allocate(int32_t num_cache_slots, int32_t num_turns, int32_t window_rows);
  void reset(int32_t cache_slot, int32_t len);  // positions below len are in the store

  // Raises spilled_len for every pass whose mark the executor has reached.
  void see(device::Executor& executor);
  // The next pass would overwrite lists or marks that are still in use.
  bool is_full() const { return num_passes_ == passes_.size(); }

  // Requires !is_full().
  void begin_pass(bool has_decode_rows);
  // Positions [pushed_len, final_len) leave the ring. Returns how many.
  int32_t add_decode(int32_t cache_slot, int32_t final_len);
  // Positions [first, first + count) lie in rows of a staging buffer, from row 0 of its chunk part.
  void set_chunk(int32_t cache_slot, int32_t first, int32_t count, int32_t chunk_capacity);
  void set_no_chunk() { chunk_[0] = 0; }
  // Behind the last spill of a pass: the turn moves on (decode rows), the mark is recorded.
  void push_end(device::Executor& executor, bool has_decode_rows);
  // Instead of push_end, when a replayed list contained it.
  void end_replayed() { ++marks_pushed_; }

  void fill_decode(ops::SpillParams& params) const;
  void fill_chunk(ops::SpillParams& params) const;

  int32_t spilled_len(int32_t cache_slot) const { return spilled_len_[static_cast<size_t>(cache_slot)]; }
  int32_t pushed_len(int32_t cache_slot) const { return pushed_len_[static_cast<size_t>(cache_slot)]; }
  uint64_t marks_pushed() const { return marks_pushed_; }
  uint64_t marks_seen() const { return marks_seen_; }
  device::Event& mark() { return mark_; }
  const int32_t* turn() const { return &turn_; }

 private:
  struct Pass {                                     // whose spills may be in flight
    std::vector<std::pair<int32_t, int32_t>> ends;  // cache slot, spilled_len once done
    uint64_t number = 0;                            // of mark_
  };
  Pass& current() { return passes_[(first_pass_ + num_passes_ - 1) % passes_.size()]; }

  int32_t num_slots_ = 0, num_turns_ = 1, window_rows_ = 0;
  int32_t turn_ = 0;         // moved by the spill stream
  int32_t pushed_turn_ = 0;  // of the pass being pushed
  uint64_t next_turn_ = 0;
  std::vector<int32_t> num_, slot_, first_, count_, base_, origin_, rows_;
  std::array<int32_t, 7> chunk_{};  // num, slot, first, count, base, origin, rows
  int32_t chunk_turn_ = 0;
  device::Event mark_;
  std::vector<Pass> passes_;  // [num_turns] a ring
  size_t first_pass_ = 0, num_passes_ = 0;
  uint64_t marks_pushed_ = 0, marks_seen_ = 0;
  std::vector<int32_t> spilled_len_, pushed_len_;
};

}  // namespace tidepool::cache
