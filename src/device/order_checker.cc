#include "device/order_checker.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace tidepool::device {

void OrderChecker::Clock::join(const Clock& other) {
  for (int stream = 0; stream < kNumStreams; ++stream) seen[stream] = std::max(seen[stream], other.seen[stream]);
  if (other.completed.empty()) return;
  std::vector<uint64_t> both;
  std::set_union(completed.begin(), completed.end(), other.completed.begin(), other.completed.end(),
                 std::back_inserter(both));
  completed = std::move(both);
}

void OrderChecker::Clock::forget(const std::vector<uint64_t>& known) {
  std::erase_if(completed, [&](uint64_t id) { return std::binary_search(known.begin(), known.end(), id); });
}

bool OrderChecker::Clock::tells_nothing_new_to(const Clock& other) const {
  return completed.empty() && std::equal(seen.begin(), seen.end(), other.seen.begin(),
                                         [](uint64_t ours, uint64_t theirs) { return ours <= theirs; });
}

bool OrderChecker::ordered(const Operation& earlier, const Clock& now) {
  if (earlier.asynchronous == 0) return earlier.sequence <= now.seen[earlier.stream];
  return std::binary_search(now.completed.begin(), now.completed.end(), earlier.asynchronous);
}

void OrderChecker::push(int32_t stream, const OpType& type, const void* params, const Event* done, uint64_t target) {
  Clock now = streams_[stream];
  Operation operation{type.name, stream, now.seen[stream] + 1, done != nullptr ? num_asynchronous_ + 1 : 0};
  collect(type, params);
  check(operation, now);
  for (const Access& access : accesses_) insert(access, operation, now);
  ++now.seen[stream];
  if (done != nullptr) {
    ++num_asynchronous_;
    Clock completed = now;
    completed.completed.push_back(operation.asynchronous);
    remember(done, target, std::move(completed));
  }
  streams_[stream] = std::move(now);
}

void OrderChecker::record(int32_t stream, const Event* event, uint64_t target) {
  remember(event, target, streams_[stream]);
}

void OrderChecker::remember(const Event* event, uint64_t target, Clock clock) {
  std::deque<Recorded>& records = events_[event];
  if (target == 1) records.clear();                        // an event at the address of one that is gone
  if (!records.empty()) clock.join(records.back().clock);  // records of one event complete in order
  records.push_back({target, std::move(clock)});
}

void OrderChecker::wait(int32_t stream, const Event* event, uint64_t target) {
  const auto found = events_.find(event);
  // Another executor's record, or one at the address of an event that is gone: no knowledge of what it follows.
  if (found == events_.end() || found->second.back().target != target) return;
  streams_[stream].join(found->second.back().clock);
}

void OrderChecker::host_saw(const Event* event, uint64_t target) {
  const auto found = events_.find(event);
  if (found == events_.end()) return;
  const std::deque<Recorded>& records = found->second;
  const auto later =
      std::partition_point(records.begin(), records.end(), [&](const Recorded& r) { return r.target <= target; });
  if (later != records.begin()) host_learns(std::prev(later)->clock);
}

size_t OrderChecker::num_segments() const {
  size_t count = 0;
  for (const auto& [space, segments] : spaces_) count += segments.size();
  return count;
}

void OrderChecker::collect(const OpType& type, const void* params) {
  declared_.clear();
  type.declare(params, declared_);
  accesses_ = declared_.ranges();
  std::sort(accesses_.begin(), accesses_.end(), [](const Access& a, const Access& b) {
    return std::tie(a.space, a.write, a.begin) < std::tie(b.space, b.write, b.begin);
  });
  size_t merged = 0;
  for (const Access& access : accesses_) {
    Access* last = merged > 0 ? &accesses_[merged - 1] : nullptr;
    if (last != nullptr && last->space == access.space && last->write == access.write && access.begin <= last->end) {
      last->end = std::max(last->end, access.end);
    } else {
      accesses_[merged++] = access;
    }
  }
  accesses_.resize(merged);
}

