// Decode steps of the engine as compiled lists: nothing changes but how they run.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "engine/engine_impl.h"
#include "graph/compile.h"
#include "test_store.h"
#include "tiny_models.h"

namespace tidepool {
namespace {

using Rows = std::vector<std::vector<float>>;

struct Case {
  OffloadRoute route = OffloadRoute::kSelect;
  int32_t num_requests = 1;
  int32_t prompt_len = 60;
  bool host_ordered = true;
  bool delays = false;
  bool protect_memory = false;
  uint64_t seed = 1;
};

class CompiledStep : public ::testing::Test {
 protected:
  EngineOptions options_of(const Case& c) {
    EngineOptions o;
    o.model = test::tiny_model();
    o.route = c.route;
    o.pool_size = 16;
    o.num_threads = 2;
    o.max_model_len = 200;
    o.max_num_batched_tokens = 32;
    o.max_num_seqs = c.num_requests;
    o.record_logits = true;
    o.check_order = true;
    o.protect_memory = c.protect_memory;
    return o;
  }
  RequestOptions request(const Case& c, int32_t index) {
    std::mt19937_64 random(c.seed * 10 + static_cast<uint64_t>(index));
    RequestOptions r;
    for (int32_t i = 0; i < c.prompt_len - 3 * index; ++i) r.prompt.push_back(static_cast<int32_t>(random() % 256));
    r.max_tokens = 30;
    r.ignore_eos = true;
    return r;
  }
  graph::CompileOptions compile_options(EngineImpl& engine, const Case& c) {
    graph::CompileOptions o;
    o.activations = &engine.model().arena();
    o.arenas = {&engine.cache().arena()};
    o.host_events = engine.cache().host_events();
    o.regions = engine.cache().regions();
    for (device::Region& region : o.regions) region.host_ordered &= c.host_ordered;
    return o;
  }

  // Logits of all requests. With `compile`, decode steps of all requests together run as a compiled list, and before
  // each of them the activations are filled with NaN.
  std::vector<Rows> run(const Case& c, bool compile) {
    EngineHooks hooks;
    hooks.schedule = device::Schedule::kRandom;
    hooks.schedule_seed = c.seed;
    std::unique_ptr<ops::RowStore> inner;
    testing::DelayedRowStore* store = nullptr;
    if (c.delays) {
      hooks.decorate_store = [&](std::unique_ptr<ops::RowStore> made) -> std::unique_ptr<ops::RowStore> {
        inner = std::move(made);
        auto decorated = std::make_unique<testing::DelayedRowStore>(*inner, testing::DelayOptions{c.seed, 80, 0, {}});
        store = decorated.get();
        return decorated;
      };
    }
    std::unique_ptr<graph::CompiledStep> step;  // outlives the engine
    EngineImpl engine(options_of(c), hooks);
    if (store != nullptr) engine.executor().add_pump([&] { return store->pump(); });
    for (int32_t i = 0; i < c.num_requests; ++i) engine.submit(request(c, i));
    std::vector<Rows> logits(static_cast<size_t>(c.num_requests));
    device::OpList list;
    replayed_ = 0;
    StepResult result;
    while (engine.has_work()) {
      if (step != nullptr && !c.protect_memory) {
        for (const auto& a : engine.model().arena().allocations()) std::memset(a.base, 0xFF, a.bytes);
      }
      engine.step(result);
      for (auto& out : result.outputs) {
        EXPECT_EQ(out.error, "");
        logits[static_cast<size_t>(out.request)].push_back(std::move(out.logits));
        if (out.finish != FinishReason::kNone) engine.replay_decode_steps(nullptr);  // fewer rows from now on
      }
      const bool all = result.decode_tokens == c.num_requests && result.prefill_tokens == 0;
      replayed_ += all && step != nullptr;
      if (!list.empty() && step == nullptr) {
        step = std::make_unique<graph::CompiledStep>(graph::compile(list, compile_options(engine, c)));
        report_ = step->report();
        for (device::OpListReader reader(step->list()); reader.next();) streams_.push_back(reader.entry());
        engine.replay_decode_steps(&step->list());
      }
      if (all && compile && list.empty()) engine.capture_next_decode_step(&list);
    }
    EXPECT_TRUE(store == nullptr || store->violations().empty());
    return logits;
  }

