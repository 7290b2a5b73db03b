#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tidepool::base {
namespace {

TEST(ParallelFor, CallsEveryPieceOnce) {
  for (const int threads : {1, 2, 7}) {
    for (const int64_t pieces : {0, 1, 2, 100}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(pieces));
      parallel_for(pieces, threads, [&](int64_t i) { calls[static_cast<size_t>(i)].fetch_add(1); });
      for (const auto& count : calls) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ParallelFor, OneThreadMeansTheCaller) {
  const auto caller = std::this_thread::get_id();
  parallel_for(10, 1, [&](int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
  parallel_for(10, 0, [&](int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
}

TEST(ParallelFor, TheFirstExceptionComesBackAndLaterPiecesAreSkipped) {
  std::atomic<int64_t> done{0};
  const auto work = [&](int64_t i) {
    if (i == 3) throw std::runtime_error("piece 3");
    done.fetch_add(1);
  };
  try {
    parallel_for(1'000'000'000, 2, work);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "piece 3");
  }
  EXPECT_LT(done.load(), 1'000'000'000);
}

TEST(AvailableThreads, IsAtLeastOne) { EXPECT_GE(available_threads(), 1); }

}  // namespace
}  // namespace tidepool::base
