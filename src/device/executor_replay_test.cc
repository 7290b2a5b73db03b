// Capture and replay of lists of operations.
#include <gtest/gtest.h>

#include "device/test_ops.h"

namespace tidepool::device {
namespace {

using testing::all_options;
using testing::Body;
using testing::push;
using testing::push_async;
using testing::sentence_of;

TEST(ExecutorReplay, AReplayedListActsOnTheMemoryOfItsTime) {
  for (const ExecutorOptions& options : all_options(10)) {
    int64_t input = 1, middle = 0, eager = 0, output = 0;
    const Body twice{[&](int32_t) { middle = input * 2; }};
    const Body store{[&](int32_t) { output += middle; }};
    Event produced, consumed;
    Executor executor(options);
    const auto step = [&] {
      executor.wait(kMainStream, consumed);
      push(executor, kMainStream, twice);
      executor.record(kMainStream, produced);
      executor.wait(kSideStream, produced);
      push(executor, kSideStream, store);
      executor.record(kSideStream, consumed);
    };
    OpList list;
    executor.begin_capture(list);
    step();
    executor.end_capture();
    executor.synchronize_all();
    eager += input * 2;
    const OpList copy(std::vector<std::byte>(list.bytes()));
    list.clear();
    EXPECT_TRUE(list.empty());
    for (input = 2; input < 50; ++input) {
      executor.replay(copy);
      executor.synchronize_all();
      eager += input * 2;
    }
    EXPECT_EQ(output, eager);
    EXPECT_EQ(executor.num_operations_run(), 2 * 49u);
  }
}

TEST(ExecutorReplay, AReplayIsCapturedLikePushes) {
  Executor executor({});
  Event done;
  const Body body{[&](int32_t) { done.finish_piece(); }, {}, 2};
  OpList first, second;
  executor.begin_capture(first);
  push_async(executor, kSideStream, body, done);
  executor.end_capture();
  executor.begin_capture(second);
  executor.replay(first);
  executor.end_capture();
  EXPECT_EQ(first.bytes(), second.bytes());
  executor.synchronize_all();
  EXPECT_EQ(done.completed(), 2u);
}

TEST(ExecutorReplay, DamagedListsAreRefused) {
  Executor executor({});
  const Body body{[](int32_t) {}};
  OpList list;
  executor.begin_capture(list);
  push(executor, kMainStream, body);
  EXPECT_NE(sentence_of([&] { executor.replay(list); }).find("while it is captured"), std::string::npos);
  executor.end_capture();
  std::vector<std::byte> bytes = list.bytes();
  bytes.resize(bytes.size() - 1);
  EXPECT_NE(sentence_of([&] { executor.replay(OpList(bytes)); }).find("damaged at byte 0"), std::string::npos);
  bytes.resize(7);
  EXPECT_NE(sentence_of([&] { executor.replay(OpList(bytes)); }).find("cut off at byte 0"), std::string::npos);
  executor.synchronize_all();
  EXPECT_EQ(executor.num_operations_run(), 1u);
}

}  // namespace
}  // namespace tidepool::device
