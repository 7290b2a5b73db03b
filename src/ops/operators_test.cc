// Single operators with expectations written by hand, for reference and cpu alike.
#include <gtest/gtest.h>

#include <algorithm>

#include "op_cases.h"

namespace tidepool::ops {
namespace {

using ::tidepool::testing::OpGeometry;
using ::tidepool::testing::OpSet;
using ::tidepool::testing::OpStep;
using ::tidepool::testing::OpWorld;
using ::tidepool::testing::read_row;
using ::tidepool::testing::write_row;

using Ids = std::vector<int32_t>;

class Operators : public ::testing::TestWithParam<bool> {
 protected:
  static OpSet ops() { return GetParam() ? testing::cpu_ops() : testing::ref_ops(); }
  // One active row: batch row 0, cache slot 1.
  static OpStep step(int32_t seq_len, int32_t spilled_len, std::vector<int32_t> topk) {
    OpStep s;
    s.cache_slot = {1}, s.seq_len = {seq_len}, s.spilled_len = {spilled_len}, s.topk = std::move(topk);
    return s;
  }
  static OpGeometry geometry(int32_t topk, int32_t q_len = 1) {
    OpGeometry g;
    g.topk = topk, g.q_len = q_len, g.num_layers = 1;
    return g;
  }
  static void run(OpWorld& world, const std::string& name) {
    for (const auto& call : world.calls()) {
      if (call.name.starts_with(name)) world.run(call);
    }
  }
  static int32_t word(RequestStatus status) { return static_cast<int32_t>(status); }
  static std::vector<int32_t> flat(const std::vector<PlanEntry>& plan) {
    std::vector<int32_t> values;
    for (const PlanEntry& entry : plan) values.insert(values.end(), {entry.source, entry.index});
    return values;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, Operators, ::testing::Values(false, true),
                         [](const auto& backend) { return backend.param ? "cpu" : "ref"; });

TEST_P(Operators, PlanGivesEachEntryItsPublishedSource) {
  OpWorld world(geometry(8), ops());
  world.begin_step(step(10, 6, {3, 4, 9, 8, 10, 7, -2, -1}));
  world.slot_of_token[512 + 4] = 5;
  world.slot_state[64 + 5] = world.generation[1];
  run(world, "plan");
  // Final bound 8, own position 9.
  EXPECT_EQ(flat(world.plan), (std::vector<int32_t>{2, 3, 1, 5, 3, 9, 2, 8, 4, 10, 2, 7, 5, -2, 0, -1}));
  EXPECT_EQ(world.valid_len, (std::vector<int32_t>{5}));
  EXPECT_EQ(world.num_records[0], 3);
  EXPECT_EQ(world.records[1].set, 8 % 4);
  EXPECT_EQ(world.records[1].position, 8);
  EXPECT_EQ(world.records[1].place, 3);
  EXPECT_EQ((std::vector<int64_t>(world.plan_counts.begin() + 4, world.plan_counts.end())),
            (std::vector<int64_t>{1, 3, 1, 2}));
}

TEST_P(Operators, PlanListsARepeatedMissAsTwoRecordsAndOneUniqueMiss) {
  OpWorld world(geometry(4, 2), ops());
  world.begin_step(step(30, 28, {7, 11, 7, -1, 11, 9, -1, -1}));
  run(world, "plan");
  EXPECT_EQ(world.num_records[0], 5);
  EXPECT_EQ(world.num_unique_misses[0], 3);
  EXPECT_EQ((std::vector<int32_t>(world.unique_misses.begin(), world.unique_misses.begin() + 3)),
            (std::vector<int32_t>{7, 11, 9}));
  EXPECT_EQ(world.records[3].query, 1);
  EXPECT_EQ(world.records[3].place, 0);
}

TEST_P(Operators, PlanTakesTheFinalLengthOfTheBatchWhereItHasOne) {
  const Ids list{0, 5, 6, 7, 8, 9};
  struct Expected {
    int32_t final_len;
    std::vector<int32_t> misses, window;
  };
  for (const auto& [final_len, misses, window] :
       {Expected{-1, {0, 5, 6, 7}, {8, 9}},  // none given: seq_len - q_len
        {8, {0, 5, 6, 7}, {8, 9}},
        {6, {0, 5}, {6, 7, 8, 9}},     // rows of earlier steps that are not final
        {9, {0, 5, 6, 7, 8}, {9}},     // one of this step that is
        {0, {0}, {5, 6, 7, 8, 9}}}) {  // the published lower limit of A
    OpWorld world(geometry(6, 2), ops());
    OpStep s = step(10, 5, list);
    s.topk.insert(s.topk.end(), list.begin(), list.end());
    if (final_len >= 0) s.final_len = {final_len};
    world.run_step(s);
    std::vector<int32_t> got_misses, got_window;
    for (int32_t i = 6; i < 12; ++i) {  // of the second query, which sees all
      const PlanEntry entry = world.plan[static_cast<size_t>(i)];
      (entry.source == static_cast<int32_t>(Source::kMiss) ? got_misses : got_window).push_back(entry.index);
      EXPECT_EQ(read_row(world.selection(0), i), world.row(1, 0, entry.index)) << final_len;
    }
    EXPECT_EQ(got_misses, misses) << final_len;
    EXPECT_EQ(got_window, window) << final_len;
    EXPECT_EQ(std::count(world.slot_of_token.begin(), world.slot_of_token.end(), -1), 1024 - std::ssize(misses))
        << "only final rows are pooled";
  }
}

TEST_P(Operators, PlanDoesNotTrustASlotOutsideThePool) {
  OpWorld world(geometry(2), ops());
  world.begin_step(step(30, 29, {7, 8}));
  world.slot_of_token[512 + 7] = 64;
  world.slot_of_token[512 + 8] = -5;
  run(world, "plan");
  EXPECT_EQ(flat(world.plan), (std::vector<int32_t>{2, 7, 2, 8}));
}

TEST_P(Operators, ServeReadsAFinalRowFromTheWindowUntilItIsSpilled) {
  for (int32_t spilled_len : {26, 27}) {
    OpWorld world(geometry(1), ops());
    world.begin_step(step(30, spilled_len, {26}));
    // The store's copy is damaged, so that what was read shows where it was read.
    run(world, "spill"), run(world, "plan");
    const int64_t record = int64_t{world.block_table[32 + 1]} * 16 + 10;
    write_row(world.store().planes(0, 0), record, std::vector<std::byte>(24, std::byte{0x77}));
    run(world, "serve");
    const bool from_store = spilled_len == 27;
    EXPECT_EQ(world.fetched_rows[1], from_store ? 1 : 0);
    EXPECT_EQ(read_row(world.selection(0), 0),
              from_store ? std::vector<std::byte>(24, std::byte{0x77}) : world.row(1, 0, 26));
    EXPECT_EQ(world.status[1], 0);
  }
}

TEST_P(Operators, ServeRefusesAnUnspilledRowThatTheWindowHasLost) {
  for (int32_t position : {21, 22}) {  // the ring holds 22 to 29
    OpWorld world(geometry(1), ops());
    world.run_step(step(30, 20, {position}));
    const bool lost = position == 21;
    EXPECT_EQ(world.status[1], lost ? word(RequestStatus::kRowNotDurable) : 0);
    EXPECT_EQ(read_row(world.selection(0), 0), lost ? std::vector<std::byte>(24) : world.row(1, 0, 22));
    EXPECT_EQ(world.locations[0].place, lost ? Place::kNone : Place::kSelection);
    EXPECT_EQ(world.token_of_slot[64 + position % 4 * 16], lost ? -1 : 22) << "a failed request installs nothing";
  }
}

TEST_P(Operators, ServeZeroesDamagedPlanEntriesAndFailsTheRequest) {
  const PlanEntry damaged[] = {{1, 64}, {1, -1}, {2, 512}, {2, -1}, {3, -1}, {3, 30}, {9, 3}};
  for (const PlanEntry& entry : damaged) {
    OpWorld world(geometry(1), ops());
    world.begin_step(step(30, 1000, {3}));
    world.plan[0] = entry;
    run(world, "serve");
    EXPECT_EQ(read_row(world.selection(0), 0), std::vector<std::byte>(24)) << entry.source << " " << entry.index;
    EXPECT_EQ(world.status[1] != 0, entry.source != 9);
    EXPECT_EQ(world.locations[0].place, Place::kNone);
  }
}

TEST_P(Operators, OnlySlotsThatAreValidInTheRequestsGenerationAreHit) {
  for (const auto& [state, is_hit] : {std::pair{7, true}, {-7, false}, {6, false}, {0, false}}) {
    OpWorld world(geometry(8), ops());
    world.begin_step(step(100, 99, std::vector<int32_t>(8, 5)));
    world.generation[1] = 7;
    world.slot_of_token[static_cast<size_t>(512 + 5)] = 16;
    world.token_of_slot[64 + 16] = 5;
    world.slot_state[64 + 16] = state;
    run(world, "plan");
    EXPECT_EQ(world.plan[0].source, static_cast<int32_t>(is_hit ? Source::kHit : Source::kMiss)) << state;
  }
}

TEST_P(Operators, InstallDropsRecordsOutOfRange) {
  OpWorld world(geometry(8), ops());
  world.begin_step(step(100, 99, std::vector<int32_t>(8, 1)));
  world.records = {{0, -1, 0, 0}, {0, 512, 0, 0}, {-1, 4, 0, 0}, {4, 4, 0, 0},
                   {0, 4, 1, 0},  {0, 4, 0, -1},  {0, 4, 0, 8},  {0, 8, 0, 7}};
  world.num_records[0] = 1000;  // no more than there is room for
  run(world, "install");
  EXPECT_EQ(std::count(world.token_of_slot.begin(), world.token_of_slot.end(), -1), 127);
  EXPECT_EQ(world.token_of_slot[64], 8);
  EXPECT_EQ(world.install_counts[3], 1);
}

TEST_P(Operators, InstallTakesTheFirstOfRepeatedMisses) {
  OpWorld world(geometry(4, 2), ops());
  world.begin_step(step(30, 28, {7, 11, 7, -1, 11, 7, -1, -1}));
  run(world, "plan"), run(world, "serve");
  // Every copy of the row is marked; the pool shows which was taken.
  for (int64_t r = 0; r < 8; ++r) {
    write_row(world.selection(0), r, std::vector<std::byte>(24, static_cast<std::byte>(0x10 + r)));
  }
  run(world, "install");
  EXPECT_EQ(read_row(world.pool(0), 64 + 3 * 16), std::vector<std::byte>(24, std::byte{0x10}));
  EXPECT_EQ(read_row(world.pool(0), 64 + 3 * 16 + 1), std::vector<std::byte>(24, std::byte{0x11}));
  EXPECT_EQ(world.cursor[4 + 3], 2);
}

TEST_P(Operators, InstallWrapsWhenASetGetsMoreRowsThanWays) {
  std::vector<int32_t> topk;
  for (int32_t i = 0; i < 18; ++i) topk.push_back(4 * i);
  OpWorld world(geometry(18), ops());
  world.run_step(step(100, 99, topk));
  EXPECT_EQ(world.token_of_slot[64], 64) << "the seventeenth took the first way again";
  EXPECT_EQ(world.token_of_slot[65], 68);
  EXPECT_EQ(world.token_of_slot[66], 8);
  EXPECT_EQ(world.slot_of_token[512 + 0], -1);
  EXPECT_EQ(world.slot_of_token[512 + 64], 0);
  EXPECT_EQ(read_row(world.pool(0), 64), world.row(1, 0, 64));
  EXPECT_EQ(world.cursor[4], 2);
  EXPECT_EQ((std::vector<int64_t>(world.install_counts.begin() + 3, world.install_counts.end())),
            (std::vector<int64_t>{18, 2, 2}));
}

TEST_P(Operators, ARowHitInThisStepCanBeEvictedByIt) {
  std::vector<int32_t> topk(16);
  for (int32_t i = 0; i < 16; ++i) topk[static_cast<size_t>(i)] = 4 * i;
  OpWorld world(geometry(16), ops());
  world.run_step(step(100, 99, topk));
  topk[15] = 64;  // one new row: the cursor stands at way 0, whose row 0 is hit in this very step
  world.run_step(step(101, 100, topk));
  EXPECT_EQ(world.plan[0].source, static_cast<int32_t>(Source::kHit));
  EXPECT_EQ(read_row(world.selection(0), 0), world.row(1, 0, 0));
  EXPECT_EQ(world.slot_of_token[512 + 0], -1);
  EXPECT_EQ(world.token_of_slot[64], 64);
}

TEST_P(Operators, ResetForgetsOneSlotAndLeavesTheOthers) {
  OpWorld world(geometry(4), ops());
  world.run_step(step(30, 29, {1, 2, 3, 4}));
  const auto other_slots = world.slot_of_token;
  world.resets = {0, 0};
  world.num_resets = 1;
  run(world, "reset");
  EXPECT_EQ(world.slot_of_token, other_slots);
  world.resets = {1, -1};
  world.num_resets = 7;  // no more than there are cache slots; numbers that are no slot are left out
  run(world, "reset");
  EXPECT_EQ(std::count(world.slot_of_token.begin(), world.slot_of_token.end(), -1), 1024);
  EXPECT_EQ(std::count(world.token_of_slot.begin(), world.token_of_slot.end(), -1), 128);
  EXPECT_EQ(std::count(world.cursor.begin(), world.cursor.end(), 0), 8);
}

TEST_P(Operators, SpillReadsAChunkOfAPromptFromStaging) {
  OpWorld world(geometry(1), ops());
  world.begin_step(step(30, 29, {3}));
  // Positions 18 to 22 lie in rows 5 to 9 of the source, whose first row is position 17.
  world.spill_first = {18}, world.spill_count = {5}, world.spill_base = {4}, world.spill_origin = {17};
  world.spill_rows = {12};
  run(world, "spill");
  for (int32_t p = 18; p < 23; ++p) {
    const int64_t record = int64_t{world.block_table[static_cast<size_t>(32 + p / 16)]} * 16 + p % 16;
    EXPECT_EQ(read_row(world.store().planes(0, 0), record), read_row(world.window(0), 4 + p - 17)) << p;
  }
  EXPECT_EQ(world.status[1], 0);
}

TEST_P(Operators, SpillThatDoesNotFitFailsItsRequest) {
  OpWorld world(geometry(1), ops());
  world.begin_step(step(30, 29, {3}));
  world.spill_count = {8};  // as many as there is room for
  run(world, "spill");
  EXPECT_EQ(world.status[1], 0);
  world.spill_count = {9};
  run(world, "spill");
  EXPECT_EQ(world.status[1], word(RequestStatus::kSpillFailed));
  world.status[1] = 0;
  world.spill_count = {1}, world.spill_origin = {1000};
  run(world, "spill");
  EXPECT_EQ(world.status[1], word(RequestStatus::kBadPosition));
  world.status[1] = 0;
  world.spill_origin = {0}, world.spill_rows = {0};
  run(world, "spill");
  EXPECT_EQ(world.status[1], word(RequestStatus::kBadPosition));
}

TEST_P(Operators, CostsCountTheRowsThatMove) {
  OpWorld world(geometry(6, 2), ops());
  // 4 and 5 final and spilled, 26 final and not spilled, 29 of this step, the rest nothing.
  world.begin_step(step(30, 26, {4, 5, 4, -1, -1, -1, 26, 29, 4, -1, -1, -1}));
  const auto costs_of = [&](const std::string& name) {
    for (const auto& call : world.calls()) {
      if (call.name.starts_with(name)) return call.type->cost(call.params.data());
    }
    return device::Cost{};
  };
  EXPECT_EQ(costs_of("spill").link_bytes, 4u * 24);  // 22 to 25
  // 12 ids and 5 lookups; 12 entries, 5 records, 3 unique misses, 2 lengths and 2 counts.
  EXPECT_EQ(costs_of("plan").read_bytes, 17u * 4);
  EXPECT_EQ(costs_of("plan").write_bytes, 12u * 8 + 5 * 16 + 7 * 4);
  run(world, "spill"), run(world, "plan");
  EXPECT_EQ(costs_of("serve").link_bytes, 4u * 24);
  EXPECT_EQ(costs_of("serve").read_bytes, 12u * 8 + 2 * 24);
  EXPECT_EQ(costs_of("serve").write_bytes, 12u * (24 + 8));
  run(world, "serve");
  EXPECT_EQ(costs_of("install").read_bytes, 5u * 16 + 3 * 24 + 3 * 8);
  EXPECT_EQ(costs_of("install").write_bytes, 3u * 24 + 3 * 16);
  world.num_resets = 1;
  EXPECT_EQ(costs_of("reset").write_bytes, (512u + 64 + 4) * 4);
}

TEST(Status, TheFirstFailureStays) {
  int32_t word = 0;
  set_status(&word, RequestStatus::kFetchFailed);
  set_status(&word, RequestStatus::kBadPosition);
  EXPECT_EQ(load_status(&word), RequestStatus::kFetchFailed);
}

}  // namespace
}  // namespace tidepool::ops
