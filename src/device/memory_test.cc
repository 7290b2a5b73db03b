#include "device/memory.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tidepool/error.h"

namespace tidepool::device {
namespace {

std::string refusal(Arena& arena, uint64_t bytes, const std::string& what) {
  try {
    arena.allocate(bytes, what);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Arena, AllocationsAreZeroedAlignedAndCounted) {
  for (Guard guard : {Guard::kNone, Guard::kProtected}) {
    Arena arena("device", 100000, guard);
    const std::byte* a = arena.allocate(1, "a");
    const std::byte* b = arena.allocate(65, "b");
    const float* c = arena.allocate_array<float>(1000, "c");
    EXPECT_EQ(arena.used_bytes(), 64u + 128u + 4032u);
    EXPECT_EQ(arena.budget_bytes(), 100000u);
    arena.open_all();
    for (const void* p : {static_cast<const void*>(a), static_cast<const void*>(b), static_cast<const void*>(c)}) {
      EXPECT_EQ(reinterpret_cast<uint64_t>(p) % 64, 0u);
      EXPECT_TRUE(arena.contains(p));
    }
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(c[i], 0.0f);
    ASSERT_EQ(arena.allocations().size(), 3u);
    EXPECT_EQ(arena.allocations()[1].what, "b");
    EXPECT_EQ(arena.allocation_of(b + 64), &arena.allocations()[1]);
    EXPECT_EQ(arena.allocation_of(b + 65), nullptr);
    EXPECT_EQ(arena.allocation_of(&arena), nullptr);
    EXPECT_FALSE(arena.contains(&arena));
  }
}

TEST(Arena, TheBudgetIsHard) {
  for (Guard guard : {Guard::kNone, Guard::kProtected}) {
    Arena arena("device", 1000, guard);
    arena.allocate(512, "first");
    EXPECT_EQ(refusal(arena, 489, "second"),
              "arena 'device': 'second' needs 489 bytes, but 488 of its budget of 1000 bytes are left");
    EXPECT_EQ(refusal(arena, 460, "third"),  // 512 when rounded up
              "arena 'device': 'third' needs 460 bytes, but 488 of its budget of 1000 bytes are left");
    EXPECT_EQ(refusal(arena, UINT64_MAX, "absurd").substr(0, 24), "arena 'device': 'absurd'");
    EXPECT_THROW(arena.allocate_array<int64_t>((uint64_t{1} << 61) + 1, "wrapped"), Error);
    EXPECT_EQ(refusal(arena, 448, "last"), "accepted");
    EXPECT_EQ(arena.used_bytes(), 960u);
    EXPECT_EQ(refusal(arena, 0, "nothing"), "accepted");
  }
}

TEST(Arena, AWholeBudgetCanBeUsed) {
  Arena arena("device", 5 << 20);
  std::byte* all = arena.allocate(5 << 20, "all");
  std::memset(all, 1, 5 << 20);
  EXPECT_EQ(refusal(arena, 1, "more"),
            "arena 'device': 'more' needs 1 bytes, but 0 of its budget of 5242880 bytes are left");
}

TEST(Arena, AnAbsurdBudgetIsRefused) { EXPECT_THROW(Arena("device", UINT64_MAX), Error); }

TEST(Arena, OpeningOutsideAnAllocationIsRefused) {
  Arena arena("device", 1 << 20, Guard::kProtected);
  std::byte* a = arena.allocate(100, "a");
  EXPECT_THROW(arena.open(a, 101, true), Error);
  EXPECT_THROW(arena.open(a + 100, 1, true), Error);
  EXPECT_THROW(arena.open(&arena, 1, false), Error);
  arena.open(a, 100, true);
  a[99] = std::byte{1};
}

TEST(Arena, RangesThatStayOpenKeepTheirBytesAndTheStrongerAccess) {
  Arena arena("device", 1 << 20, Guard::kProtected);
  std::byte* a = arena.allocate(20000, "a");
  arena.set_open({{a, 20000, false}, {a + 5000, 10000, true}, {a + 6000, 10, false}});
  std::memset(a + 5000, 7, 10000);
  arena.set_open({{a + 8192, 4096, true}});
  a[8192] = std::byte{8};
  arena.set_open({{a + 4096, 8192, false}, {a + 9000, 1, true}});
  EXPECT_EQ(a[8192], std::byte{8});
  EXPECT_EQ(a[8193], std::byte{7});
  a[9000] = std::byte{9};
  arena.close_all();
}

class ArenaDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

int look(const std::byte* p) { return static_cast<int>(*const_cast<const volatile std::byte*>(p)); }
void touch(std::byte* p) { *const_cast<volatile std::byte*>(p) = std::byte{1}; }

TEST_F(ArenaDeathTest, AProtectedAllocationIsClosedFromTheStart) {
  Arena arena("device", 1 << 20, Guard::kProtected);
  std::byte* a = arena.allocate(100, "a");
  EXPECT_DEATH(look(a), "");
  EXPECT_DEATH(touch(a + 99), "");
}

TEST_F(ArenaDeathTest, WhatIsOpenForReadingCannotBeWritten) {
  Arena arena("device", 1 << 20, Guard::kProtected);
  std::byte* a = arena.allocate(100, "a");
  arena.open(a, 100, false);
  EXPECT_EQ(look(a), 0);
  EXPECT_DEATH(touch(a), "");
}

TEST_F(ArenaDeathTest, WhatIsClosedAgainCannotBeRead) {
  Arena arena("device", 1 << 20, Guard::kProtected);
  std::byte* a = arena.allocate(100, "a");
  std::byte* b = arena.allocate(100, "b");
  arena.open_all();
  touch(a);
  arena.set_open({{a, 100, false}});
  EXPECT_EQ(look(a), 1);
  EXPECT_DEATH(look(b), "");
  arena.close_all();
  EXPECT_DEATH(look(a), "");
}

TEST_F(ArenaDeathTest, AGuardPageLiesBehindEveryAllocation) {
  Arena arena("device", 1 << 20, Guard::kProtected);
  std::byte* a = arena.allocate(4096, "a");
  arena.allocate(4096, "b");
  arena.open_all();
  EXPECT_DEATH(look(a + 4096), "");
}

#if defined(__SANITIZE_ADDRESS__)
TEST_F(ArenaDeathTest, UnderTheAddressSanitizerExactBytesAreClosed) {
  Arena arena("device", 1 << 20, Guard::kProtected);
  std::byte* a = arena.allocate(256, "a");
  arena.set_open({{a + 64, 64, true}});
  touch(a + 127);
  EXPECT_DEATH(look(a + 63), "use-after-poison");
  EXPECT_DEATH(look(a + 128), "use-after-poison");
  arena.set_open({{a + 96, 96, true}});
  touch(a + 191);
  EXPECT_DEATH(look(a + 95), "use-after-poison");
}
#endif

}  // namespace
}  // namespace tidepool::device
