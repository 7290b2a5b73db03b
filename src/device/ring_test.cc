#include "device/ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <random>

namespace tidepool::device {
namespace {

using Bytes = std::vector<std::byte>;

void push(Ring& ring, const Bytes& params) {
  const uint32_t size = static_cast<uint32_t>(params.size());
  ring.push({EntryKind::kOp, Entry::bytes_with(size), 0, size, nullptr, nullptr, 0}, params.data());
}

Bytes front(const Ring& ring) {
  const Entry& entry = ring.front();
  const auto* begin = static_cast<const std::byte*>(entry.params());
  EXPECT_EQ(reinterpret_cast<uint64_t>(begin) % 16, 0u);
  EXPECT_EQ(entry.kind, EntryKind::kOp);
  return Bytes(begin, begin + entry.params_bytes);
}

TEST(Ring, GivesBackWhatWasPushedInOrder) {
  std::mt19937_64 random(17);
  for (int round = 0; round < 60; ++round) {
    Ring ring(4096);
    std::deque<Bytes> expected;
    const uint64_t most = 1 + random() % 40;  // some rounds never grow, some do
    for (int i = 0; i < 500; ++i) {
      if (expected.size() < most && random() % 2 == 0) {
        Bytes params(random() % (kMaxParamsBytes + 1));
        for (std::byte& byte : params) byte = static_cast<std::byte>(random());
        push(ring, params);
        expected.push_back(std::move(params));
      } else if (!expected.empty()) {
        ASSERT_EQ(front(ring), expected.front());
        ring.pop();
        expected.pop_front();
      }
      ASSERT_EQ(ring.empty(), expected.empty());
    }
  }
}

TEST(Ring, KeepsTheParametersOfTheFirstEntryInPlaceWhileItGrows) {
  Ring ring(4096);
  push(ring, Bytes(16, std::byte{1}));
  const void* params = ring.front().params();
  for (int i = 0; i < 1000; ++i) push(ring, Bytes(1000, std::byte{2}));
  EXPECT_NE(ring.front().params(), params);
  EXPECT_EQ(std::memcmp(params, Bytes(16, std::byte{1}).data(), 16), 0);
  EXPECT_EQ(front(ring), Bytes(16, std::byte{1}));
}

TEST(Ring, FindsTheNextOperation) {
  static constexpr OpType type{};
  Ring ring(4096);
  EXPECT_EQ(ring.next_operation(), nullptr);
  ring.push({EntryKind::kWait, Entry::bytes_with(0), 0, 0, nullptr, nullptr, 1}, nullptr);
  EXPECT_EQ(ring.next_operation(), nullptr);
  ring.push({EntryKind::kOp, Entry::bytes_with(0), 0, 0, &type, nullptr, 0}, nullptr);
  EXPECT_EQ(ring.next_operation(), &type);
}

}  // namespace
}  // namespace tidepool::device
