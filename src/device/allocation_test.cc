// A step allocates nothing: every allocation of this test program is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "device/executor.h"
#include "device/test_ops.h"

namespace {
std::atomic<int64_t> num_allocations{0};
}

[[gnu::noinline]] void* operator new(size_t bytes) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes > 0 ? bytes : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes > 0 ? bytes : 1);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace tidepool::device {
namespace {

TEST(Allocation, StepsAllocateNothing) {
  for (int threads : {1, 2}) {
    Executor executor({.num_threads = threads});
    Event event, done;
    const testing::Body body{[](int32_t) {}, [](AccessList&) {}, 4};
    const testing::Body fetch{[&](int32_t) { done.finish_piece(); }, [](AccessList&) {}, 4};
    OpList list;
    const auto step = [&] {
      for (int i = 0; i < 200; ++i) {
        testing::push(executor, kMainStream, body);
        testing::push_async(executor, kMainStream, fetch, done);
        executor.record(kMainStream, event);
        executor.wait(kSideStream, event);
        testing::push(executor, kSideStream, body);
        executor.wait(kMainStream, done);
      }
    };
    executor.begin_capture(list);
    step();
    executor.end_capture();
    executor.synchronize_all();
    const int64_t before = num_allocations.load();
    for (int i = 0; i < 100; ++i) {
      i % 2 == 0 ? step() : executor.replay(list);
      executor.synchronize(kMainStream);
      executor.observe(event);
      executor.synchronize(kSideStream);
    }
    EXPECT_EQ(num_allocations.load() - before, 0);
    EXPECT_GT(before, 0);
  }
}

}  // namespace
}  // namespace tidepool::device
