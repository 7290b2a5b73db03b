// How entries of the streams run: one loop, on worker 0, until what the host waits for is reached.
#include <numeric>

#include "base/check.h"
#include "device/cpu/backoff.h"
#include "device/executor_impl.h"

namespace tidepool::device {
namespace {

class PinnedHost {
 public:
  explicit PinnedHost(Team& team) : team_(team) { team_.pin_host(); }
  ~PinnedHost() { team_.unpin_host(); }
  PinnedHost(const PinnedHost&) = delete;
  PinnedHost& operator=(const PinnedHost&) = delete;

 private:
  Team& team_;
};

}  // namespace

int64_t Executor::Impl::now_ns() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - made_at).count();
}

bool Executor::Impl::reached(const Goal& goal) const {
  return goal.stream >= 0 ? streams[goal.stream].ring.empty() : goal.event->completed() >= goal.target;
}

void Executor::Impl::run_until(const Goal& goal) {
  const PinnedHost pinned(team);
  Backoff backoff;
  while (!reached(goal)) {
    const Progress progress = options.schedule == Schedule::kRandom ? step_random() : step_prefer_main();
    if (progress == Progress::kMoved || pump()) {
      backoff.reset();
      continue;
    }
    if (progress == Progress::kBlocked) throw_if_stuck(goal);
    backoff.wait();
  }
  protection.close_completed();
}

bool Executor::Impl::pump() {
  bool moved = false;
  for (const std::function<bool()>& source : pumps) moved = source() || moved;
  return moved;
}

bool Executor::Impl::runnable(const Stream& stream) const {
  if (stream.started || stream.ring.empty()) return false;
  const Entry& entry = stream.ring.front();
  if (entry.event == nullptr) return true;
  return entry.event->completed() >= (entry.kind == EntryKind::kWait ? entry.target : entry.target - 1);
}

// No asynchronous operation can complete the event that the head waits for.
bool Executor::Impl::blocked_for_good(const Stream& stream) const {
  return stream.ring.empty() ||
         (!stream.started && stream.ring.front().event->unfinished_pieces() == 0 && !runnable(stream));
}

void Executor::Impl::throw_if_stuck(const Goal& goal) const {
  if (goal.stream < 0 && (goal.event->unfinished_pieces() > 0 || reached(goal))) return;
  for (const Stream& stream : streams) {
    if (!runnable(stream) && blocked_for_good(stream)) continue;
    return;
  }
  std::string waits;
  for (StreamId stream = 0; stream < kNumStreams; ++stream) {
    const Ring& ring = streams[stream].ring;
    if (ring.empty()) continue;
    const Entry& entry = ring.front();
    const OpType* next = ring.next_operation();
    waits += fmt::format("stream {} waits for record {} of an event that has completed {} (next operation: {}); ",
                         stream, entry.kind == EntryKind::kWait ? entry.target : entry.target - 1,
                         entry.event->completed(), next == nullptr ? "none" : next->name);
  }
  if (goal.stream < 0) {
    waits += fmt::format("the host waits for record {} of an event that has completed {}; ", goal.target,
                         goal.event->completed());
  }
  tidepool_fail("the streams are stuck: {}and no asynchronous operation is in flight that could complete it", waits);
}

Executor::Impl::Progress Executor::Impl::step_prefer_main() {
  if (!in_background()) {
    for (StreamId stream = 0; stream < kNumStreams; ++stream) {
      if (!runnable(streams[stream])) continue;
      run_head(stream);
      return Progress::kMoved;
    }
    return Progress::kBlocked;
  }
  bool moved = false, started = false;
  for (StreamId stream = kMainStream + 1; stream < kNumStreams; ++stream) {
    moved = advance(stream) || moved;
    started = started || streams[stream].started;
  }
  if (runnable(streams[kMainStream])) {
    run_head(kMainStream);
    return Progress::kMoved;
  }
  if (moved) return Progress::kMoved;
  return started ? help_other_than(kMainStream) ? Progress::kMoved : Progress::kBusy : Progress::kBlocked;
}

// One piece of what the team has of the other streams.
bool Executor::Impl::help_other_than(StreamId stream) {
  for (StreamId other = 0; other < kNumStreams; ++other) {
    if (other != stream && streams[other].started && team.run_piece(other)) return true;
  }
  return false;
}

// Ends what the team has finished of a stream and starts what comes next; whether anything changed.
bool Executor::Impl::advance(StreamId stream) {
  Stream& s = streams[stream];
  bool moved = retire_if_finished(stream);
  while (runnable(s)) {
    moved = true;
    if (s.ring.front().kind == EntryKind::kOp) {
      start(stream, begin_operation(stream));
      if (!retire_if_finished(stream)) break;
    } else {
      run_head(stream);
    }
  }
  return moved;
}

