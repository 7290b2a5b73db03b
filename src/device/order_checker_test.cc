#include "device/order_checker.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "device/test_ops.h"
#include "tidepool/error.h"

namespace tidepool::device {
namespace {

using testing::Body;
using testing::body_type;
using testing::BodyParams;

constexpr OpType kWriter = body_type("writer");
constexpr OpType kReader = body_type("reader");
constexpr OpType kFetch = body_type("fetch");

class OrderCheckerTest : public ::testing::Test {
 protected:
  static Body writes(void* base, size_t bytes) {
    return {{}, [=](AccessList& list) { list.write(base, bytes); }};
  }
  static Body reads(const void* base, size_t bytes) {
    return {{}, [=](AccessList& list) { list.read(base, bytes); }};
  }
  void write(StreamId stream) { executor_.push(stream, kWriter, BodyParams{&writes_}); }
  void read(StreamId stream) { executor_.push(stream, kReader, BodyParams{&reads_}); }
  void fetch(StreamId stream) { executor_.push_async(stream, kFetch, BodyParams{&fetches_}, done_); }
  std::string error_of_read(StreamId stream) {
    try {
      read(stream);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  void TearDown() override { executor_.synchronize_all(); }

  int64_t data_[8] = {};
  const Body writes_ = writes(data_, 32);
  const Body reads_ = reads(data_ + 2, 32);
  const Body fetches_{[this](int32_t) { done_.finish_piece(); }, [this](AccessList& list) { list.write(data_, 64); }};
  Event event_, done_;
  Executor executor_{{.check_order = true}};
};

TEST_F(OrderCheckerTest, FindsAMissingEventBetweenAWriteAndARead) {
  write(kMainStream);
  const std::string range =
      fmt::format("[{:#x}, {:#x})", reinterpret_cast<uint64_t>(data_ + 2), reinterpret_cast<uint64_t>(data_ + 4));
  EXPECT_EQ(error_of_read(kSideStream),
            "operation 'reader' (stream 1) reads bytes " + range +
                ", which 'writer' (stream 0, pushed earlier) writes; nothing orders them: an "
                "event wait is missing");
}

TEST_F(OrderCheckerTest, FindsAWriteUnderARead) {
  read(kMainStream);
  EXPECT_THROW(write(kSideStream), Error);
  EXPECT_THROW(write(kSpillStream), Error);
  write(kMainStream);
}

TEST_F(OrderCheckerTest, AcceptsReadsBesideReads) {
  read(kMainStream);
  read(kSideStream);
  read(kSpillStream);
  EXPECT_THROW(write(kMainStream), Error);
}

TEST_F(OrderCheckerTest, AnOperationThatIsRefusedIsNotPushed) {
  write(kMainStream);
  EXPECT_THROW(read(kSideStream), Error);
  write(kMainStream);  // would conflict with the read
  executor_.synchronize_all();
  EXPECT_EQ(executor_.num_operations_run(), 2u);
}

TEST_F(OrderCheckerTest, AcceptsWhatAnEventOrders) {
  write(kMainStream);
  executor_.record(kMainStream, event_);
  executor_.wait(kSideStream, event_);
  read(kSideStream);
  EXPECT_THROW(read(kSpillStream), Error);
}

TEST_F(OrderCheckerTest, AnEventOrdersOnlyWhatWasPushedBeforeItsRecord) {
  executor_.record(kMainStream, event_);
  write(kMainStream);
  executor_.wait(kSideStream, event_);
  EXPECT_THROW(read(kSideStream), Error);
}

TEST_F(OrderCheckerTest, AWaitOrdersOnlyWhatIsPushedBehindIt) {
  read(kSideStream);
  executor_.record(kMainStream, event_);
  executor_.wait(kSideStream, event_);
  EXPECT_THROW(write(kMainStream), Error);
}

TEST_F(OrderCheckerTest, OrderIsPassedOnByAThirdStream) {
  Event second;
  write(kMainStream);
  executor_.record(kMainStream, event_);
  executor_.wait(kSideStream, event_);
  executor_.record(kSideStream, second);
  executor_.wait(kSpillStream, second);
  read(kSpillStream);
  executor_.synchronize_all();
}

TEST_F(OrderCheckerTest, AnOldRecordIsStillKnownThroughTheNext) {
  write(kMainStream);
  executor_.record(kMainStream, event_);
  executor_.record(kSideStream, event_);  // completes behind the first
  executor_.wait(kSpillStream, event_);
  read(kSpillStream);
}

TEST_F(OrderCheckerTest, TheHostOrdersBySynchronizing) {
  write(kMainStream);
  executor_.synchronize(kSideStream);
  EXPECT_THROW(read(kSideStream), Error);
  executor_.synchronize(kMainStream);
  read(kSideStream);
}

TEST_F(OrderCheckerTest, TheHostOrdersByAnEventItSynchronizedOrQueriedOrObserved) {
  for (int way = 0; way < 3; ++way) {
    write(kMainStream);
    executor_.record(kMainStream, event_);
    write(kMainStream);
    executor_.synchronize(event_);
    EXPECT_THROW(read(kSideStream), Error);
    executor_.record(kMainStream, event_);
    EXPECT_FALSE(executor_.query(event_));
    EXPECT_THROW(read(kSideStream), Error);
    if (way == 0) executor_.synchronize(event_);
    if (way > 0) {
      Event later;
      executor_.record(kMainStream, later);
      executor_.synchronize(later);
      EXPECT_TRUE(way == 1 ? executor_.query(event_) : executor_.observe(event_) > 0);
    }
    read(kSideStream);
    executor_.synchronize_all();
  }
}

TEST_F(OrderCheckerTest, ObservingOrdersBehindTheRecordsThatAreComplete) {
  int64_t other = 0;
  const Body writes_other = writes(&other, 8), reads_other = reads(&other, 8);
  Event reached;
  write(kMainStream);
  executor_.record(kMainStream, event_);
  executor_.record(kSideStream, reached);
  executor_.push(kMainStream, kWriter, BodyParams{&writes_other});
  Event blocker;  // keeps the second record from running
  Executor elsewhere({});
  elsewhere.record(kMainStream, blocker);
  executor_.wait(kMainStream, blocker);
  executor_.record(kMainStream, event_);
  executor_.synchronize(reached);
  EXPECT_FALSE(executor_.query(event_));
  EXPECT_EQ(executor_.observe(event_), 1u);
  read(kSideStream);
  EXPECT_THROW(executor_.push(kSideStream, kReader, BodyParams{&reads_other}), Error);
  elsewhere.synchronize_all();
  executor_.synchronize_all();
}

TEST_F(OrderCheckerTest, AnAsynchronousWriteLastsUntilItsEventIsWaitedFor) {
  fetch(kMainStream);
  EXPECT_NE(error_of_read(kMainStream).find("which 'fetch' (stream 0, pushed earlier, asynchronous) writes"),
            std::string::npos);
  executor_.record(kMainStream, event_);  // behind its pieces, not behind its copies
  executor_.wait(kSideStream, event_);
  EXPECT_THROW(read(kSideStream), Error);
  executor_.synchronize(kMainStream);
  EXPECT_THROW(read(kMainStream), Error);
  executor_.wait(kSideStream, done_);
  read(kSideStream);
  EXPECT_THROW(read(kMainStream), Error);
  executor_.record(kSideStream, event_);
  executor_.wait(kMainStream, event_);  // learns it from the side stream
  read(kMainStream);
  EXPECT_THROW(read(kSpillStream), Error);
  executor_.synchronize(done_);
  read(kSpillStream);
}

TEST_F(OrderCheckerTest, EarlierOperationsOfItsStreamAreBeforeAnAsynchronousOne) {
  read(kMainStream);
  fetch(kMainStream);
  executor_.wait(kSideStream, done_);
  executor_.push(kSideStream, kWriter, BodyParams{&writes_});
}

TEST_F(OrderCheckerTest, ResourcesAreComparedByNumberAndPosition) {
  const Body spill{{}, [](AccessList& list) { list.write_resource(7, 0, 100); }};
  const Body near{{}, [](AccessList& list) { list.read_resource(7, 99, 200); }};
  const Body behind{{}, [](AccessList& list) { list.read_resource(7, 100, 200); }};
  const Body other{{}, [](AccessList& list) { list.read_resource(8, 0, 100); }};
  executor_.push(kSpillStream, kWriter, BodyParams{&spill});
  executor_.push(kMainStream, kReader, BodyParams{&behind});
  executor_.push(kMainStream, kReader, BodyParams{&other});
  try {
    executor_.push(kMainStream, kReader, BodyParams{&near});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("reads positions [99, 100) of resource 7"), std::string::npos)
        << error.what();
  }
  executor_.synchronize_all();
}

TEST_F(OrderCheckerTest, NamesTheAllocation) {
  Arena arena("device", 1 << 20);
  int64_t* pool = arena.allocate_array<int64_t>(16, "pool of layer 3");
  executor_.protect(arena);
  const Body body = writes(pool + 4, 16);
  executor_.push(kMainStream, kWriter, BodyParams{&body});
  try {
    executor_.push(kSideStream, kWriter, BodyParams{&body});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("writes bytes [32, 48) of 'pool of layer 3', which 'writer'"),
              std::string::npos)
        << error.what();
  }
  executor_.synchronize_all();
}

TEST_F(OrderCheckerTest, ReplaysAreChecked) {
  OpList list;
  executor_.begin_capture(list);
  write(kMainStream);
  executor_.end_capture();
  executor_.synchronize_all();
  executor_.replay(list);
  EXPECT_THROW(read(kSideStream), Error);
}

TEST(OrderChecker, ForgetsWhatTheHostHasSeen) {
  OrderChecker checker;
  std::vector<int64_t> memory(1000);
  Event event;
  const Body body{{}, [&](AccessList& list) {
                    for (size_t i = 0; i < memory.size(); i += 2) list.write(&memory[i], 8);
                  }};
  const BodyParams params{&body};
  for (uint64_t step = 1; step <= 5; ++step) {
    checker.push(kMainStream, kWriter, &params, nullptr, 0);
    checker.push(kMainStream, kFetch, &params, &event, step);
    EXPECT_EQ(checker.num_segments(), 500u);
    checker.host_saw(kMainStream);
    EXPECT_EQ(checker.num_segments(), 500u);
    checker.host_saw(&event, step);
    EXPECT_EQ(checker.num_segments(), 0u);
  }
}

}  // namespace
}  // namespace tidepool::device
