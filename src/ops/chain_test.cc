// Reset, spill, plan, serve and install, and gather in their place, over the case lists: cpu against ref, ref against
// the rows themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "op_cases.h"
#include "ops/check.h"

namespace tidepool::ops {
namespace {

using ::tidepool::testing::cpu_ops;
using ::tidepool::testing::differences;
using ::tidepool::testing::op_cases;
using ::tidepool::testing::OpCase;
using ::tidepool::testing::OpSet;
using ::tidepool::testing::OpStep;
using ::tidepool::testing::OpWorld;
using ::tidepool::testing::read_row;

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// Steps both worlds call by call, the operator under test first, and compares all memory after each.
void expect_same(const OpCase& c, const OpSet& under_test) {
  OpWorld got(c.geometry, under_test), want(c.geometry, testing::ref_ops());
  for (size_t step = 0; step < c.steps.size(); ++step) {
    got.begin_step(c.steps[step]);
    want.begin_step(c.steps[step]);
    const auto got_calls = got.calls(), want_calls = want.calls();
    for (size_t i = 0; i < got_calls.size(); ++i) {
      SCOPED_TRACE(c.name + ", step " + std::to_string(step) + ", " + got_calls[i].name);
      got.poison_outputs(got_calls[i]);
      want.poison_outputs(want_calls[i]);
      got.run(got_calls[i]);
      want.run(want_calls[i]);
      ASSERT_EQ(join(differences(got, want)), "");
      ASSERT_EQ(join(got.integrity()), "");
    }
  }
}

TEST(OpChain, CpuEqualsReferenceBitForBitInEveryCase) {
  for (const OpCase& c : op_cases()) expect_same(c, cpu_ops());
  for (const OpCase& c : testing::gather_cases()) expect_same(c, cpu_ops());
}

TEST(OpChain, ParametersOfEveryCasePassTheChecks) {
  for (const OpCase& c : op_cases()) {
    OpWorld world(c.geometry, cpu_ops());
    check_params(world.plan_params());
    check_params(world.reset_params());
    for (int32_t layer = 0; layer < c.geometry.num_layers; ++layer) {
      check_params(world.serve_params(layer));
      check_params(world.install_params(layer, layer == 0));
      check_params(world.spill_params(layer));
      check_chain(world.plan_params(), world.serve_params(layer), world.install_params(layer, layer == 0));
    }
  }
  for (const OpCase& c : testing::gather_cases()) {
    OpWorld world(c.geometry, cpu_ops());
    check_params(world.gather_params(0));
    check_params(world.gather_reset_params(0));
  }
}

// All memory but the final lengths themselves.
TEST(OpChain, NoFinalLengthsMeanThePublishedOnes) {
  for (OpCase c : op_cases()) {
    OpCase given = c;
    for (OpStep& step : c.steps) step.final_len.clear();
    for (OpStep& step : given.steps) {
      step.final_len = step.seq_len;
      for (int32_t& len : step.final_len) len -= c.geometry.q_len;
    }
    for (bool gather : {false, true}) {
      c.geometry.gather = given.geometry.gather = gather;
      OpWorld got(given.geometry, cpu_ops()), want(c.geometry, testing::ref_ops());
      for (size_t step = 0; step < c.steps.size(); ++step) {
        got.run_step(given.steps[step]);
        want.run_step(c.steps[step]);
        want.final_len = got.final_len;
        ASSERT_EQ(join(differences(got, want)), "") << c.name << ", step " << step;
      }
    }
  }
}

// What attention would see: every visible position's own row, zero elsewhere, whatever the pool did.
void expect_served(const OpCase& c, const OpSet& ops, int64_t& rows_seen) {
  OpWorld world(c.geometry, ops);
  const auto& g = c.geometry;
  for (const OpStep& step : c.steps) {
    world.run_step(step);
    for (int32_t b = 0; b < step.num_rows; ++b) {
      const int32_t slot = step.cache_slot[static_cast<size_t>(b)];
      if (slot < 0 || world.status[static_cast<size_t>(slot)] != 0) continue;
      for (int32_t i = 0; i < g.q_len * g.topk; ++i) {
        const int32_t r = b * g.q_len * g.topk + i;
        const int32_t id = step.topk[static_cast<size_t>(r)];
        const int32_t own = step.seq_len[static_cast<size_t>(b)] - (g.q_len - 1 - i / g.topk) - 1;
        const auto& location = world.locations[static_cast<size_t>(r)];
        const bool exists = id >= 0 && id <= own;
        ASSERT_EQ(location.place, exists ? Place::kSelection : Place::kNone) << c.name;
        ASSERT_EQ(location.index, exists ? r : 0) << c.name;
        for (int32_t layer = 0; layer < g.num_layers; ++layer) {
          auto want = world.row(slot, layer, std::max(id, 0));
          if (!exists) std::fill(want.begin(), want.end(), std::byte{0});
          ASSERT_EQ(read_row(world.selection(layer), r), want) << c.name << ", entry " << r << ", layer " << layer;
        }
        ++rows_seen;
      }
    }
  }
}

TEST(OpChain, ServedRowsAreTheSelectedPositionsWhateverThePoolHolds) {
  int64_t rows_seen = 0;
  for (const OpCase& c : op_cases()) {
    expect_served(c, testing::ref_ops(), rows_seen);
    expect_served(c, cpu_ops(), rows_seen);
  }
  EXPECT_GT(rows_seen, 10'000);
}

// After a step every pool row of every layer is the row that the metadata names.
TEST(OpChain, PoolRowsOfEveryLayerAreTheTokensOfTheirSlots) {
  int64_t pooled = 0;
  for (const OpCase& c : op_cases()) {
    OpWorld world(c.geometry, cpu_ops());
    const int32_t pool_size = world.state().pool_size();
    for (const OpStep& step : c.steps) {
      world.run_step(step);
      for (int32_t slot = 0; slot < c.geometry.num_cache_slots; ++slot) {
        if (world.status[static_cast<size_t>(slot)] != 0) continue;
        for (int32_t at = 0; at < pool_size; ++at) {
          const int32_t token = world.token_of_slot[static_cast<size_t>(slot * pool_size + at)];
          if (token < 0) continue;
          ++pooled;
          for (int32_t layer = 0; layer < c.geometry.num_layers; ++layer) {
            ASSERT_EQ(read_row(world.pool(layer), slot * pool_size + at), world.row(slot, layer, token)) << c.name;
          }
        }
      }
    }
  }
  EXPECT_GT(pooled, 1000);
}

TEST(OpChain, TheCaseListReachesEverySourceEveryStatusAndEveryCounter) {
  int64_t sources[6] = {}, statuses[5] = {}, hit = 0, unspilled = 0, evicted = 0, wraps = 0, fetched = 0;
  for (const OpCase& c : op_cases()) {
    OpWorld world(c.geometry, cpu_ops());
    for (const OpStep& step : c.steps) {
      world.run_step(step);
      for (const PlanEntry& entry : world.plan) {
        if (entry.source >= 0 && entry.source < 6) ++sources[entry.source];
      }
      for (int32_t word : world.status) ++statuses[word];
    }
    for (size_t slot = 0; slot < world.status.size(); ++slot) {
      hit += world.plan_counts[4 * slot];
      unspilled += world.plan_counts[4 * slot + 3];
      evicted += world.install_counts[3 * slot + 1];
      wraps += world.install_counts[3 * slot + 2];
      fetched += world.fetched_rows[slot];
    }
  }
  for (int64_t count : sources) EXPECT_GT(count, 0);
  EXPECT_GT(statuses[static_cast<int32_t>(RequestStatus::kSpillFailed)], 0);
  EXPECT_GT(statuses[static_cast<int32_t>(RequestStatus::kBadPosition)], 0);
  EXPECT_GT(statuses[static_cast<int32_t>(RequestStatus::kRowNotDurable)], 0);
  for (int64_t count : {hit, unspilled, evicted, wraps, fetched}) EXPECT_GT(count, 0);
}

TEST(OpChain, ADifferenceInOneByteIsSeenByTheComparison) {
  const OpCase c = op_cases().front();
  OpWorld got(c.geometry, cpu_ops()), want(c.geometry, testing::ref_ops());
  for (size_t i = 0; i < got.regions().size(); ++i) {
    const auto region = got.regions()[i];
    if (region.workspace || region.bytes == 0) continue;
    region.base[region.bytes / 2] ^= std::byte{1};
    EXPECT_EQ(differences(got, want).size(), 1u) << region.name;
    region.base[region.bytes / 2] ^= std::byte{1};
  }
  EXPECT_EQ(join(differences(got, want)), "");
}

}  // namespace
}  // namespace tidepool::ops
