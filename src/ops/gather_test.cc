// gather: expectations written by hand, and the case list against a model of its own, for reference and cpu alike.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "op_cases.h"
#include "ops/costs.h"

namespace tidepool::ops {
namespace {

using ::tidepool::testing::gather_cases;
using ::tidepool::testing::OpCase;
using ::tidepool::testing::OpGeometry;
using ::tidepool::testing::OpSet;
using ::tidepool::testing::OpStep;
using ::tidepool::testing::OpWorld;
using ::tidepool::testing::read_row;
using ::tidepool::testing::write_row;

using Ids = std::vector<int32_t>;

class Gather : public ::testing::TestWithParam<bool> {
 protected:
  static OpSet ops() { return GetParam() ? testing::cpu_ops() : testing::ref_ops(); }
  static OpGeometry geometry(int32_t topk, int32_t q_len = 1) {
    OpGeometry g;
    g.gather = true, g.topk = topk, g.q_len = q_len, g.num_layers = 1;
    return g;
  }
  // One active row: batch row 0, cache slot 1.
  static OpStep step(int32_t seq_len, int32_t spilled_len, Ids topk) {
    OpStep s;
    s.cache_slot = {1}, s.seq_len = {seq_len}, s.spilled_len = {spilled_len}, s.topk = std::move(topk);
    return s;
  }
  // The status row of query q of cache slot 1.
  static Ids places(const OpWorld& world, int32_t q = 0) {
    const auto& g = world.geometry();
    const auto begin = world.place_status[0].begin() + (g.num_status_queries() + q) * (g.topk + 1);
    return {begin, begin + g.topk + 1};
  }
  // The places that the entries of a list are told, -1 for none.
  static Ids located(const OpWorld& world, int32_t q = 0) {
    const auto& g = world.geometry();
    Ids list;
    for (int32_t i = 0; i < g.topk; ++i) {
      const RowLocation& at = world.locations[static_cast<size_t>(q * g.topk + i)];
      EXPECT_EQ(at.place == Place::kNone, at.index == 0);
      list.push_back(at.place == Place::kNone ? -1 : at.index - (g.num_status_queries() + q) * g.topk);
    }
    return list;
  }
  static std::vector<int64_t> counts(const OpWorld& world) {
    return {world.plan_counts.begin() + 4, world.plan_counts.begin() + 8};
  }
  static int32_t word(RequestStatus status) { return static_cast<int32_t>(status); }
  static std::byte first_byte(OpWorld& world, int32_t place) {
    return read_row(world.selection(0), world.geometry().topk + place)[0];
  }
  // Every row that the status row of cache slot 1 names is the row of its position.
  static void expect_rows(OpWorld& world) {
    const Ids at = places(world);
    for (int32_t place = 0; place < world.geometry().topk; ++place) {
      const int32_t position = at[static_cast<size_t>(place)];
      if (position < 0) continue;
      EXPECT_EQ(read_row(world.selection(0), world.geometry().topk + place), world.row(1, 0, position)) << place;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, Gather, ::testing::Values(false, true),
                         [](const auto& backend) { return backend.param ? "cpu" : "ref"; });

TEST_P(Gather, TheFirstStepFillsThePlacesInListOrder) {
  OpWorld world(geometry(6), ops());
  world.run_step(step(30, 29, {9, -1, 29, 4, 30, -5}));  // 29 is of this step, 30 after it
  EXPECT_EQ(places(world), (Ids{9, 29, 4, -1, -1, -1, 3}));
  EXPECT_EQ(located(world), (Ids{0, -1, 1, 2, -1, -1}));
  EXPECT_EQ(counts(world), (std::vector<int64_t>{0, 2, 1, 0}));
  EXPECT_EQ(world.fetched_rows[1], 2);
  EXPECT_EQ(world.status[1], 0);
  expect_rows(world);
}

TEST_P(Gather, RowsThatStayKeepTheirPlacesAndTheOthersTakeTheLowestFreeOnes) {
  OpWorld world(geometry(6), ops());
  world.run_step(step(30, 29, {1, 2, 3, 4, 5, 6}));
  world.run_step(step(31, 30, {20, 4, 21, 2, 22, 6}));
  EXPECT_EQ(places(world), (Ids{20, 2, 21, 4, 22, 6, 6}));
  EXPECT_EQ(located(world), (Ids{0, 3, 2, 1, 4, 5}));
  EXPECT_EQ(counts(world), (std::vector<int64_t>{3, 9, 0, 0}));
  EXPECT_EQ(world.fetched_rows[1], 9);
  expect_rows(world);
}

TEST_P(Gather, ARowBehindAShorterListIsMovedAndNotReadAgain) {
  OpWorld world(geometry(6), ops());
  world.run_step(step(30, 29, {1, 2, 3, 4, 5, 6}));
  world.run_step(step(31, 30, {6, 2, 7, 5, -1, -1}));
  EXPECT_EQ(places(world), (Ids{6, 2, 7, 5, -1, -1, 4}));
  EXPECT_EQ(located(world), (Ids{0, 1, 2, 3, -1, -1}));
  EXPECT_EQ(counts(world), (std::vector<int64_t>{3, 7, 0, 0}));
  EXPECT_EQ(world.fetched_rows[1], 7);
  expect_rows(world);
  // The last place of a list stays, the one behind it does not.
  world.run_step(step(32, 31, {5, 8, 9, 10, -1, -1}));
  EXPECT_EQ(places(world), (Ids{8, 9, 10, 5, -1, -1, 4}));
  world.run_step(step(33, 32, {5, 8, 9, -1, -1, -1}));
  EXPECT_EQ(places(world), (Ids{8, 9, 5, -1, -1, -1, 3}));
  expect_rows(world);
}

TEST_P(Gather, ARowOfTheStepIsReadAgainUntilItIsFinal) {
  OpWorld world(geometry(4, 2), ops());
  const Ids both{10, 28, 29, -1, 10, 28, 29, -1};
  world.run_step(step(30, 28, both));  // query 0 is at 28
  EXPECT_EQ(places(world, 0), (Ids{10, 28, -1, -1, 2}));
  EXPECT_EQ(places(world, 1), (Ids{10, 28, 29, -1, 3}));
  EXPECT_EQ(counts(world), (std::vector<int64_t>{0, 2, 3, 0}));
  // The draft at 29 was wrong: it is written again, 28 is final now.
  OpStep again = step(31, 28, both);
  again.rewritten = {{1, 29}};
  world.run_step(again);
  EXPECT_EQ(counts(world), (std::vector<int64_t>{4, 2, 5, 0}));
  EXPECT_EQ(read_row(world.selection(0), 1 * 8 + 4 + 2), world.row(1, 0, 29));
  world.run_step(step(32, 28, both));
  EXPECT_EQ(counts(world), (std::vector<int64_t>{10, 2, 5, 0})) << "29 is final and stays";
}

TEST_P(Gather, AFinalLengthFromTheHostDecidesWhatStays) {
  for (const auto& [final_len, hits] : {std::pair{26, 0}, {27, 1}, {28, 2}, {29, 3}}) {
    OpWorld world(geometry(4), ops());
    const Ids list{26, 27, 28, -1};
    world.run_step(step(30, 26, list));
    OpStep next = step(31, 26, list);
    next.final_len = {final_len};
    world.run_step(next);
    EXPECT_EQ(counts(world), (std::vector<int64_t>{hits, 3, 3 - hits, 3})) << final_len;
  }
}

TEST_P(Gather, AFinalRowIsReadFromTheWindowUntilItIsSpilled) {
  for (int32_t spilled_len : {26, 27}) {
    OpWorld world(geometry(1), ops());
    world.begin_step(step(30, spilled_len, {26}));
    const auto calls = world.calls();
    for (const auto& call : calls) {
      // The store's copy is damaged, so that what was read shows where it was read.
      const int64_t record = int64_t{world.block_table[32 + 1]} * 16 + 10;
      if (call.name == "gather 0") {
        write_row(world.store().planes(0, 0), record, std::vector<std::byte>(24, std::byte{0x77}));
      }
      world.run(call);
    }
    const bool from_store = spilled_len == 27;
    EXPECT_EQ(first_byte(world, 0), from_store ? std::byte{0x77} : world.row(1, 0, 26)[0]);
    EXPECT_EQ(world.fetched_rows[1], from_store ? 1 : 0);
    EXPECT_EQ(counts(world), (std::vector<int64_t>{0, 1, 0, from_store ? 0 : 1}));
  }
}

TEST_P(Gather, ARowThatIsNowhereIsZeroedAndNoHitLater) {
  OpWorld world(geometry(4), ops());
  world.run_step(step(30, 20, {21, 22, 20, 3}));  // the ring holds 22 to 29
  EXPECT_EQ(world.status[1], word(RequestStatus::kRowNotDurable));
  EXPECT_EQ(places(world), (Ids{-1, 22, -1, 3, 4}));
  EXPECT_EQ(located(world), (Ids{-1, 1, -1, 3}));
  EXPECT_EQ(read_row(world.selection(0), 4), std::vector<std::byte>(24));
  EXPECT_EQ(counts(world), (std::vector<int64_t>{0, 4, 0, 3}));
  world.run_step(step(31, 30, {3, 20, 21, 22}));  // a failed request goes on like any other
  EXPECT_EQ(places(world), (Ids{20, 22, 21, 3, 4}));
  EXPECT_EQ(counts(world), (std::vector<int64_t>{2, 6, 0, 3}));
}

TEST_P(Gather, AnIdBeyondTheBlockTableIsDroppedAndFailsTheRequest) {
  for (int32_t id : {511, 512, 1 << 30}) {
    OpWorld world(geometry(3), ops());
    world.begin_step(step(1 << 30, 3, {id, 2, -1}));
    world.seq_len[0] = (1 << 30) + 1;
    world.spilled_len[0] = 600;
    for (const auto& call : world.calls()) {
      if (call.name == "gather 0") world.run(call);
    }
    const bool is_there = id == 511;
    EXPECT_EQ(world.status[1], is_there ? 0 : word(RequestStatus::kBadPosition));
    EXPECT_EQ(places(world), is_there ? (Ids{511, 2, -1, 2}) : (Ids{2, -1, -1, 1}));
    EXPECT_EQ(located(world), is_there ? (Ids{0, 1, -1}) : (Ids{-1, 0, -1}));
  }
}

TEST_P(Gather, ResetForgetsOneSlotAndLeavesTheOthers) {
  OpGeometry g = geometry(4, 2);
  g.status_queries = 3;
  OpWorld world(g, ops());
  world.run_step(step(30, 28, {1, 2, 3, 4, 5, 6, 7, 8}));
  const auto reset = [&](Ids slots, int32_t count) {
    world.resets = std::move(slots), world.num_resets = count;
    for (const auto& call : world.calls()) {
      if (call.name == "reset 0") world.run(call);
    }
  };
  const auto before = world.place_status[0];
  reset({0, 0}, 1);
  EXPECT_EQ(world.place_status[0], before);
  reset({1, -1}, 7);  // no more than there are cache slots; numbers that are no slot are left out
  for (int32_t q = 0; q < 3; ++q) EXPECT_EQ(places(world, q), (Ids{-1, -1, -1, -1, 0}));
  world.run_step(step(30, 28, {1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(counts(world), (std::vector<int64_t>{0, 16, 0, 0}));
}

TEST_P(Gather, CostsCountTheRowsThatAreRead) {
  OpWorld world(geometry(6), ops());
  world.run_step(step(30, 27, {1, 2, 3, 4, 5, 6}));
  // 6 is moved, 2 stays, 27 and 30 come from the ring, 7 from the store; 31 is dropped.
  world.begin_step(step(31, 27, {6, 2, 27, 30, 7, 31}));
  const auto cost = cost_gather(world.gather_params(0));
  EXPECT_EQ(cost.link_bytes, 1u * 24);
  EXPECT_EQ(cost.read_bytes, 12u * 4 + 3 * 24);
  EXPECT_EQ(cost.write_bytes, 7u * 4 + 6 * 8 + 4 * 24);
  world.num_resets = 1;
  EXPECT_EQ(cost_gather_reset(world.gather_reset_params(0)).write_bytes, 7u * 4);
}

// --- the case list ---

// What the selection of one (cache slot, query) should be, from what was asked of it so far.
struct Model {
  std::map<int32_t, int32_t> place_of;  // by position
  struct Step {
    Ids place;  // of each list entry, -1: dropped or not there
    Ids status;
    int64_t counts[4] = {}, fetched = 0, moved = 0;
  };

  // `is_there`: a row that has to be read can be. Lists without repeated ids.
  template <typename IsThere>
  Step step(const int32_t* ids, int32_t topk, int32_t end, int32_t final_len, int32_t spilled_len, IsThere is_there) {
    Step result;
    std::map<int32_t, int32_t> next;
    std::set<int32_t> free;
    const auto is_listed = [&](int32_t id) { return id >= 0 && id < end; };
    const auto n = static_cast<int32_t>(std::count_if(ids, ids + topk, is_listed));
    for (int32_t place = 0; place < n; ++place) free.insert(place);
    const auto is_hit = [&](int32_t id) { return id <= std::max(final_len - 1, 0) && place_of.contains(id); };
    for (int32_t i = 0; i < topk; ++i) {
      if (is_listed(ids[i]) && is_hit(ids[i])) free.erase(place_of[ids[i]]);
    }
    result.status.assign(static_cast<size_t>(topk), -1);
    for (int32_t i = 0; i < topk; ++i) {
      result.place.push_back(-1);
      const int32_t id = ids[i];
      if (!is_listed(id)) continue;
      const bool hit = is_hit(id), stays = hit && place_of[id]<n, window = id> std::max(final_len - 1, 0);
      const int32_t place = stays ? place_of[id] : *free.begin();
      free.erase(place);
      ++result.counts[window ? 2 : hit ? 0 : 1];
      result.counts[3] += !hit && !window && id >= spilled_len;
      result.moved += hit && !stays;
      if (!hit && !is_there(id)) continue;
      result.fetched += !hit && !window && id < spilled_len;
      result.place.back() = place;
      result.status[static_cast<size_t>(place)] = id;
      next[id] = place;
    }
    result.status.push_back(n);
    place_of = std::move(next);
    return result;
  }
};

bool has_repeated_ids(const OpCase& c) {
  for (const OpStep& step : c.steps) {
    for (size_t list = 0; list < step.topk.size(); list += static_cast<size_t>(c.geometry.topk)) {
      std::set<int32_t> seen;
      for (int32_t i = 0; i < c.geometry.topk; ++i) {
        const int32_t id = step.topk[list + static_cast<size_t>(i)];
        if (list < static_cast<size_t>(step.num_rows * c.geometry.q_len * c.geometry.topk) && id >= 0 &&
            !seen.insert(id).second) {
          return true;
        }
      }
    }
  }
  return false;
}

struct Reached {
  int64_t counts[4] = {}, fetched = 0, moved = 0, not_there = 0, rows = 0;
};

void expect_as_modelled(const OpCase& c, const OpSet& ops, Reached& reached) {
  const OpGeometry& g = c.geometry;
  OpWorld world(g, ops);
  std::map<std::pair<int32_t, int32_t>, Model> models;
  std::vector<int64_t> counts(world.plan_counts.size()), fetched(world.fetched_rows.size());
  for (const OpStep& step : c.steps) {
    for (int32_t slot : step.resets) {
      for (int32_t q = 0; q < g.q_len; ++q) models[{slot, q}] = {};
    }
    world.run_step(step);
    for (int32_t r = 0; r < step.num_rows * g.q_len; ++r) {
      const auto b = static_cast<size_t>(r / g.q_len);
      const int32_t q = r % g.q_len, slot = step.cache_slot[b], seq_len = step.seq_len[b];
      if (slot < 0) continue;
      const int32_t spilled_len = step.spilled_len[b];
      const int32_t final_len = step.final_len.empty() ? seq_len - g.q_len : step.final_len[b];
      const auto in_store = [&](int32_t id) {
        return world.block_table[static_cast<size_t>(slot * g.max_blocks + id / g.block_size)] >= 0;
      };
      const auto wanted = models[{slot, q}].step(
          step.topk.data() + r * g.topk, g.topk, std::min(seq_len - g.q_len + q + 1, g.max_blocks * g.block_size),
          final_len, spilled_len, [&](int32_t id) {
            const bool from_store = id <= std::max(final_len - 1, 0) && id < spilled_len;
            return from_store ? in_store(id) : id >= seq_len - g.window_rows;
          });
      const int64_t row = slot * g.num_status_queries() + q;
      for (int32_t layer = 0; layer < g.num_layers; ++layer) {
        const auto at = world.place_status[static_cast<size_t>(layer)].begin() + row * (g.topk + 1);
        ASSERT_EQ(Ids(at, at + g.topk + 1), wanted.status) << c.name;
      }
      for (int32_t i = 0; i < g.topk; ++i) {
        const int32_t place = wanted.place[static_cast<size_t>(i)];
        const RowLocation& got = world.locations[static_cast<size_t>(r * g.topk + i)];
        ASSERT_EQ(got.place, place < 0 ? Place::kNone : Place::kSelection) << c.name;
        ASSERT_EQ(got.index, place < 0 ? 0 : row * g.topk + place) << c.name;
        // Rows of a request that has lost some are nobody's.
        for (int32_t layer = 0; layer < g.num_layers && place >= 0 && world.status[static_cast<size_t>(slot)] == 0;
             ++layer, ++reached.rows) {
          ASSERT_EQ(read_row(world.selection(layer), got.index),
                    world.row(slot, layer, step.topk[static_cast<size_t>(r * g.topk + i)]))
              << c.name << ", entry " << i << ", layer " << layer;
        }
      }
      for (size_t kind = 0; kind < 4; ++kind) {
        counts[static_cast<size_t>(slot) * 4 + kind] += wanted.counts[kind];
        reached.counts[kind] += wanted.counts[kind];
      }
      fetched[static_cast<size_t>(slot)] += wanted.fetched * g.num_layers;
      reached.fetched += wanted.fetched, reached.moved += wanted.moved;
      reached.not_there +=
          world.status[static_cast<size_t>(slot)] == static_cast<int32_t>(RequestStatus::kRowNotDurable);
    }
    ASSERT_EQ(world.plan_counts, counts) << c.name;
    ASSERT_EQ(world.fetched_rows, fetched) << c.name;
  }
}

TEST_P(Gather, EveryCaseOfTheListIsAsTheModelHasItAndEveryRowIsTheNewest) {
  Reached reached;
  for (const OpCase& c : gather_cases()) {
    if (!has_repeated_ids(c)) expect_as_modelled(c, ops(), reached);
  }
  for (int64_t count : reached.counts) EXPECT_GT(count, 100);
  EXPECT_GT(reached.fetched, 1000);
  EXPECT_GT(reached.moved, 20);
  EXPECT_GT(reached.not_there, 0);
  EXPECT_GT(reached.rows, 10'000);
}

TEST_P(Gather, RepeatedIdsEachHaveTheRowOfTheirPosition) {
  int64_t rows = 0;
  for (const OpCase& c : gather_cases()) {
    if (!has_repeated_ids(c)) continue;
    OpWorld world(c.geometry, ops());
    for (const OpStep& step : c.steps) {
      world.run_step(step);
      for (int32_t i = 0; i < step.num_rows * c.geometry.q_len * c.geometry.topk; ++i) {
        const auto at = world.locations[static_cast<size_t>(i)];
        const int32_t b = i / (c.geometry.q_len * c.geometry.topk), slot = step.cache_slot[static_cast<size_t>(b)];
        if (at.place == Place::kNone || slot < 0) continue;
        ++rows;
        ASSERT_EQ(read_row(world.selection(0), at.index), world.row(slot, 0, step.topk[static_cast<size_t>(i)]))
            << c.name << ", entry " << i;
      }
    }
  }
  EXPECT_GT(rows, 500);
}

}  // namespace
}  // namespace tidepool::ops
