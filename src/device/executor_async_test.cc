// Asynchronous operations and what completes their events.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <mutex>
#include <thread>

#include "device/test_ops.h"

namespace tidepool::device {
namespace {

using testing::all_options;
using testing::Body;
using testing::Log;
using testing::push;
using testing::push_async;

TEST(ExecutorAsync, AnAsynchronousOperationCompletesItsEventFromAnotherThread) {
  for (const ExecutorOptions& options : all_options(6)) {
    Executor executor(options);
    for (int round = 0; round < 20; ++round) {
      Event done;
      std::array<int, 8> destination{};
      std::mutex mutex;
      std::vector<int32_t> requests;
      const Body fetch{[&](int32_t piece) {
                         const std::lock_guard lock(mutex);
                         requests.push_back(piece);
                       },
                       {},
                       8};
      int sum = 0;
      const Body use{[&](int32_t) {
        for (int value : destination) sum += value;
      }};
      push_async(executor, kMainStream, fetch, done);
      executor.wait(kMainStream, done);
      push(executor, kMainStream, use);
      std::jthread copier([&] {
        for (int left = 8; left > 0;) {
          std::unique_lock lock(mutex);
          if (requests.empty()) {
            lock.unlock();
            std::this_thread::yield();
            continue;
          }
          const int32_t piece = requests.back();  // the newest first: out of order
          requests.pop_back();
          lock.unlock();
          destination[static_cast<size_t>(piece)] = piece + 1;
          done.finish_piece();
          --left;
        }
      });
      executor.synchronize(kMainStream);
      EXPECT_EQ(sum, 36);
    }
  }
}

TEST(ExecutorAsync, AnAsynchronousOperationHoldsNothingBackButWaits) {
  Executor executor({.num_threads = 1});
  Event done;
  Log log;
  const Body fetch{[](int32_t) {}, {}, 2};
  const Body after = log.append(1), waiting = log.append(2);
  push_async(executor, kMainStream, fetch, done);
  push(executor, kMainStream, after);
  executor.synchronize(kMainStream);
  EXPECT_EQ(log.ids, (std::vector<int>{1}));
  EXPECT_FALSE(executor.query(done));
  EXPECT_EQ(done.unfinished_pieces(), 2u);
  executor.wait(kSideStream, done);
  push(executor, kSideStream, waiting);
  done.finish_piece();
  EXPECT_FALSE(executor.query(done));
  done.finish_piece();
  EXPECT_TRUE(executor.query(done));
  executor.synchronize_all();
  EXPECT_EQ(log.ids, (std::vector<int>{1, 2}));
}

TEST(ExecutorAsync, RecordsOfOneEventCompleteInTheOrderTheyWereEnqueued) {
  for (const ExecutorOptions& options : all_options(7)) {
    Executor executor(options);
    Event event;
    std::atomic<int> started{0};
    const Body fetch{[&](int32_t) { started.fetch_add(1); }};
    push_async(executor, kMainStream, fetch, event);
    executor.record(kSideStream, event);
    push_async(executor, kSpillStream, fetch, event);
    executor.synchronize(kMainStream);
    EXPECT_EQ(event.completed(), 0u);
    event.finish_piece();
    executor.synchronize(kSideStream);
    EXPECT_GE(event.completed(), 2u);
    executor.synchronize(kSpillStream);
    EXPECT_EQ(event.completed(), 2u);
    event.finish_piece();
    executor.synchronize(event);
    EXPECT_EQ(event.completed(), 3u);
    EXPECT_EQ(started.load(), 2);
  }
}

TEST(ExecutorAsync, AnOperationWithoutPiecesCompletesAtOnce) {
  for (const ExecutorOptions& options : all_options(8)) {
    Executor executor(options);
    Event done;
    const Body nothing{[](int32_t) { FAIL(); }, {}, 0};
    push(executor, kMainStream, nothing);
    push_async(executor, kMainStream, nothing, done);
    executor.wait(kSideStream, done);
    push(executor, kSideStream, nothing);
    EXPECT_FALSE(executor.query(done));
    executor.synchronize_all();
    EXPECT_TRUE(executor.query(done));
    EXPECT_EQ(executor.num_operations_run(), 3u);
  }
}

TEST(ExecutorAsync, PumpsMoveWhatTheStreamsWaitFor) {
  for (const ExecutorOptions& options : all_options(9)) {
    Executor executor(options);
    Event done;
    std::atomic<int> requested{0};
    int calls = 0;
    const Body fetch{[&](int32_t) { requested.fetch_add(1); }, {}, 3};
    executor.add_pump([&] {
      if (++calls % 5 != 0 || requested.load() == 0) return false;  // a slow source
      requested.fetch_sub(1);
      done.finish_piece();
      return true;
    });
    for (int round = 0; round < 10; ++round) {
      push_async(executor, kSideStream, fetch, done);
      executor.wait(kMainStream, done);
    }
    executor.synchronize(kMainStream);
    EXPECT_EQ(done.completed(), 10u);
  }
}

}  // namespace
}  // namespace tidepool::device
