// The operators on the executor's streams: install and spill on the side stream, a store that delays and reorders,
// random schedules, order checks on. Every step ends as the reference, run alone, ends it.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "device/executor.h"
#include "op_cases.h"
#include "tidepool/error.h"

namespace tidepool::testing {
namespace {

using device::Event;
using device::Executor;
using device::kMainStream;
using device::kSideStream;

struct StreamEvents {
  Event reset, planned, installed, spilled[4], served[4], ready[4];
};

// Which of the orders that a step needs to leave out, to see that it is missed.
enum class LeaveOut { kNothing, kServeBeforeInstall, kInstallBeforePlan, kSpillBeforeFetch };

void push_step(Executor& executor, OpWorld& world, DelayedRowStore& store, StreamEvents& events, const OpSet& ops,
               LeaveOut leave_out = LeaveOut::kNothing) {
  const int32_t num_layers = world.geometry().num_layers;
  executor.push(kMainStream, ops.reset, world.reset_params());
  executor.record(kMainStream, events.reset);
  for (int32_t layer = 0; layer < num_layers; ++layer) {
    auto spill = world.spill_params(layer);
    spill.store = &store;
    spill.done = &events.spilled[layer];
    // One workspace serves all layers, so each spill waits for the one before.
    if (layer > 0) executor.wait(kSideStream, events.spilled[layer - 1]);
    executor.push_async(kSideStream, ops.spill, spill, events.spilled[layer]);
  }
  if (leave_out != LeaveOut::kInstallBeforePlan) executor.wait(kMainStream, events.installed);
  executor.push(kMainStream, ops.plan, world.plan_params());
  executor.record(kMainStream, events.planned);
  const auto install = [&](int32_t layer) {
    executor.wait(kSideStream, leave_out == LeaveOut::kServeBeforeInstall ? events.planned : events.ready[layer]);
    executor.push(kSideStream, ops.install, world.install_params(layer, layer == 0));
  };
  for (int32_t layer = 0; layer < num_layers; ++layer) {
    auto serve = world.serve_params(layer);
    serve.store = &store;
    serve.done = &events.served[layer];
    if (leave_out != LeaveOut::kSpillBeforeFetch) executor.wait(kMainStream, events.spilled[layer]);
    executor.push_async(kMainStream, ops.serve, serve, events.served[layer]);
    executor.wait(kMainStream, events.served[layer]);
    executor.record(kMainStream, events.ready[layer]);
    if (layer > 0) install(layer);
  }
  install(0);
  executor.record(kSideStream, events.installed);
}

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
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
    auto calls = got.calls();
    for (const auto& call : calls) got.poison_outputs(call);
    push_step(executor, got, store, events, cpu_ops());
    executor.synchronize_all();
    auto reference = want.calls();
    for (const auto& call : reference) want.poison_outputs(call);
    for (const auto& call : reference) want.run(call);
    ASSERT_EQ(join(differences(got, want)), "") << c.name << ", step " << step << ", seed " << seed;
  }
  EXPECT_EQ(join(store.violations()), "") << c.name;
}

TEST(OpsOnStreams, EveryCaseEndsAsTheReferenceWithRandomSchedulesAndADelayedStore) {
  uint64_t seed = 1;
  for (const OpCase& c : op_cases()) expect_same_on_streams(c, seed++, 1, false);
}

TEST(OpsOnStreams, TwoThreadsAndAStoreWithItsOwnThreadChangeNothing) {
  uint64_t seed = 100;
  for (const OpCase& c : op_cases()) expect_same_on_streams(c, seed++, 2, true);
}

// The sentence with which a push is refused when an order is left out; "" when nothing is refused.
std::string refusal(LeaveOut leave_out) {
  const auto cases = op_cases();
  const OpCase& c = *std::find_if(cases.begin(), cases.end(), [](const OpCase& each) {
    return each.name.starts_with("three requests with q_len 2");
  });
  OpWorld world(c.geometry, cpu_ops());
  DelayedRowStore store(world.store(), {});
  StreamEvents events;
  Executor executor({.check_order = true});
  executor.add_pump([&] { return store.pump(); });
  try {
    world.begin_step(c.steps[0]);
    push_step(executor, world, store, events, cpu_ops(), leave_out);
    // A second step behind the first, without the host in between.
    push_step(executor, world, store, events, cpu_ops(), leave_out);
    executor.synchronize_all();
  } catch (const Error& error) {
    executor.synchronize_all();
    return error.what();
  }
  return "";
}

TEST(OpsOnStreams, AMissingOrderIsRefusedAtThePush) {
  EXPECT_EQ(refusal(LeaveOut::kNothing), "");
  const auto names = [](const std::string& sentence, const char* a, const char* b) {
    return sentence.find(a) != std::string::npos && sentence.find(b) != std::string::npos;
  };
  for (const auto& [leave_out, a, b] : {std::tuple{LeaveOut::kServeBeforeInstall, "serve", "install"},
                                        std::tuple{LeaveOut::kInstallBeforePlan, "install", "plan"},
                                        std::tuple{LeaveOut::kSpillBeforeFetch, "spill", "serve"}}) {
    EXPECT_TRUE(names(refusal(leave_out), a, b)) << refusal(leave_out);
  }
}

TEST(OpsOnStreams, AFailedFetchFailsItsRequestAlone) {
  OpGeometry g;
  g.max_rows = 2, g.num_layers = 1;
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
  EXPECT_EQ(world.install_counts[0], g.topk);
  EXPECT_EQ(world.install_counts[3], 0);
  EXPECT_EQ(join(world.integrity()), "");
}

}  // namespace
}  // namespace tidepool::testing
