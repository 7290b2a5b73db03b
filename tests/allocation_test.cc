// Steps that only decode allocate nothing: every allocation of this test program is counted (its own program, because
// it replaces operator new).
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "model/make_model.h"
#include "model/presets.h"
#include "model/testing.h"
#include "tidepool/engine.h"

namespace {

std::atomic<int64_t> num_allocations{0};

void* count_and_allocate(size_t bytes, size_t alignment) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  bytes = (bytes + alignment - 1) / alignment * alignment;
  void* p = std::aligned_alloc(alignment, bytes > 0 ? bytes : alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) { return count_and_allocate(bytes, alignof(std::max_align_t)); }
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  return count_and_allocate(bytes, static_cast<size_t>(alignment));
}
// The other forms too: a sanitizer's own would not match the operator delete below.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return count_and_allocate(bytes, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new[](size_t bytes) { return count_and_allocate(bytes, alignof(std::max_align_t)); }
[[gnu::noinline]] void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return count_and_allocate(bytes, alignof(std::max_align_t));
}
[[gnu::noinline]] void operator delete[](void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace tidepool {
namespace {

constexpr int kWarmSteps = 30, kSteps = 100;

class Allocation : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new model::testing::TemporaryDirectory();
    model::make_model(model::preset_config("tiny"), *directory_ / "tiny", {});
  }
  static void TearDownTestSuite() { delete directory_; }

  // Two greedy requests and a sampled one, all decoding; what 100 steps of them allocate.
  static int64_t allocations_of_100_steps(EngineOptions options) {
    options.model = *directory_ / "tiny";
    options.max_num_seqs = 3;
    options.max_model_len = 768;
    options.pool_size = 32;
    Engine engine(options);
    for (int r = 0; r < 3; ++r) {
      RequestOptions request;
      for (int i = 0; i < 40 + r; ++i) request.prompt.push_back((i * 37 + r) % 256);
      request.max_tokens = 4 * (kWarmSteps + kSteps) + 50;  // all drafts may be accepted
      request.ignore_eos = true;
      request.temperature = r == 2 ? 0.8 : 0.0;
      request.top_p = 0.9;
      EXPECT_TRUE(engine.submit(request).admitted);
    }
    StepResult result;
    for (int i = 0; i < kWarmSteps; ++i) engine.step(result);
    const int64_t before = num_allocations.load();
    for (int i = 0; i < kSteps; ++i) {
      engine.step(result);
      EXPECT_EQ(result.decode_tokens, 3);
      EXPECT_EQ(result.prefill_tokens, 0);
    }
    const int64_t allocations = num_allocations.load() - before;
    EXPECT_GT(before, 0);
    return allocations;
  }

 private:
  inline static model::testing::TemporaryDirectory* directory_ = nullptr;
};

TEST_F(Allocation, AHundredDecodeStepsWithoutOffloadAllocateNothing) {
  for (int threads : {1, 2}) {
    EngineOptions options;
    options.num_threads = threads;
    EXPECT_EQ(allocations_of_100_steps(options), 0) << threads << " threads";
  }
}

TEST_F(Allocation, AHundredDecodeStepsWithOffloadAllocateNothing) {
  for (int threads : {1, 2}) {
    EngineOptions options;
    options.route = OffloadRoute::kSelect;
    options.num_threads = threads;
    EXPECT_EQ(allocations_of_100_steps(options), 0) << threads << " threads";
  }
}

TEST_F(Allocation, AHundredStepsWithDraftsAllocateNothingOnAnyRouteAndInAnyMode) {
  for (OffloadRoute route : {OffloadRoute::kOff, OffloadRoute::kSelect, OffloadRoute::kGather}) {
    for (ExecMode mode : {ExecMode::kEager, ExecMode::kCapture, ExecMode::kCompile}) {
      EngineOptions options;
      options.route = route;
      options.exec = mode;
      options.num_draft_tokens = 3;
      options.num_threads = 2;
      EXPECT_EQ(allocations_of_100_steps(options), 0)
          << "route " << static_cast<int>(route) << ", mode " << static_cast<int>(mode);
    }
  }
}

TEST_F(Allocation, TheCounterSeesStepsThatDoAllocate) {
  EngineOptions options;
  options.num_threads = 1;
  options.record_hidden = true;
  EXPECT_GT(allocations_of_100_steps(options), 0);
}

}  // namespace
}  // namespace tidepool
