#include "device/executor.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <deque>
#include <set>
#include <thread>

#include "device/test_ops.h"

namespace tidepool::device {
namespace {

using testing::all_options;
using testing::Body;
using testing::BodyParams;
using testing::kBody;
using testing::Log;
using testing::push;
using testing::push_async;
using testing::sentence_of;

TEST(Executor, RunsEveryPieceOnce) {
  for (const ExecutorOptions& options : all_options(3)) {
    Executor executor(options);
    for (int32_t num_pieces : {1, 2, 3, 7, 64, 1000}) {
      std::vector<std::atomic<int>> counts(static_cast<size_t>(num_pieces));
      const Body body{[&](int32_t piece) { counts[static_cast<size_t>(piece)].fetch_add(1); }, {}, num_pieces};
      for (int repeat = 0; repeat < 5; ++repeat) {
        for (StreamId stream = 0; stream < kNumStreams; ++stream) executor.push(stream, kBody, BodyParams{&body});
      }
      executor.synchronize_all();
      for (const std::atomic<int>& count : counts) ASSERT_EQ(count.load(), 5 * kNumStreams);
    }
  }
}

TEST(Executor, RunsTheEntriesOfAStreamOneAfterTheOther) {
  for (const ExecutorOptions& options : all_options(4)) {
    Executor executor(options);
    int64_t value = 0;  // plain: the order of the stream is its only guard
    const Body add{[&](int32_t) { value += 1; }};
    const Body multiply{[&](int32_t) { value = value * 3 % 1000003; }};
    int64_t expected = 0;
    for (int i = 0; i < 300; ++i) {
      push(executor, kSideStream, add);
      push(executor, kSideStream, multiply);
      expected = (expected + 1) * 3 % 1000003;
    }
    executor.synchronize(kSideStream);
    EXPECT_EQ(value, expected);
  }
}

TEST(Executor, PushingRunsNothing) {
  Executor executor({.num_threads = 2});
  std::atomic<int> runs{0};
  const Body body{[&](int32_t) { runs.fetch_add(1); }};
  push(executor, kMainStream, body);
  push(executor, kSideStream, body);
  EXPECT_EQ(runs.load(), 0);
  EXPECT_EQ(executor.num_operations_run(), 0u);
  executor.synchronize_all();
  EXPECT_EQ(runs.load(), 2);
  EXPECT_EQ(executor.num_operations_run(), 2u);
}

TEST(Executor, OneThreadLeavesSideWorkThatMainDoesNotWaitFor) {
  Executor executor({.num_threads = 1});
  Log log;
  Event event;
  const Body a = log.append(1), b = log.append(2), c = log.append(3), d = log.append(4);
  push(executor, kSideStream, a);
  executor.record(kSideStream, event);
  push(executor, kSideStream, b);
  push(executor, kMainStream, c);
  executor.wait(kMainStream, event);
  push(executor, kMainStream, d);
  executor.synchronize(kMainStream);
  EXPECT_EQ(log.ids, (std::vector<int>{3, 1, 4}));
  executor.synchronize(kSideStream);
  EXPECT_EQ(log.ids, (std::vector<int>{3, 1, 4, 2}));
}

TEST(Executor, AWaitSeesOnlyRecordsEnqueuedBeforeIt) {
  Executor executor({.num_threads = 1});
  Log log;
  Event event;
  const Body a = log.append(1), b = log.append(2), c = log.append(3);
  executor.wait(kMainStream, event);  // nothing recorded yet
  push(executor, kMainStream, a);
  push(executor, kSideStream, b);
  executor.record(kSideStream, event);
  executor.synchronize(kMainStream);
  EXPECT_EQ(log.ids, (std::vector<int>{1}));
  executor.wait(kMainStream, event);  // the first record
  push(executor, kMainStream, a);
  push(executor, kSideStream, c);
  executor.record(kSideStream, event);
  executor.synchronize(kMainStream);
  EXPECT_EQ(log.ids, (std::vector<int>{1, 2, 1}));
  executor.synchronize(event);
  EXPECT_EQ(log.ids, (std::vector<int>{1, 2, 1, 3}));
  EXPECT_EQ(event.completed(), 2u);
}

TEST(Executor, SynchronizingWithAnEventNobodyRecordedReturns) {
  Executor executor({.num_threads = 2});
  Event event;
  executor.synchronize(event);
  EXPECT_TRUE(executor.query(event));
  EXPECT_EQ(executor.observe(event), 0u);
}

TEST(Executor, QueryAndObserveTellWhatIsCompleteAndRunNothing) {
  Executor executor({.num_threads = 1});
  Event event;
  const Body body{[](int32_t) {}};
  for (int i = 0; i < 2; ++i) {
    push(executor, kSideStream, body);
    executor.record(kSideStream, event);
  }
  EXPECT_FALSE(executor.query(event));
  EXPECT_EQ(executor.observe(event), 0u);
  executor.synchronize(kSideStream);
  EXPECT_TRUE(executor.query(event));
  EXPECT_EQ(executor.observe(event), 2u);
}

TEST(Executor, OneEventServesManySteps) {
  for (const ExecutorOptions& options : all_options(5)) {
    Executor executor(options);
    Event produced, consumed;
    int64_t buffer = 0, sum = 0;  // plain: guarded by the events alone
    const Body produce{[&](int32_t) { ++buffer; }};
    const Body consume{[&](int32_t) { sum += buffer; }};
    int64_t expected = 0;
    for (int step = 1; step <= 200; ++step) {
      executor.wait(kMainStream, consumed);
      push(executor, kMainStream, produce);
      executor.record(kMainStream, produced);
      executor.wait(kSideStream, produced);
      push(executor, kSideStream, consume);
      executor.record(kSideStream, consumed);
      expected += step;
      if (step % 7 == 0) executor.synchronize(kMainStream);
    }
    executor.synchronize(consumed);
    EXPECT_EQ(sum, expected);
    EXPECT_EQ(produced.completed(), 200u);
  }
}

TEST(Executor, TheRandomScheduleReachesEveryInterleaving) {
  std::set<std::vector<int>> seen;
  Log log;
  const std::array<Body, 4> bodies{log.append(1), log.append(2), log.append(3), log.append(4)};
  for (uint64_t seed = 0; seed < 400; ++seed) {
    log.ids.clear();
    Executor executor({.num_threads = 1, .schedule = Schedule::kRandom, .seed = seed});
    push(executor, kMainStream, bodies[0]);
    push(executor, kMainStream, bodies[1]);
    push(executor, kSideStream, bodies[2]);
    push(executor, kSideStream, bodies[3]);
    executor.synchronize_all();
    seen.insert(log.ids);
  }
  EXPECT_EQ(seen.size(), 6u);
}

TEST(Executor, TheRandomScheduleOfOneThreadIsRepeatedByItsSeed) {
  const auto run = [](uint64_t seed) {
    Log log;
    std::deque<Body> bodies;
    Executor executor({.num_threads = 1, .schedule = Schedule::kRandom, .seed = seed});
    for (int i = 0; i < 60; ++i) {
      bodies.push_back(log.append(i));
      bodies.back().num_pieces = 1 + i % 3;
      push(executor, i % kNumStreams, bodies.back());
    }
    executor.synchronize_all();
    return log.ids;
  };
  EXPECT_EQ(run(11), run(11));
  EXPECT_NE(run(11), run(12));
}

struct LargeParams {
  int64_t values[kMaxParamsBytes / sizeof(int64_t)];
};
std::atomic<int64_t>* large_sum = nullptr;
int32_t large_pieces(const LargeParams&) { return 4; }
void large_run(const LargeParams& p, int32_t piece, int32_t) {
  for (size_t i = static_cast<size_t>(piece); i < std::size(p.values); i += 4) large_sum->fetch_add(p.values[i]);
}
void large_declare(const LargeParams&, AccessList&) {}
Cost large_cost(const LargeParams&) { return {}; }
constexpr OpType kLarge =
    make_op_type<LargeParams, large_pieces, large_run, large_declare, large_cost>("large", Part::kOther);

TEST(Executor, RingsGrowWithEveryParameterInPlace) {
  for (const ExecutorOptions& base : all_options(13)) {
    ExecutorOptions options = base;
    options.ring_bytes = 16;
    Executor executor(options);
    std::atomic<int64_t> sum{0};
    large_sum = &sum;
    int64_t expected = 0, next = 1;
    std::atomic<int> small_runs{0};
    const Body small{[&](int32_t) { small_runs.fetch_add(1); }};
    for (int round = 0; round < 12; ++round) {
      for (int i = 0; i < 3 * round; ++i) {
        LargeParams params;
        for (int64_t& value : params.values) expected += value = next++ % 1000;
        executor.push(i % kNumStreams, kLarge, params);
        push(executor, i % kNumStreams, small);
      }
      executor.synchronize(round % kNumStreams);  // leaves entries, and on the team started ones, behind
    }
    executor.synchronize_all();
    EXPECT_EQ(sum.load(), expected);
    EXPECT_EQ(small_runs.load(), 198);
    large_sum = nullptr;
  }
}

TEST(Executor, AnOperationTheTeamIsAtKeepsItsParametersWhileTheRingGrows) {
  Executor executor({.num_threads = 2, .ring_bytes = 16});
  std::atomic<bool> begun{false}, go{false};
  std::atomic<int> runs{0};
  const Body slow{[&](int32_t) {
    begun = true;
    while (!go.load()) std::this_thread::yield();
    runs.fetch_add(1);
  }};
  // Ends when the other thread has begun the side operation.
  const Body until_begun{[&](int32_t) {
    while (!begun.load()) std::this_thread::yield();
  }};
  push(executor, kSideStream, slow);
  push(executor, kMainStream, until_begun);
  executor.synchronize(kMainStream);
  const Body quick{[&](int32_t) { runs.fetch_add(1); }};
  for (int i = 0; i < 1000; ++i) push(executor, kSideStream, quick);
  go = true;
  executor.synchronize(kSideStream);
  EXPECT_EQ(runs.load(), 1001);
}

TEST(Executor, WorkersTakeSidePiecesWhileWorkerZeroRunsMain) {
  Executor executor({.num_threads = 2});
  std::atomic<int> side_runs{0};
  const Body side{[&](int32_t) { side_runs.fetch_add(1); }, {}, 4};
  const Body main{[&](int32_t) {
    while (side_runs.load() < 4) std::this_thread::yield();
  }};
  push(executor, kSideStream, side);
  push(executor, kMainStream, main);
  executor.synchronize(kMainStream);  // would not end otherwise
  EXPECT_EQ(side_runs.load(), 4);
}

TEST(Executor, TheDestructorDrains) {
  for (const ExecutorOptions& options : all_options(14)) {
    std::atomic<int> runs{0};
    const Body body{[&](int32_t) { runs.fetch_add(1); }, {}, 3};
    Event event;
    {
      Executor executor(options);
      push(executor, kSideStream, body);
      executor.record(kSideStream, event);
      executor.wait(kMainStream, event);
      push(executor, kMainStream, body);
      push(executor, kSpillStream, body);
    }
    EXPECT_EQ(runs.load(), 9);
  }
}

TEST(Executor, AStuckProgramIsReported) {
  for (const ExecutorOptions& options : all_options(15)) {
    Event event;
    Executor other({});
    int runs = 0;
    const Body body{[&](int32_t) { ++runs; }};
    {
      Executor executor(options);
      other.record(kMainStream, event);  // runs when the other executor is synchronized
      executor.wait(kSideStream, event);
      push(executor, kSideStream, body);
      executor.synchronize(kMainStream);
      EXPECT_EQ(
          sentence_of([&] { executor.synchronize(kSideStream); }),
          "the streams are stuck: stream 1 waits for record 1 of an event that has completed 0 (next operation: body); "
          "and no asynchronous operation is in flight that could complete it");
      EXPECT_NE(sentence_of([&] { executor.synchronize(event); }).find("the host waits for record 1"),
                std::string::npos);
      other.synchronize_all();
      executor.synchronize(kSideStream);
      EXPECT_EQ(runs, 1);
      other.record(kMainStream, event);
      executor.wait(kSideStream, event);
      push(executor, kSideStream, body);
    }
    EXPECT_EQ(runs, 1);  // dropped by the destructor
  }
}

TEST(Executor, NamesBadArguments) {
  EXPECT_NE(sentence_of([] { Executor executor({.num_threads = 0}); }).find("num_threads is 0"), std::string::npos);
  Executor executor({});
  const Body body{[](int32_t) {}};
  EXPECT_EQ(sentence_of([&] { push(executor, 3, body); }), "stream 3 does not exist: there are 3");
  EXPECT_EQ(sentence_of([&] { executor.push(kMainStream, kBody, int16_t{1}); }),
            "operation 'body' takes 8 bytes of parameters (at most 1024), not 2");
  EXPECT_EQ(sentence_of([&] { executor.end_capture(); }), "no capture has begun");
  const Body negative{[](int32_t) {}, {}, -1};
  push(executor, kMainStream, negative);
  EXPECT_EQ(sentence_of([&] { executor.synchronize(kMainStream); }),
            "operation 'body' has -1 pieces, not 0 to 16777215");
}

TEST(Executor, PinnedThreadsGiveTheSameResult) {
  Executor executor({.num_threads = 3, .pin_threads = true});
  EXPECT_EQ(executor.num_threads(), 3);
  std::atomic<int> runs{0};
  const Body body{[&](int32_t) { runs.fetch_add(1); }, {}, 50};
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  push(executor, kMainStream, body);
  executor.synchronize(kMainStream);
  ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
  EXPECT_EQ(runs.load(), 50);
}

}  // namespace
}  // namespace tidepool::device
