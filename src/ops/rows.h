// Copying rows between tensors of rows, whatever their layout.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/prefetch.h"
#include "tidepool/row_table.h"

namespace tidepool::ops {

// Latent and rope of a row are one run of bytes.
constexpr bool is_joint(const RowPlanes& planes) {
  return planes.rope.bytes > 0 && planes.latent.base + planes.latent.bytes == planes.rope.base &&
         planes.latent.stride == planes.rope.stride;
}

// Copies rows of one tensor to rows of another; planes of the same size (check.h). Made once per piece: two joint
// tensors need one copy per row instead of two.
class RowCopier {
 public:
  RowCopier(const RowPlanes& to, const RowPlanes& from) : to_(to), from_(from) {
    if (is_joint(to) && is_joint(from)) {
      to_.latent.bytes = from_.latent.bytes = to.latent.bytes + to.rope.bytes;
      to_.rope.bytes = from_.rope.bytes = 0;
    }
  }
  void copy(int64_t to_row, int64_t from_row) const {
    copy_plane(to_.latent, to_row, from_.latent, from_row);
    if (to_.rope.bytes > 0) copy_plane(to_.rope, to_row, from_.rope, from_row);
  }
  // Starts loading a whole row that will be overwritten.
  void prefetch_target(int64_t to_row) const {
    base::prefetch_target(to_.latent.row(to_row), to_.latent.bytes);
    base::prefetch_target(to_.rope.row(to_row), to_.rope.bytes);
  }
  // Starts loading the head of a row; the hardware goes on by itself once the copy runs.
  void prefetch(int64_t from_row) const {
    base::prefetch(from_.latent.row(from_row), kHeadBytes);
    base::prefetch(from_.rope.row(from_row), from_.rope.bytes);
  }

 private:
  static constexpr int32_t kHeadBytes = 128;
  static void copy_plane(const RowPlane& to, int64_t to_row, const RowPlane& from, int64_t from_row) {
    std::memcpy(to.row(to_row), from.row(from_row), static_cast<size_t>(to.bytes));
  }
  RowPlanes to_, from_;
};

inline void zero_row(const RowPlanes& planes, int64_t row) {
  std::memset(planes.latent.row(row), 0, static_cast<size_t>(planes.latent.bytes));
  if (planes.rope.bytes > 0) std::memset(planes.rope.row(row), 0, static_cast<size_t>(planes.rope.bytes));
}

}  // namespace tidepool::ops
