// gather on the executor's streams: spill on the side stream, a store that delays and reorders, random schedules, order
// checks on. Every step ends as the reference, run alone, ends it.
#include <gtest/gtest.h>

#include <algorithm>

#include "device/executor.h"
#include "op_cases.h"
#include "tidepool/error.h"

namespace tidepool::testing {
namespace {

using device::Event;
using device::Executor;
using device::kMainStream;
using device::kSideStream;

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

struct StreamEvents {
  Event spilled[4], gathered[4];
};

enum class LeaveOut { kNothing, kSpillBeforeFetch, kGatherBeforeGather };

void push_step(Executor& executor, OpWorld& world, ops::RowStore& store, StreamEvents& events, const OpSet& ops,
               LeaveOut leave_out = LeaveOut::kNothing) {
  const int32_t last = world.geometry().num_layers - 1;
  // One workspace serves all layers, so each spill and each gather waits for the one before.
  executor.wait(kSideStream, events.spilled[last]);
  executor.wait(kSideStream, events.gathered[last]);
  for (int32_t layer = 0; layer < world.geometry().num_layers; ++layer) {
    executor.push(kMainStream, ops.gather_reset, world.gather_reset_params(layer));
    auto spill = world.spill_params(layer);
    spill.store = &store;
    spill.done = &events.spilled[layer];
    if (layer > 0) executor.wait(kSideStream, events.spilled[layer - 1]);
    executor.push_async(kSideStream, ops.spill, spill, events.spilled[layer]);
  }
  for (int32_t layer = 0; layer < world.geometry().num_layers; ++layer) {
    auto gather = world.gather_params(layer);
    gather.store = &store;
    gather.done = &events.gathered[layer];
    if (leave_out != LeaveOut::kSpillBeforeFetch) executor.wait(kMainStream, events.spilled[layer]);
    executor.push_async(kMainStream, ops.gather, gather, events.gathered[layer]);
    if (leave_out != LeaveOut::kGatherBeforeGather) executor.wait(kMainStream, events.gathered[layer]);
  }
}

void expect_same_on_streams(const OpCase& c, uint64_t seed, int num_threads, bool own_thread) {
  OpWorld got(c.geometry, cpu_ops()), want(c.geometry, ref_ops());
  DelayedRowStore store(got.store(), {.seed = seed});
  for (int32_t layer = 0; layer < c.geometry.num_layers; ++layer) {
    store.mark_written(0, layer, 0, got.store().num_records());
  }
  StreamEvents events;
  Executor executor(
      {.num_threads = num_threads, .schedule = device::Schedule::kRandom, .seed = seed, .check_order = true});
  if (own_thread) {
    store.start_thread();
  } else {
    executor.add_pump([&] { return store.pump(); });
  }
  for (size_t step = 0; step < c.steps.size(); ++step) {
    got.begin_step(c.steps[step]);
    want.begin_step(c.steps[step]);
    for (const auto& call : got.calls()) got.poison_outputs(call);
    push_step(executor, got, store, events, cpu_ops());
    executor.synchronize_all();
    const auto calls = want.calls();
    for (const auto& call : calls) want.poison_outputs(call);
    for (const auto& call : calls) {
      if (call.name != "reset") want.run(call);  // of the pool, which there is none of
    }
    ASSERT_EQ(join(differences(got, want)), "") << c.name << ", step " << step << ", seed " << seed;
  }
  EXPECT_EQ(join(store.violations()), "") << c.name;
}

TEST(GatherOnStreams, EveryCaseEndsAsTheReferenceWithRandomSchedulesAndADelayedStore) {
  uint64_t seed = 1;
  for (const OpCase& c : gather_cases()) expect_same_on_streams(c, seed++, 1, false);
}

TEST(GatherOnStreams, TwoThreadsAndAStoreWithItsOwnThreadChangeNothing) {
  uint64_t seed = 100;
  for (const OpCase& c : gather_cases()) expect_same_on_streams(c, seed++, 2, true);
}

OpCase case_named(const std::string& name) {
  const auto cases = gather_cases();
  return *std::find_if(cases.begin(), cases.end(), [&](const OpCase& c) { return c.name.starts_with(name); });
}

TEST(GatherOnStreams, AMissingOrderIsRefusedAtThePush) {
  const OpCase c = case_named("gather: three requests with q_len 2");
  const auto refusal = [&](LeaveOut leave_out) -> std::string {
    OpWorld world(c.geometry, cpu_ops());
    DelayedRowStore store(world.store(), {});
    StreamEvents events;
    Executor executor({.check_order = true});
    executor.add_pump([&] { return store.pump(); });
    try {
      world.begin_step(c.steps[0]);
      push_step(executor, world, store, events, cpu_ops(), leave_out);
      push_step(executor, world, store, events, cpu_ops(), leave_out);
      executor.synchronize_all();
    } catch (const Error& error) {
      executor.synchronize_all();
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(LeaveOut::kNothing), "");
  EXPECT_NE(refusal(LeaveOut::kSpillBeforeFetch).find("spill"), std::string::npos);
  EXPECT_NE(refusal(LeaveOut::kGatherBeforeGather).find("gather"), std::string::npos);
}

TEST(GatherOnStreams, AFailedFetchFailsItsRequestAlone) {
  OpGeometry g;
  g.gather = true, g.max_rows = 2, g.num_layers = 1;
  OpStep step;
  step.num_rows = 2;
  step.cache_slot = {0, 1}, step.seq_len = {60, 60}, step.spilled_len = {59, 59};
  for (int32_t i = 0; i < 2 * g.topk; ++i) step.topk.push_back(i % g.topk);
  OpWorld world(g, cpu_ops());
  world.begin_step(step);
  DelayedRowStore store(world.store(), {.fails = [&](const ops::RowTransfer& transfer, bool is_store) {
                          return !is_store && transfer.status == &world.status[1];
                        }});
  store.mark_written(0, 0, 0, world.store().num_records());
  StreamEvents events;
  Executor executor({.check_order = true});
  executor.add_pump([&] { return store.pump(); });
  push_step(executor, world, store, events, cpu_ops());
  executor.synchronize_all();
  EXPECT_EQ(world.status[0], 0);
  EXPECT_EQ(world.status[1], static_cast<int32_t>(ops::RequestStatus::kFetchFailed));
  for (int32_t i = 0; i < g.topk; ++i) EXPECT_EQ(read_row(world.selection(0), i), world.row(0, 0, i));
}

}  // namespace
}  // namespace tidepool::testing