void OrderChecker::check(const Operation& operation, const Clock& now) const {
  for (const Access& access : accesses_) {
    const auto space = spaces_.find(access.space);
    if (space == spaces_.end()) continue;
    const Segments& segments = space->second;
    auto next = segments.upper_bound(access.begin);
    if (next != segments.begin() && std::prev(next)->second.end > access.begin) --next;
    for (; next != segments.end() && next->first < access.end; ++next) {
      for (const Touch& earlier : next->second.touches) {
        if ((earlier.write || access.write) && !ordered(earlier.operation, now)) {
          report(earlier, operation, access, std::max(next->first, access.begin),
                 std::min(next->second.end, access.end));
        }
      }
    }
  }
}

void OrderChecker::insert(const Access& access, const Operation& operation, const Clock& now) {
  Segments& segments = spaces_[access.space];
  const auto split = [&](uint64_t at) {  // returns the first segment that begins at or behind `at`
    auto next = segments.lower_bound(at);
    if (next != segments.begin() && std::prev(next)->second.end > at) {
      Segment& before = std::prev(next)->second;
      next = segments.emplace_hint(next, at, before);
      before.end = at;
    }
    return next;
  };
  split(access.end);
  auto next = split(access.begin);
  for (uint64_t at = access.begin; at < access.end; at = next->second.end, ++next) {
    if (next == segments.end() || next->first > at) {
      const uint64_t end = next == segments.end() ? access.end : std::min(next->first, access.end);
      next = segments.emplace_hint(next, at, Segment{end, {}});
    }
    touch(next->second, access.write, operation, now);
  }
}

void OrderChecker::touch(Segment& segment, bool write, const Operation& operation, const Clock& now) {
  // Who conflicts and is not ordered is not here (check). Left after this: the operation's own touch, reads beside a
  // read, and the write that a read comes after.
  std::erase_if(segment.touches,
                [&](const Touch& earlier) { return (write || !earlier.write) && ordered(earlier.operation, now); });
  const auto same = [&](const Touch& t) {
    return t.operation.stream == operation.stream && t.operation.sequence == operation.sequence;
  };
  const auto mine = std::find_if(segment.touches.begin(), segment.touches.end(), same);
  if (mine == segment.touches.end()) {
    segment.touches.push_back({operation, write});
  } else {
    mine->write = mine->write || write;
  }
}

void OrderChecker::report(const Touch& earlier, const Operation& later, const Access& access, uint64_t begin,
                          uint64_t end) const {
  tidepool_fail(
      "operation '{}' (stream {}) {} {}, which '{}' (stream {}, pushed earlier{}) {}; nothing orders them: an event "
      "wait is "
      "missing",
      later.name, later.stream, access.write ? "writes" : "reads", describe(access.space, begin, end),
      earlier.operation.name, earlier.operation.stream, earlier.operation.asynchronous != 0 ? ", asynchronous" : "",
      earlier.write ? "writes" : "reads");
}

std::string OrderChecker::describe(uint64_t space, uint64_t begin, uint64_t end) const {
  if (space != 0) return fmt::format("positions [{}, {}) of resource {}", begin, end, space);
  const void* base = reinterpret_cast<const void*>(begin);
  for (const Arena* arena : arenas_) {
    const Arena::Allocation* a = arena->contains(base) ? arena->allocation_of(base) : nullptr;
    if (a == nullptr) continue;
    const uint64_t offset = begin - reinterpret_cast<uint64_t>(a->base);
    return fmt::format("bytes [{}, {}) of '{}'", offset, offset + (end - begin), a->what);
  }
  return fmt::format("bytes [{:#x}, {:#x})", begin, end);
}

void OrderChecker::host_learns(const Clock& clock) {
  if (clock.tells_nothing_new_to(host_)) return;
  host_.join(Clock(clock));  // a copy: the clock may be changed below
  forget_ordered_before_host();
}

void OrderChecker::forget_ordered_before_host() {
  for (auto& [space, segments] : spaces_) {
    for (auto next = segments.begin(); next != segments.end();) {
      std::erase_if(next->second.touches, [&](const Touch& t) { return ordered(t.operation, host_); });
      next = next->second.touches.empty() ? segments.erase(next) : std::next(next);
    }
  }
  for (Clock& stream : streams_) stream.forget(host_.completed);
  for (auto& [event, records] : events_) {
    for (Recorded& record : records) record.clock.forget(host_.completed);
    while (records.size() > 1 && records.front().clock.tells_nothing_new_to(host_)) records.pop_front();
  }
  host_.completed.clear();
}

}  // namespace tidepool::device
