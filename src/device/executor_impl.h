// The inside of Executor. executor.cc pushes, scheduler.cc runs.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <random>
#include <vector>

#include "device/cpu/team.h"
#include "device/executor.h"
#include "device/order_checker.h"
#include "device/protection.h"
#include "device/ring.h"

namespace tidepool::device {

static_assert(kNumStreams == Team::kNumLanes && kNumStreams == OrderChecker::kNumStreams);

struct Executor::Impl {
  // What a synchronization waits for: a stream to be empty, or an event to reach a count (stream < 0).
  struct Goal {
    StreamId stream;
    const Event* event;
    uint64_t target;
  };
  enum class Progress {
    kMoved,    // something ran
    kBusy,     // a worker is at it
    kBlocked,  // every entry at a head waits for an event
  };
  struct Stream {
    explicit Stream(uint32_t ring_bytes) : ring(ring_bytes) {}
    Ring ring;
    bool started = false;  // the operation at the head is the team's
    int64_t begin_ns = 0;
    Cost cost;
  };

  explicit Impl(const ExecutorOptions& options);

  // executor.cc
  void push(Entry entry, const void* params);
  void append_to_list(Entry entry, const void* params);
  void replay(const OpList& list);
  void synchronize(StreamId stream);
  void synchronize(Event& event);
  void drain();

  // scheduler.cc
  void run_until(const Goal& goal);
  bool reached(const Goal& goal) const;
  bool runnable(const Stream& stream) const;
  bool blocked_for_good(const Stream& stream) const;
  void throw_if_stuck(const Goal& goal) const;
  bool pump();
  bool in_background() const { return team.size() > 1 && protection.empty(); }
  Progress step_prefer_main();
  Progress step_random();
  bool advance(StreamId stream);
  bool help_other_than(StreamId stream);
  StreamId pick_stream(const StreamId* candidates, int count);
  // Entries. run_head does the whole entry; start leaves an operation to the team, retire ends it.
  void run_head(StreamId stream);
  void start(StreamId stream, const Job& job);
  bool retire_if_finished(StreamId stream);
  Job begin_operation(StreamId stream);
  void end_operation(StreamId stream);
  void run_to_end(StreamId stream, const Job& job);
  void run_shuffled(StreamId stream, Job job);
  int64_t now_ns() const;

  const ExecutorOptions options;
  const std::chrono::steady_clock::time_point made_at = std::chrono::steady_clock::now();
  std::vector<Stream> streams;
  Protection protection;
  std::optional<OrderChecker> checker;
  std::vector<std::function<bool()>> pumps;
  OpList* capture = nullptr;
  std::vector<TimelineEntry>* timeline = nullptr;
  bool timeline_has_costs = true;
  uint64_t num_run = 0;
  std::mt19937_64 random;
  StreamId favourite = kMainStream;  // of the random schedule, for so many more picks
  int favourite_left = 0;
  Team team;  // last: its threads end before the rings they read
};

}  // namespace tidepool::device
