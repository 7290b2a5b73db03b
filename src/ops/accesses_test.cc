// Declared accesses against what operators do: nothing outside a declared write changes, and nothing outside the
// declared ranges matters.
#include "ops/accesses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "op_cases.h"

namespace tidepool::ops {
namespace {

using ::tidepool::testing::OpCase;
using ::tidepool::testing::OpSet;
using ::tidepool::testing::OpWorld;
using ::tidepool::testing::Region;

enum : uint8_t { kUndeclared, kRead, kWritten };

// For every byte of a world, in the order of its regions: how the call declares it.
std::vector<std::vector<uint8_t>> declared_bytes(OpWorld& world, const OpWorld::Call& call) {
  device::AccessList list;
  call.type->declare(call.params.data(), list);
  const std::vector<Region> regions = world.regions();
  std::vector<std::vector<uint8_t>> marks;
  for (const Region& region : regions) marks.emplace_back(region.bytes, static_cast<uint8_t>(kUndeclared));
  const auto mark = [&](uint64_t begin, uint64_t end, bool write) {
    for (size_t i = 0; i < regions.size(); ++i) {
      const auto base = reinterpret_cast<uint64_t>(regions[i].base);
      const uint64_t from = std::max(begin, base), to = std::min(end, base + regions[i].bytes);
      for (uint64_t at = from; at < to; ++at) {
        uint8_t& byte = marks[i][at - base];
        byte = std::max(byte, static_cast<uint8_t>(write ? kWritten : kRead));
      }
    }
  };
  for (const device::Access& access : list.ranges()) {
    if (access.space == 0) {
      mark(access.begin, access.end, access.write);
      continue;
    }
    for (int32_t layer = 0; layer < world.geometry().num_layers; ++layer) {
      if (world.store().resource(0, layer) != access.space) continue;
      const RowPlanes planes = world.store().planes(0, layer);
      for (uint64_t record = access.begin; record < access.end; ++record) {
        for (const RowPlane& plane : {planes.latent, planes.rope}) {
          const auto at = reinterpret_cast<uint64_t>(plane.row(static_cast<int64_t>(record)));
          mark(at, at + static_cast<uint64_t>(plane.bytes), access.write);
        }
      }
    }
  }
  // Status words are the one exception.
  for (size_t i = 0; i < regions.size(); ++i) {
    if (regions[i].name == "status") std::fill(marks[i].begin(), marks[i].end(), static_cast<uint8_t>(kWritten));
  }
  return marks;
}

void copy_world(OpWorld& from, OpWorld& to) {
  const auto a = from.regions(), b = to.regions();
  for (size_t i = 0; i < a.size(); ++i) std::memcpy(b[i].base, a[i].base, a[i].bytes);
}

// Runs the call in `world` and, with all undeclared bytes scrambled, in `scrambled`.
void expect_declared(OpWorld& world, const OpWorld::Call& call, OpWorld& scrambled, const OpWorld::Call& scrambled_call,
                     OpWorld& before) {
  world.poison_outputs(call);
  copy_world(world, before);
  copy_world(world, scrambled);
  const auto marks = declared_bytes(world, call);
  const auto regions = world.regions(), other = scrambled.regions(), old = before.regions();
  for (size_t i = 0; i < regions.size(); ++i) {
    for (size_t at = 0; at < regions[i].bytes; ++at) {
      if (marks[i][at] == kUndeclared) other[i].base[at] ^= std::byte{0xA5};
    }
  }
  world.run(call);
  scrambled.run(scrambled_call);
  for (size_t i = 0; i < regions.size(); ++i) {
    for (size_t at = 0; at < regions[i].bytes; ++at) {
      const std::byte now = regions[i].base[at], was = old[i].base[at], scrambled_now = other[i].base[at];
      const bool declared = marks[i][at] != kUndeclared;
      const bool wrote =
          (marks[i][at] != kWritten && now != was) || (!declared && scrambled_now != (was ^ std::byte{0xA5}));
      if (wrote) FAIL() << "undeclared write to " << regions[i].name << ", byte " << at;
      if (declared && scrambled_now != now) FAIL() << "undeclared bytes changed " << regions[i].name << ", byte " << at;
    }
  }
}

void expect_all_declared(const OpSet& ops, const std::vector<OpCase>& cases) {
  for (const OpCase& c : cases) {
    if (c.geometry.id_range > 1024 || c.geometry.format.row_bytes() > 100) continue;  // large and no different
    OpWorld world(c.geometry, ops), scrambled(c.geometry, ops), before(c.geometry, ops);
    for (size_t step = 0; step < std::min<size_t>(c.steps.size(), 3); ++step) {
      world.begin_step(c.steps[step]);
      scrambled.begin_step(c.steps[step]);
      const auto calls = world.calls(), scrambled_calls = scrambled.calls();
      for (size_t i = 0; i < calls.size(); ++i) {
        SCOPED_TRACE(c.name + ", step " + std::to_string(step) + ", " + calls[i].name);
        expect_declared(world, calls[i], scrambled, scrambled_calls[i], before);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Accesses, OperatorsTouchOnlyWhatTheyDeclareReference) {
  expect_all_declared(testing::ref_ops(), testing::op_cases());
  expect_all_declared(testing::ref_ops(), testing::gather_cases());
}
TEST(Accesses, OperatorsTouchOnlyWhatTheyDeclareCpu) {
  expect_all_declared(testing::cpu_ops(), testing::op_cases());
  expect_all_declared(testing::cpu_ops(), testing::gather_cases());
}

// Small world: one active row of cache slot 1 with 21 rows, of which 13 are spilled; blocks of 16.
class Declared : public ::testing::Test {
 protected:
  Declared() : world_(geometry(), testing::cpu_ops()) { world_.begin_step(one_row()); }
  static testing::OpStep one_row() {
    testing::OpStep step;
    step.num_rows = 2;
    step.cache_slot = {-1, 1};
    step.seq_len = {50, 21};
    step.spilled_len = {50, 13};
    step.topk.assign(8, -1);
    return step;
  }
  static testing::OpGeometry gather_geometry() {
    testing::OpGeometry g = geometry();
    g.gather = true, g.status_queries = 3;
    return g;
  }
  static testing::OpGeometry geometry() {
    testing::OpGeometry g;
    g.max_rows = 2, g.topk = 4, g.window_rows = 8, g.num_layers = 2;
    return g;
  }
  bool overlaps(const device::AccessList& list, const void* base, int64_t bytes) {
    const auto begin = reinterpret_cast<uint64_t>(base), end = begin + static_cast<uint64_t>(bytes);
    return std::any_of(list.ranges().begin(), list.ranges().end(),
                       [&](const auto& a) { return a.space == 0 && a.begin < end && begin < a.end; });
  }
  OpWorld world_;
};

TEST_F(Declared, ServeReadsTheSpilledRecordsOfActiveRowsOnly) {
  device::AccessList list;
  declare_serve(world_.serve_params(1), list);
  std::vector<device::Access> records;
  for (const auto& access : list.ranges()) {
    if (access.space != 0) records.push_back(access);
  }
  ASSERT_EQ(records.size(), 1u);
  const auto first = static_cast<uint64_t>(world_.block_table[32]) * 16;
  EXPECT_EQ(records[0].space, world_.store().resource(0, 1));
  EXPECT_EQ(records[0].begin, first);
  EXPECT_EQ(records[0].end, first + 13);
  EXPECT_FALSE(records[0].write);
}

TEST_F(Declared, ServeReadsTheStoreInSomeStepEvenWhenNothingIsSpilledYet) {
  world_.spilled_len[1] = 0;
  device::AccessList now;
  auto every_step = device::AccessList::for_every_step();
  declare_serve(world_.serve_params(1), now);
  declare_serve(world_.serve_params(1), every_step);
  const auto reads_store = [](const device::AccessList& list) {
    return std::any_of(list.ranges().begin(), list.ranges().end(), [](const auto& a) { return a.space != 0; });
  };
  EXPECT_FALSE(reads_store(now));
  EXPECT_TRUE(reads_store(every_step));
}

TEST_F(Declared, ServeReadsTheWindowFromTheFirstUnspilledRowOn) {
  device::AccessList list;
  declare_serve(world_.serve_params(0), list);
  const RowPlanes window = world_.window(0);
  for (int32_t p = 13; p < 21; ++p) EXPECT_TRUE(overlaps(list, window.latent.row(8 + p % 8), 1)) << p;
  for (int32_t row = 0; row < 8; ++row) EXPECT_FALSE(overlaps(list, window.latent.row(row), 24)) << row;
  world_.spilled_len[1] = 20;
  list.clear();
  declare_serve(world_.serve_params(0), list);
  EXPECT_TRUE(overlaps(list, window.latent.row(8 + 20 % 8), 1));
  EXPECT_FALSE(overlaps(list, window.latent.row(8 + 19 % 8), 24));
}

TEST_F(Declared, GatherReadsAndWritesOnlyTheSlotsOfTheBatch) {
  OpWorld world(gather_geometry(), testing::cpu_ops());
  world.begin_step(one_row());
  device::AccessList list;
  declare_gather(world.gather_params(0), list);
  const RowPlanes window = world.window(0), selection = world.selection(0);
  for (int32_t p = 13; p < 21; ++p) EXPECT_TRUE(overlaps(list, window.latent.row(8 + p % 8), 1)) << p;
  for (int32_t row = 0; row < 8; ++row) EXPECT_FALSE(overlaps(list, window.latent.row(row), 24)) << row;
  // Cache slot 1 has the selections 3 to 5, of which a step has one.
  const int32_t* places = world.place_status[0].data();
  for (int32_t selection_row = 0; selection_row < 6; ++selection_row) {
    const bool is_of_the_step = selection_row == 3;
    EXPECT_EQ(overlaps(list, places + selection_row * 5, 5 * 4), is_of_the_step) << selection_row;
    EXPECT_EQ(overlaps(list, selection.latent.row(selection_row * 4), 4 * 24), is_of_the_step) << selection_row;
  }
  EXPECT_TRUE(overlaps(list, places + 3 * 5 + 4, 4)) << "the number of places in use";
  EXPECT_TRUE(overlaps(list, world.plan_counts.data() + 4, 4 * 8));
  EXPECT_FALSE(overlaps(list, world.plan_counts.data(), 4 * 8));
  list.clear();
  declare_gather(world.gather_params(1), list);  // does not count
  EXPECT_FALSE(overlaps(list, world.plan_counts.data(), 8 * 8));
  world.num_resets = 2;
  world.resets = {2, 0};
  list.clear();
  declare_gather_reset(world.gather_reset_params(0), list);
  EXPECT_TRUE(overlaps(list, places, 3 * 5 * 4));
  EXPECT_FALSE(overlaps(list, places + 3 * 5, 3 * 5 * 4));
}

TEST_F(Declared, LayersOfAnInterleavedPoolDoNotOverlap) {
  device::AccessList install, serve;
  declare_install(world_.install_params(1, false), install);
  declare_serve(world_.serve_params(0), serve);
  for (const auto& access : install.ranges()) {
    if (!access.write) continue;
    for (const auto& other : serve.ranges()) {
      // They share the batch arrays, which both only read.
      EXPECT_FALSE(access.space == other.space && access.begin < other.end && other.begin < access.end);
    }
  }
}

TEST_F(Declared, OnlyTheCommittingInstallWritesMetadata) {
  device::AccessList list;
  declare_install(world_.install_params(1, false), list);
  EXPECT_FALSE(overlaps(list, world_.slot_of_token.data(), 2 * 512 * 4));
  EXPECT_FALSE(overlaps(list, world_.token_of_slot.data(), 2 * 64 * 4));
  list.clear();
  declare_install(world_.install_params(0, true), list);
  EXPECT_TRUE(overlaps(list, world_.slot_of_token.data() + 512, 512 * 4));
  EXPECT_FALSE(overlaps(list, world_.slot_of_token.data(), 512 * 4));
}

TEST_F(Declared, SpillWritesItsRecordsBlockByBlock) {
  world_.spill_first = {0, 14};
  world_.spill_count = {3, 4};
  world_.spill_base = {0, 8};
  device::AccessList list;
  declare_spill(world_.spill_params(0), list);
  std::vector<device::Access> records;
  for (const auto& access : list.ranges()) {
    if (access.space != 0) records.push_back(access);
  }
  ASSERT_EQ(records.size(), 2u);
  const auto block = [&](int32_t i) {
    return static_cast<uint64_t>(world_.block_table[static_cast<size_t>(32 + i)]) * 16;
  };
  EXPECT_EQ(records[0].begin, block(0) + 14);
  EXPECT_EQ(records[0].end, block(0) + 16);
  EXPECT_EQ(records[1].begin, block(1));
  EXPECT_EQ(records[1].end, block(1) + 2);
  EXPECT_TRUE(records[0].write && records[1].write);
}

}  // namespace
}  // namespace tidepool::ops