StreamId Executor::Impl::pick_stream(const StreamId* candidates, int count) {
  if (favourite_left == 0) {
    favourite = static_cast<StreamId>(random() % kNumStreams);
    favourite_left = 1 << (random() % 7);
  }
  --favourite_left;
  for (int i = 0; i < count; ++i) {
    if (candidates[i] == favourite) return favourite;
  }
  return candidates[random() % count];
}

Executor::Impl::Progress Executor::Impl::step_random() {
  bool moved = false, started = false;
  if (!pumps.empty() && random() % 8 == 0) moved = pump();
  StreamId candidates[kNumStreams];
  int count = 0;
  for (StreamId stream = 0; stream < kNumStreams; ++stream) {
    moved = retire_if_finished(stream) || moved;
    started = started || streams[stream].started;
    if (runnable(streams[stream])) candidates[count++] = stream;
  }
  if (count > 0) {
    const StreamId stream = pick_stream(candidates, count);
    if (streams[stream].ring.front().kind == EntryKind::kOp) {
      run_shuffled(stream, begin_operation(stream));
    } else {
      run_head(stream);
    }
    return Progress::kMoved;
  }
  if (moved) return Progress::kMoved;
  return started ? help_other_than(-1) ? Progress::kMoved : Progress::kBusy : Progress::kBlocked;
}

// The pieces in a random order; at once on worker 0, by the whole team, or left to the team while worker 0 goes on.
void Executor::Impl::run_shuffled(StreamId stream, Job job) {
  if (job.num_pieces > 1) {
    job.offset = static_cast<int32_t>(random() % job.num_pieces);
    do {
      job.stride = 1 + static_cast<int32_t>(random() % job.num_pieces);
    } while (std::gcd(job.stride, job.num_pieces) != 1);
  }
  const uint64_t manner = random() % 3;
  if (team.size() == 1 || manner == 0) {
    for (int32_t i = 0; i < job.num_pieces; ++i) job.run(i);
    end_operation(stream);
  } else if (manner == 1 || !in_background()) {
    run_to_end(stream, job);
    end_operation(stream);
  } else {
    start(stream, job);
  }
}

void Executor::Impl::run_head(StreamId stream) {
  Ring& ring = streams[stream].ring;
  Entry& entry = ring.front();
  switch (entry.kind) {
    case EntryKind::kOp:
      run_to_end(stream, begin_operation(stream));
      end_operation(stream);
      return;
    case EntryKind::kRecord:
      entry.event->start(0);
      break;
    default:
      break;
  }
  ring.pop();
}

void Executor::Impl::start(StreamId stream, const Job& job) {
  streams[stream].started = true;
  team.start(stream, job);
}

bool Executor::Impl::retire_if_finished(StreamId stream) {
  if (!streams[stream].started || !team.finished(stream)) return false;
  streams[stream].started = false;
  end_operation(stream);
  return true;
}

Job Executor::Impl::begin_operation(StreamId stream) {
  Stream& s = streams[stream];
  const Entry& entry = s.ring.front();
  if (!protection.empty()) protection.begin(*entry.type, entry.params());
  const int32_t num_pieces = entry.type->num_pieces(entry.params());
  tidepool_check(num_pieces >= 0 && static_cast<uint64_t>(num_pieces) <= Event::kMaxPieces,
                 "operation '{}' has {} pieces, not 0 to {}", entry.type->name, num_pieces, Event::kMaxPieces);
  if (timeline != nullptr) {
    s.cost = timeline_has_costs ? entry.type->cost(entry.params()) : Cost{};
    s.begin_ns = now_ns();
  }
  if (entry.event != nullptr) entry.event->start(static_cast<uint64_t>(num_pieces));
  return Job{entry.type, entry.params(), num_pieces};
}

void Executor::Impl::end_operation(StreamId stream) {
  Stream& s = streams[stream];
  const Entry& entry = s.ring.front();
  if (timeline != nullptr) timeline->push_back({entry.type, stream, s.begin_ns, now_ns(), s.cost});
  if (!protection.empty()) protection.end(entry.event, entry.target);
  ++num_run;
  s.ring.pop();
}

void Executor::Impl::run_to_end(StreamId stream, const Job& job) {
  if (team.size() == 1 || job.num_pieces <= 1) {
    for (int32_t i = 0; i < job.num_pieces; ++i) job.run(i);
    return;
  }
  team.start(stream, job);
  while (team.run_piece(stream)) {
  }
  // The workers' last pieces. Side work in between may make main wait for a piece of it: only when it takes long
  // anyway.
  Backoff backoff;
  while (!team.finished(stream)) {
    if (!backoff.pausing() && help_other_than(stream)) continue;
    backoff.wait_for_worker();
  }
}

}  // namespace tidepool::device