  void same_logits(const Case& c) {
    const auto expected = run(c, false), compiled = run(c, true);
    EXPECT_GE(replayed_, 15);
    for (size_t r = 0; r < expected.size(); ++r) {
      ASSERT_EQ(expected[r].size(), 30u);
      ASSERT_EQ(compiled[r].size(), 30u);
      for (size_t i = 0; i < expected[r].size(); ++i) {
        ASSERT_EQ(std::memcmp(expected[r][i].data(), compiled[r][i].data(), expected[r][i].size() * sizeof(float)), 0)
            << "request " << r << " token " << i;
      }
    }
  }

  int32_t replayed_ = 0;
  graph::CompileReport report_;
  std::vector<device::Entry> streams_;
};

TEST_F(CompiledStep, GivesTheLogitsOfAnEagerEngineToTheBit) {
  for (OffloadRoute route : {OffloadRoute::kOff, OffloadRoute::kSelect}) {
    for (int32_t requests : {1, 3}) {
      SCOPED_TRACE(std::to_string(requests) + " requests");
      same_logits({.route = route, .num_requests = requests});
    }
  }
}

TEST_F(CompiledStep, AStepRecordedWhileEverythingIsSelectedServesLongerOnes) {
  // Top-k is 8: neither scores nor windows nor the host store matter yet in the recorded step.
  for (uint64_t seed : {1u, 2u, 3u}) same_logits({.prompt_len = 2, .seed = seed});
}

TEST_F(CompiledStep, HoldsWithAStoreThatDelaysAndReordersWhetherOrNotTheHostOrdersSpills) {
  for (bool host_ordered : {false, true}) {
    for (uint64_t seed : {1u, 2u}) {
      same_logits({.num_requests = 3, .host_ordered = host_ordered, .delays = true, .seed = seed});
    }
  }
}

TEST_F(CompiledStep, HoldsInProtectedMemory) { same_logits({.num_requests = 2, .protect_memory = true}); }

TEST_F(CompiledStep, NothingIsClonedInstallsRunBesideAndActivationsShare) {
  run({.num_requests = 3}, true);
  EXPECT_EQ(report_.operations_after, report_.operations_before);
  EXPECT_GT(report_.clones_before, 100);
  EXPECT_EQ(report_.clones_after, 0);
  EXPECT_EQ(report_.clone_bytes_after, 0u);
  EXPECT_LT(report_.activation_bytes_after, report_.activation_bytes_before / 2);
  EXPECT_LT(report_.waits_after, report_.waits_before);
  for (const graph::PassReport& pass : report_.passes) EXPECT_TRUE(pass.refused.empty()) << pass.refused[0];
  int32_t installs = 0;
  for (const device::Entry& entry : streams_) {
    if (entry.kind != device::EntryKind::kOp) continue;
    installs += entry.type->part == device::Part::kInstall;
    EXPECT_EQ(entry.stream == device::kSideStream, entry.type->part == device::Part::kInstall) << entry.type->name;
    EXPECT_EQ(entry.stream == device::kSpillStream, entry.type->part == device::Part::kSpill) << entry.type->name;
  }
  EXPECT_EQ(installs, 8);  // one for each layer
}

TEST_F(CompiledStep, APassThatCannotBeCompiledFailsEachTimeAndNeverRunsInAnotherMode) {
  for (const ExecMode mode : {ExecMode::kCapture, ExecMode::kCompile}) {
    EngineOptions options = options_of({});
    options.exec = mode;
    options.dump_graph = "/dev/null/pictures";  // no folder can be made there
    EngineImpl engine(options);
    EXPECT_TRUE(engine.submit(request({}, 0)).admitted);
    StepResult result;
    for (int chunk = 0; chunk < 2; ++chunk) engine.step(result);  // 60 tokens, 32 at a time
    EXPECT_EQ(result.outputs.size(), 1u);
    for (int again = 0; again < 3; ++again) {
      if (mode == ExecMode::kCompile) {
        EXPECT_THROW(engine.step(result), Error);
      } else {
        EXPECT_NO_THROW(engine.step(result));
      }
    }
  }
}

}  // namespace
}  // namespace tidepool
