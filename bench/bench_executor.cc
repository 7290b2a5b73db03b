// What an operation costs beside its work: pushed, started, split between the threads, ended. 200 operations a step,
// about as many as a decode step of a small model has.
#include <benchmark/benchmark.h>

#include "device/executor.h"

namespace {

using namespace tidepool::device;

constexpr int kOperations = 200;

struct Params {
  int32_t num_pieces;
};

int32_t num_pieces(const Params& p) { return p.num_pieces; }
void run(const Params&, int32_t, int32_t) {}
void declare(const Params&, AccessList&) {}
Cost cost(const Params&) { return {}; }
constexpr OpType kType = make_op_type<Params, num_pieces, run, declare, cost>("empty", Part::kOther);

benchmark::Counter time_each(const benchmark::State& state) {
  return {static_cast<double>(state.iterations()) * kOperations,
          benchmark::Counter::kIsRate | benchmark::Counter::kInvert};
}

// Arguments: threads, pieces of an operation.
void operation(benchmark::State& state) {
  Executor executor({.num_threads = static_cast<int>(state.range(0))});
  const Params params{static_cast<int32_t>(state.range(1))};
  for (auto _ : state) {
    for (int i = 0; i < kOperations; ++i) executor.push(kMainStream, kType, params);
    executor.synchronize(kMainStream);
  }
  state.counters["time_per_operation"] = time_each(state);
}
BENCHMARK(operation)->ArgNames({"threads", "pieces"})->ArgsProduct({{1, 2}, {1, 2, 8, 32}})->UseRealTime();

// The same from a list.
void replayed_operation(benchmark::State& state) {
  Executor executor({.num_threads = static_cast<int>(state.range(0))});
  OpList list;
  executor.begin_capture(list);
  for (int i = 0; i < kOperations; ++i) executor.push(kMainStream, kType, Params{2});
  executor.end_capture();
  for (auto _ : state) {
    executor.replay(list);
    executor.synchronize(kMainStream);
  }
  state.counters["time_per_operation"] = time_each(state);
}
BENCHMARK(replayed_operation)->ArgNames({"threads"})->Arg(1)->Arg(2)->UseRealTime();

// Every main operation hands one to the side stream through an event, as an install behind its serve.
void operation_with_side_work(benchmark::State& state) {
  Executor executor({.num_threads = static_cast<int>(state.range(0))});
  Event event;
  for (auto _ : state) {
    for (int i = 0; i < kOperations; ++i) {
      executor.push(kMainStream, kType, Params{2});
      executor.record(kMainStream, event);
      executor.wait(kSideStream, event);
      executor.push(kSideStream, kType, Params{2});
    }
    executor.synchronize_all();
  }
  state.counters["time_per_pair"] = time_each(state);
}
BENCHMARK(operation_with_side_work)->ArgNames({"threads"})->Arg(1)->Arg(2)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
