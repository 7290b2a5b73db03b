// Sets of bytes as sorted, disjoint ranges.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tidepool::graph {

struct Range {
  uint64_t begin = 0, end = 0;  // exclusive
  bool operator==(const Range&) const = default;
};
inline bool overlap(const Range& a, const Range& b) { return std::max(a.begin, b.begin) < std::min(a.end, b.end); }

class RangeSet {
 public:
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const Range& r : ranges_) sum += r.end - r.begin;
    return sum;
  }
  // The least range that holds all; {0, 0} when empty.
  Range hull() const { return empty() ? Range{} : Range{ranges_.front().begin, ranges_.back().end}; }

  void add(Range range) {
    if (range.begin >= range.end) return;
    // The ranges that it touches become one.
    const auto first =
        std::partition_point(ranges_.begin(), ranges_.end(), [&](const Range& r) { return r.end < range.begin; });
    const auto last = std::partition_point(first, ranges_.end(), [&](const Range& r) { return r.begin <= range.end; });
    if (first != last) {
      range.begin = std::min(range.begin, first->begin);
      range.end = std::max(range.end, std::prev(last)->end);
    }
    ranges_.insert(ranges_.erase(first, last), range);
  }
  void add(const RangeSet& other) {
    for (const Range& r : other.ranges_) add(r);
  }
  void remove(Range range) {
    if (range.begin >= range.end) return;
    std::vector<Range> left;
    for (const Range& r : ranges_) {
      if (!overlap(r, range)) {
        left.push_back(r);
        continue;
      }
      if (r.begin < range.begin) left.push_back({r.begin, range.begin});
      if (range.end < r.end) left.push_back({range.end, r.end});
    }
    ranges_ = std::move(left);
  }
  void remove(const RangeSet& other) {
    for (const Range& r : other.ranges_) remove(r);
  }
  bool intersects(const Range& range) const {
    const auto next =
        std::partition_point(ranges_.begin(), ranges_.end(), [&](const Range& r) { return r.end <= range.begin; });
    return next != ranges_.end() && next->begin < range.end;
  }
  bool intersects(const RangeSet& other) const {
    return std::any_of(other.ranges_.begin(), other.ranges_.end(), [&](const Range& r) { return intersects(r); });
  }

 private:
  std::vector<Range> ranges_;
};

}  // namespace tidepool::graph
