// Finds operations that may touch the same bytes, one of them writing, with nothing that orders them.
//
// Every push is compared with the earlier ones by their declared ranges and by vector clocks: what a stream, an event
// or the host is known to come after. An operation comes after everything pushed earlier on its stream, after what its
// stream waited for, and after what the host had seen complete when it pushed it. An asynchronous operation lasts until
// its event completes: only who waited for that event (or learnt it from someone who did) comes after it, not even its
// own stream. What the host has seen complete is forgotten at once, and so comes before everything pushed later.
//
// Thread safety: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/memory.h"
#include "tidepool/event.h"
#include "tidepool/op.h"

namespace tidepool::device {

class OrderChecker {
 public:
  static constexpr int kNumStreams = 3;

  // Names the allocations of an arena in errors. Does not own it.
  void name_allocations_of(const Arena& arena) { arenas_.push_back(&arena); }

  // An operation; `done` is the event of an asynchronous one and null otherwise, `target` its count of records.
  // Throws Error on a conflict, and then knows nothing of the operation.
  void push(int32_t stream, const OpType& type, const void* params, const Event* done, uint64_t target);
  void record(int32_t stream, const Event* event, uint64_t target);
  void wait(int32_t stream, const Event* event, uint64_t target);
  // The host has seen everything on the stream / the event's records up to number `target` complete.
  void host_saw(int32_t stream) { host_learns(streams_[stream]); }
  void host_saw(const Event* event, uint64_t target);
  // Ranges held at the moment, for tests of forgetting.
  size_t num_segments() const;

 private:
  struct Clock {
    std::array<uint64_t, kNumStreams> seen{};  // operations of each stream
    std::vector<uint64_t> completed;           // asynchronous operations, ascending; without those the host knows of
    void join(const Clock& other);
    void forget(const std::vector<uint64_t>& completed);
    bool tells_nothing_new_to(const Clock& other) const;
  };
  struct Operation {
    const char* name;
    int32_t stream;
    uint64_t sequence;      // on its stream, from 1
    uint64_t asynchronous;  // a number of its own; 0: an operation that ends with its pieces
  };
  struct Touch {
    Operation operation;
    bool write;
  };
  // Bytes [key, end) of the map below, touched by the same operations. Only the last of operations ordered one behind
  // the other is kept: who comes after it comes after the others.
  struct Segment {
    uint64_t end;
    std::vector<Touch> touches;
  };
  using Segments = std::map<uint64_t, Segment>;
  struct Recorded {
    uint64_t target;
    Clock clock;
  };

  static bool ordered(const Operation& earlier, const Clock& now);
  void collect(const OpType& type, const void* params);
  void check(const Operation& operation, const Clock& now) const;
  void insert(const Access& access, const Operation& operation, const Clock& now);
  static void touch(Segment& segment, bool write, const Operation& operation, const Clock& now);
  void remember(const Event* event, uint64_t target, Clock clock);
  [[noreturn]] void report(const Touch& earlier, const Operation& later, const Access& access, uint64_t begin,
                           uint64_t end) const;
  std::string describe(uint64_t space, uint64_t begin, uint64_t end) const;
  void host_learns(const Clock& clock);
  void forget_ordered_before_host();

  std::array<Clock, kNumStreams> streams_;
  Clock host_;
  uint64_t num_asynchronous_ = 0;
  std::unordered_map<const Event*, std::deque<Recorded>>
      events_;  // ascending target; the newest, and what is news to the host
  std::unordered_map<uint64_t, Segments> spaces_;
  std::vector<const Arena*> arenas_;
  AccessList declared_;
  std::vector<Access> accesses_;  // of the operation at hand, sorted, adjacent ones merged
};

}  // namespace tidepool::device
