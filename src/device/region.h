// A named range of memory or of a resource: what who reads lists of operations is told beyond the allocations of
// arenas.
#pragma once

#include <cstdint>
#include <string>

namespace tidepool::device {

struct Region {
  std::string name;
  uint64_t space = 0;  // as in Access: 0 is memory, begin and end are addresses
  uint64_t begin = 0, end = 0;
  // The host keeps operations of different steps apart where they touch the same part of it, and operations of one step
  // that touch different parts in one step do so in every step with as many rows (rings, rows that are only added).
  bool host_ordered = false;
};

}  // namespace tidepool::device
