// What an operation may touch in a protected arena.
#include <gtest/gtest.h>

#include <thread>

#include "device/executor.h"
#include "device/test_ops.h"
#include "tidepool/error.h"

namespace tidepool::device {
namespace {

using testing::Body;
using testing::push;
using testing::push_async;

struct Fixture {
  explicit Fixture(const ExecutorOptions& options = {}) : executor(options) {
    a = arena.allocate_array<int64_t>(kCount, "a");
    b = arena.allocate_array<int64_t>(kCount, "b");
    executor.protect(arena);
  }
  static constexpr uint64_t kCount = 100;
  Arena arena{"device", 1 << 20, Guard::kProtected};
  int64_t* a;
  int64_t* b;
  Executor executor;
};

int64_t look(const int64_t* p) { return *static_cast<const volatile int64_t*>(p); }

TEST(Protection, DeclaredRangesAreOpenWhileTheOperationRuns) {
  for (int threads : {1, 2, 4}) {
    for (Schedule schedule : {Schedule::kPreferMain, Schedule::kRandom}) {
      Fixture f({.num_threads = threads, .schedule = schedule, .seed = 5, .check_order = true});
      const Body fill{[&](int32_t piece) {
                        for (uint64_t i = static_cast<uint64_t>(piece); i < Fixture::kCount; i += 4)
                          f.a[i] += static_cast<int64_t>(i);
                      },
                      [&](AccessList& list) { list.write(f.a, 800); }, 4};
      const Body copy{[&](int32_t) {
                        for (uint64_t i = 0; i < Fixture::kCount; ++i) f.b[i] += f.a[i];
                      },
                      [&](AccessList& list) {
                        list.read(f.a, 800);
                        list.write(f.b, 800);
                      }};
      Event filled, copied;
      for (int step = 0; step < 20; ++step) {
        f.executor.wait(kMainStream, copied);
        push(f.executor, kMainStream, fill);
        f.executor.record(kMainStream, filled);
        f.executor.wait(kSideStream, filled);
        push(f.executor, kSideStream, copy);
        f.executor.record(kSideStream, copied);
      }
      f.executor.synchronize_all();
      f.arena.open_all();
      EXPECT_EQ(f.a[7], 20 * 7);
      EXPECT_EQ(f.b[7], 210 * 7);
    }
  }
}

TEST(Protection, NumPiecesAndCostMayReadWhatIsDeclared) {
  Fixture f;
  struct Params {
    int64_t* count;
    int* runs;
  };
  static constexpr OpType type = {
      "counted",
      Part::kOther,
      sizeof(Params),
      [](const void* p) { return static_cast<int32_t>(*static_cast<const Params*>(p)->count); },
      [](const void* p, int32_t, int32_t) { ++*static_cast<const Params*>(p)->runs; },
      [](const void* p, AccessList& list) { list.read(static_cast<const Params*>(p)->count, 8); },
      [](const void* p) { return Cost{static_cast<uint64_t>(*static_cast<const Params*>(p)->count)}; }};
  const Body write{[&](int32_t) { f.a[3] = 6; }, [&](AccessList& list) { list.write(f.a + 3, 8); }};
  std::vector<TimelineEntry> timeline;
  f.executor.set_timeline(&timeline);
  int runs = 0;
  push(f.executor, kMainStream, write);
  f.executor.push(kMainStream, type, Params{f.a + 3, &runs});
  f.executor.synchronize(kMainStream);
  EXPECT_EQ(runs, 6);
  ASSERT_EQ(timeline.size(), 2u);
  EXPECT_EQ(timeline[1].cost.read_bytes, 6u);
}

TEST(Protection, AsynchronousDestinationsStayOpenUntilTheEventCompletes) {
  for (int threads : {1, 2}) {
    Fixture f({.num_threads = threads});
    Event done;
    const Body fetch{{}, [&](AccessList& list) { list.write(f.a, 800); }};
    const Body other{[&](int32_t) { f.b[0] = 5; }, [&](AccessList& list) { list.write(f.b, 8); }};
    push_async(f.executor, kMainStream, fetch, done);
    for (int i = 0; i < 50; ++i) push(f.executor, kMainStream, other);
    f.executor.synchronize(kMainStream);
    std::jthread copier([&] {
      for (uint64_t i = 0; i < Fixture::kCount; ++i) f.a[i] = 3;
      done.finish_piece();
    });
    int64_t seen = 0;
    const Body use{[&](int32_t) { seen = f.a[99]; }, [&](AccessList& list) { list.read(f.a, 800); }};
    for (int i = 0; i < 50; ++i) push(f.executor, kSideStream, other);
    f.executor.wait(kSideStream, done);
    push(f.executor, kSideStream, use);
    f.executor.synchronize(kSideStream);
    EXPECT_EQ(seen, 3);
  }
}

TEST(Protection, ADeclarationBeyondAnAllocationIsNamed) {
  Fixture f;
  const Body body{{}, [&](AccessList& list) { list.write(f.a + 99, 16); }};
  push(f.executor, kMainStream, body);
  try {
    f.executor.synchronize(kMainStream);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "operation 'body' declares bytes 792 to 808 of 'a', which has 800");
  }
}

class ProtectionDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  static void run(Fixture& f, const Body& body) {
    push(f.executor, kMainStream, body);
    f.executor.synchronize(kMainStream);
  }
};

TEST_F(ProtectionDeathTest, AnUndeclaredWriteDies) {
  Fixture f;
  const auto reads_a = [&](AccessList& list) { list.read(f.a, 800); };
  EXPECT_DEATH(run(f, {[&](int32_t) { f.b[0] = 1; }, reads_a}), "");
  EXPECT_DEATH(run(f, {[&](int32_t) { f.a[0] = 1; }, reads_a}), "");
}

TEST_F(ProtectionDeathTest, AnUndeclaredReadDies) {
  Fixture f;
  const Body body{[&](int32_t) { look(f.b); }, [&](AccessList& list) { list.write(f.a, 800); }};
  EXPECT_DEATH(run(f, body), "");
}

TEST_F(ProtectionDeathTest, ALookFromTheHostDies) {
  Fixture f;
  run(f, {[&](int32_t) { f.a[0] = 1; }, [&](AccessList& list) { list.write(f.a, 800); }});
  EXPECT_DEATH(look(f.a), "");
  f.arena.open(f.a, 8, false);
  EXPECT_EQ(look(f.a), 1);
}

TEST_F(ProtectionDeathTest, ALookAfterAnAsynchronousOperationDies) {
  for (int way = 0; way < 3; ++way) {
    Fixture f;
    Event done;
    const Body fetch{{}, [&](AccessList& list) { list.write(f.a, 800); }};
    push_async(f.executor, kMainStream, fetch, done);
    f.executor.synchronize(kMainStream);
    f.a[5] = 4;  // the copy
    done.finish_piece();
    if (way == 0) f.executor.synchronize(done);
    if (way == 1) f.executor.query(done);
    if (way == 2) f.executor.observe(done);
    EXPECT_DEATH(look(f.a + 5), "");
  }
}

TEST_F(ProtectionDeathTest, DeclareMayNotLookIntoTheArena) {
  Fixture f;
  EXPECT_DEATH(run(f, {{}, [&](AccessList& list) { list.read(f.b, 8 + static_cast<size_t>(look(f.a))); }}), "");
}

}  // namespace
}  // namespace tidepool::device
