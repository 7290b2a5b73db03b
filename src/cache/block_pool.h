// Which blocks of one kind of memory are free. Knows no owner, no token, no byte.
// Invariant: every block is either free or was handed out once; free() aborts on a double free (broken ownership).
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <vector>

namespace tidepool::cache {

class BlockPool {
 public:
  explicit BlockPool(int32_t num_blocks) : used_(static_cast<size_t>(num_blocks), false) {
    free_.reserve(used_.size());
    for (int32_t b = num_blocks - 1; b >= 0; --b) free_.push_back(b);
  }
  int32_t num_blocks() const { return static_cast<int32_t>(used_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }

  // `out` [count] is filled with blocks; the caller has asked num_free() first.
  void take(int32_t count, int32_t* out) {
    if (count > num_free()) std::abort();
    for (int32_t i = 0; i < count; ++i) {
      out[i] = free_.back();
      free_.pop_back();
      used_[static_cast<size_t>(out[i])] = true;
    }
  }
  void give_back(int32_t count, const int32_t* blocks) {
    for (int32_t i = 0; i < count; ++i) {
      auto used = used_.begin() + blocks[i];
      if (!*used) std::abort();
      *used = false;
      free_.push_back(blocks[i]);
    }
  }

 private:
  std::vector<bool> used_;
  std::vector<int32_t> free_;
};

}  // namespace tidepool::cache
