// Moving the memory that an operation works on: its parameters are bytes that hold pointers, somewhere.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "graph/range_set.h"
#include "tidepool/op.h"

namespace tidepool::graph {

// What the operation touches of the bytes `range` lies `distance` (modulo 2^64) further on from now on.
struct Move {
  Range range;
  uint64_t distance = 0;
};

// Rewrites the pointers among the parameters that lead into the moved ranges. Which words are pointers is found by
// looking, and proved by asking:
//   a word is a pointer into a range if, with that word moved alone, some accesses that the operation declares (for
//   every step) lie `distance` further on, all of them inside the range, and every other access is as it was;
//   with all pointers moved, the declared accesses are the old ones, exactly those in the ranges moved.
// Returns "" or, in a few words, what could not be proved; the parameters are unchanged then. declare() must not look
// at the moved memory, which is its contract. Requires ranges that do not overlap.
std::string relocate(const device::OpType& type, std::vector<std::byte>& params, const std::vector<Move>& moves);

}  // namespace tidepool::graph
