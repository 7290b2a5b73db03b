#include "policy/policy.h"

#include <gtest/gtest.h>

#include <string>

#include "policy/visit.h"
#include "tidepool/error.h"

namespace tidepool::policy {
namespace {

std::string refusal(std::string_view name) {
  try {
    kind_of(name);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Policy, NamesAndKindsAreEachOthersInverse) {
  EXPECT_EQ(kind_of("fifo"), Kind::kFifo);
  EXPECT_STREQ(name_of(Kind::kFifo), "fifo");
}

TEST(Policy, PlannedPoliciesAreRefusedAsNotAvailableYet) {
  for (const char* name : {"fifo-skip", "clock", "lru"}) {
    EXPECT_EQ(refusal(name), "replacement policy '" + std::string(name) + "' is not available yet; available: fifo");
  }
}

TEST(Policy, UnknownNamesAndNumbersAreRefused) {
  EXPECT_EQ(refusal("Fifo"), "unknown replacement policy 'Fifo'; available: fifo");
  EXPECT_EQ(refusal(""), "unknown replacement policy ''; available: fifo");
  EXPECT_THROW(checked_kind(1), Error);
  EXPECT_THROW(checked_kind(-1), Error);
  EXPECT_EQ(checked_kind(0), Kind::kFifo);
}

TEST(Fifo, SetIsTheLowBitsOfThePosition) {
  EXPECT_EQ(Fifo::set_of(0x12345, 16), 5);
  EXPECT_EQ(Fifo::set_of(0x12345, 1), 0);
}

TEST(Fifo, CursorWalksTheWaysInOrderAndWraps) {
  int32_t cursor = 0;
  SetState set{3, &cursor, nullptr, nullptr};
  for (int32_t want : {0, 1, 2, 0, 1}) EXPECT_EQ(Fifo::choose_way(set), want);
  EXPECT_EQ(cursor, 2);
}

TEST(Fifo, HitsDoNotMoveTheCursor) {
  int32_t cursor = 2;
  SetState set{16, &cursor, nullptr, nullptr};
  Fifo::hit(set, 2);
  EXPECT_EQ(cursor, 2);
}

TEST(Fifo, ADamagedCursorStaysInsideTheSet) {
  for (int32_t bad : {-1, 16, 1 << 30}) {
    int32_t cursor = bad;
    SetState set{16, &cursor, nullptr, nullptr};
    EXPECT_EQ(Fifo::choose_way(set), 0);
    EXPECT_EQ(cursor, 1);
  }
}

}  // namespace
}  // namespace tidepool::policy
