// Streams of the CPU backend and the one thread team that serves them.
//
// A stream is an in-order ring of entries: operations, event records, event waits. The host thread pushes; entries run
// when the host synchronizes (the host thread is worker 0 of the team; with more threads the others already run side
// work while worker 0 runs main work; they finish a side operation that has started even after the host's call
// returned). Pushing never runs anything and never allocates once the rings have grown to the size of a step (they are
// sized by options).
//
// Order. Entries of one stream run one after the other. Between streams nothing is ordered but by events. Stream 0
// ("main") is preferred; pieces of the other streams ("side" before "spill") fill in when a worker has nothing to do
// for main, when main waits for an event, and when the host synchronizes with them. In `Schedule::kRandom` (tests)
// worker 0 picks the stream of each entry by a seeded generator instead: every order that events allow can happen.
//
// Checks (options.check_order): every push computes the operation's declared accesses and the happens-before relation
// (streams, events, host synchronization); two operations that may touch the same bytes, one of them writing, with no
// order between them, throw Error from push, naming both operations and the range; the operation is then not pushed. An
// asynchronous operation counts until its event is waited for, also for later operations of its own stream. The host
// itself is ordered by synchronize/query/observe. declare() is called while pushing: it may read what the host has
// written for the step, and nothing that operations write.
//
// With a protected arena (memory.h) only what an operation declared is accessible while it runs, for an asynchronous
// one until its event completes; operations then run one at a time. declare() is called again before the operation
// runs, with the arena closed; num_pieces and cost with the declared ranges open.
//
// Failures of an operation are status words in memory; an operation never throws. A wait that nobody can end (the
// record was pushed to another executor, and no asynchronous operation is in flight on the event) throws Error from
// synchronize.
//
// Thread safety: all members from the one host thread that owns the executor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/memory.h"
#include "tidepool/event.h"
#include "tidepool/op.h"

namespace tidepool::device {

using StreamId = int32_t;
inline constexpr StreamId kMainStream = 0;
inline constexpr StreamId kSideStream = 1;
inline constexpr StreamId kSpillStream = 2;
inline constexpr int32_t kNumStreams = 3;

enum class Schedule { kPreferMain, kRandom };

// One executed operation, for the timeline and for part timings.
struct TimelineEntry {
  const OpType* type;
  StreamId stream;
  int64_t begin_ns, end_ns;  // since the executor was made
  Cost cost;
};

struct ExecutorOptions {
  int num_threads = 1;  // team size, worker 0 (the host thread) included
  Schedule schedule = Schedule::kPreferMain;
  uint64_t seed = 0;  // of Schedule::kRandom
  bool check_order = false;
  bool pin_threads = false;        // pin worker i to the i-th CPU of the process's affinity mask
  uint32_t ring_bytes = 1u << 20;  // first size of each stream's ring; grows when a step needs more
};

// The bytes of a step: entries of all streams in push order. Copyable; holds no state of one run. Holds addresses: of
// operator types, events and whatever the parameters point to.
class OpList {
 public:
  OpList() = default;
  explicit OpList(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}  // bytes() of another list
  const std::vector<std::byte>& bytes() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }
  void clear() { bytes_.clear(); }

 private:
  friend class Executor;
  std::vector<std::byte> bytes_;
};

class Executor {
 public:
  explicit Executor(const ExecutorOptions& options);
  // Drains every stream first; asynchronous operations in flight may still be. Drops what waits for an event that
  // nobody can complete.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // --- push (asynchronous) ---
  template <typename Params>
  void push(StreamId stream, const OpType& type, const Params& params) {
    push_bytes(stream, type, &params, sizeof(Params), nullptr);
  }
  // As push; `done` completes when every piece has called done.finish_piece() (an operation with no pieces completes it
  // when it is reached). Counts as a record of `done` on `stream`.
  template <typename Params>
  void push_async(StreamId stream, const OpType& type, const Params& params, Event& done) {
    push_bytes(stream, type, &params, sizeof(Params), &done);
  }
  void record(StreamId stream, Event& event);
  void wait(StreamId stream, Event& event);

  // --- capture and replay ---
  // From begin_capture to end_capture everything pushed is also appended to `list`.
  void begin_capture(OpList& list);
  void end_capture();
  // Pushes the entries of `list` again, exactly as they are.
  void replay(const OpList& list);

  // --- host side ---
  // Runs until the stream's entries pushed so far are done (an asynchronous operation is done for its stream when its
  // pieces have returned) / until the last enqueued record of the event is complete.
  void synchronize(StreamId stream);
  void synchronize(Event& event);
  void synchronize_all();
  // As synchronize_all for destructors: streams that are stuck are left as they are. Does not throw.
  void drain() noexcept;
  // True when the last enqueued record of the event is complete. Runs nothing. A true answer orders what the host
  // pushes next behind it.
  bool query(Event& event);
  // How many records of the event are complete so far; orders what the host pushes next behind all of them. Runs
  // nothing.
  uint64_t observe(Event& event);

  // Sources of completions that need the host thread to move (a test store with delayed copies): called by worker 0
  // when nothing else can run, in Schedule::kRandom also at random moments; returns whether it did something.
  void add_pump(std::function<bool()> pump);

  // An arena whose protection the executor drives (see memory.h); it outlives the executor. For checked builds and
  // tests. With check_order, errors name its allocations. Synchronizes all streams first.
  void protect(Arena& arena);

  int num_threads() const;
  // While a sink is set every operation that ran is appended (worker 0's clock; cost taken when it starts, which may
  // take time of its own between operations; left at zero without `with_costs`). Null: none.
  void set_timeline(std::vector<TimelineEntry>* sink, bool with_costs = true);
  // Operations that have ended since the executor was made.
  uint64_t num_operations_run() const;

 private:
  void push_bytes(StreamId stream, const OpType& type, const void* params, size_t bytes, Event* done);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidepool::device
