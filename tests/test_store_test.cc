// The test store itself: what it delays arrives whole, what it fails says so, and what it must catch is caught.
#include "test_store.h"

#include <gtest/gtest.h>

#include "tidepool/ops/plan_format.h"

namespace tidepool::testing {
namespace {

constexpr RowFormat kFormat{DType::kBF16, 4, 2};

class Store : public ::testing::Test {
 protected:
  Store() : memory_({2}, 32, kFormat), device_(32, 1, kFormat, Layout::kSeparate) {
    for (int32_t i = 0; i < 32; ++i) {
      write_row(memory_.planes(0, 1), i, row(i));
      copies_.push_back({i, 31 - i});
    }
  }
  static std::vector<std::byte> row(int32_t i) { return std::vector<std::byte>(12, static_cast<std::byte>(i + 1)); }
  ops::RowTransfer transfer(int32_t first, int32_t count) {
    return {0, 1, copies_.data() + first, count, device_.planes(0), &status_};
  }
  bool arrived(int32_t first, int32_t count) {
    for (int32_t i = first; i < first + count; ++i) {
      if (read_row(device_.planes(0), 31 - i) != row(i)) return false;
    }
    return true;
  }
  MemoryRowStore memory_;
  RowMemory device_;
  std::vector<ops::RowCopy> copies_;
  int32_t status_ = 0;
  device::Event done_;
};

TEST_F(Store, DelayedRequestsArriveWholeAndOutOfOrder) {
  DelayedRowStore store(memory_, {.seed = 3});
  store.mark_written(0, 1, 0, 32);
  done_.start(8);
  for (int32_t i = 0; i < 8; ++i) store.fetch(transfer(4 * i, 4), done_);
  EXPECT_EQ(done_.unfinished_pieces(), 8u);
  int32_t pumps = 0;
  while (store.pump()) ++pumps;
  EXPECT_GT(pumps, 8);
  EXPECT_EQ(done_.completed(), 1u);
  EXPECT_TRUE(arrived(0, 32));
  EXPECT_GT(store.num_reordered(), 0);
  EXPECT_EQ(status_, 0);
  EXPECT_TRUE(store.violations().empty());
}

TEST_F(Store, AThreadOfItsOwnCompletesRequests) {
  DelayedRowStore store(memory_, {.seed = 5});
  store.mark_written(0, 1, 0, 32);
  store.start_thread();
  done_.start(4);
  for (int32_t i = 0; i < 4; ++i) store.fetch(transfer(8 * i, 8), done_);
  while (done_.completed() == 0) std::this_thread::yield();
  EXPECT_TRUE(arrived(0, 32));
  EXPECT_FALSE(store.pump());
}

TEST_F(Store, AFailedRequestSetsTheStatusAndFinishes) {
  DelayedRowStore store(memory_, {.fails = [](const ops::RowTransfer&, bool is_store) { return !is_store; }});
  store.mark_written(0, 1, 0, 32);
  done_.start(1);
  store.fetch(transfer(0, 8), done_);
  store.drain();
  EXPECT_EQ(done_.completed(), 1u);
  EXPECT_EQ(status_, static_cast<int32_t>(ops::RequestStatus::kFetchFailed));
  EXPECT_FALSE(arrived(0, 8));
  EXPECT_EQ(store.num_failed(), 1);
}

TEST_F(Store, ReadingARecordBeforeItsWriteIsCompleteIsAViolation) {
  DelayedRowStore store(memory_, {});
  done_.start(3);
  store.fetch(transfer(0, 1), done_);
  ASSERT_EQ(store.violations().size(), 1u);
  EXPECT_EQ(store.violations()[0], "record 0 of group 0, layer 1 is read but was never written");
  store.store(transfer(1, 2), done_);
  store.fetch(transfer(2, 1), done_);
  ASSERT_EQ(store.violations().size(), 2u);
  EXPECT_EQ(store.violations()[1], "record 2 of group 0, layer 1 is read before its write is complete");
  store.drain();
  done_.start(2);
  store.fetch(transfer(1, 2), done_);
  EXPECT_EQ(store.violations().size(), 2u) << "complete now";
  store.store(transfer(1, 1), done_);
  ASSERT_EQ(store.violations().size(), 3u);
  EXPECT_EQ(store.violations()[2], "record 1 of group 0, layer 1 is written while it is read");
  store.drain();
  store.forget(0, 1, 2, 1);
  done_.start(1);
  store.fetch(transfer(2, 1), done_);
  EXPECT_EQ(store.violations().size(), 4u) << "its block was given to another request";
}

TEST_F(Store, AnEmptyTransferOnlyFinishesItsPiece) {
  DelayedRowStore delayed(memory_, {.fail_percent = 100});
  for (ops::RowStore* store : {static_cast<ops::RowStore*>(&memory_), static_cast<ops::RowStore*>(&delayed)}) {
    done_.start(1);
    store->fetch(transfer(0, 0), done_);
    delayed.drain();
    EXPECT_EQ(done_.unfinished_pieces(), 0u);
    EXPECT_EQ(status_, 0);
  }
}

TEST_F(Store, ARecordOutsideTheMemoryFailsTheRequest) {
  copies_[0].record = 32;
  done_.start(1);
  memory_.fetch(transfer(0, 1), done_);
  EXPECT_EQ(status_, static_cast<int32_t>(ops::RequestStatus::kFetchFailed));
  EXPECT_EQ(done_.completed(), 1u);
}

}  // namespace
}  // namespace tidepool::testing
