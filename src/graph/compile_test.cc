// The whole of compile(): what comes out, and that stale activations do not matter.
#include "graph/compile.h"

#include <gtest/gtest.h>

#include "graph/test_world.h"

namespace tidepool::graph {
namespace {

using testing::contains;
using testing::Step;
using testing::World;

// A layer as the cache pushes it: plan, serve, attention, install beside, the new row to the host.
class Layer : public ::testing::Test {
 protected:
  void push(Step& step) {
    step.main("write_row").reads(x, 8).writes(window, 2);
    step.spill("spill").reads(window, 2).resource(store, 0, 2, true).async(spilled);
    step.main("plan").reads(maps, 8).writes(plan, 8).writes(counts, 1);
    step.main("serve").reads(plan, 8).reads(pool, 8).writes(selection, 8).async(served);
    step.main("attention").reads(selection, 8).reads(x, 8).writes(u, 8);
    step.side("install").reads(selection, 8).reads(plan, 8).writes(pool, 8);
    step.side("commit").reads(plan, 8).writes(maps, 8);
    step.main("mlp").reads(u, 8).writes(y, 8);
    step.main("add").reads(y, 8).changes(x, 8);
    step.main("logits").reads(x, 8).writes(logits, 8);
  }
  Step whole() {
    Step step(w);
    step.main("embed").reads(ids, 2).writes(x, 8);
    push(step);
    step.list.append_record(device::kSpillStream, mark);
    return step;
  }
  World w;
  uint64_t *x = w.activation("x", 8), *u = w.activation("u", 8), *y = w.activation("y", 8);
  uint64_t *pool = w.device("pool", 8), *maps = w.device("maps", 8), *plan = w.device("plan", 8);
  uint64_t *window = w.device("window", 8), *selection = w.device("selection", 8);
  uint64_t *ids = w.host_array(2), *counts = w.host_array(1), *logits = w.host_array(8);
  testing::Resource& store = w.resources.emplace_back(testing::Resource{5, std::vector<uint64_t>(8)});
  device::Event served, spilled, mark;
};

TEST_F(Layer, ReplaysGiveWhatTheRecordedStepGivesWhateverTheActivationsHeld) {
  const Step step = whole();
  CompileOptions options = w.options();
  options.host_events = {&mark};
  const CompiledStep compiled = compile(step.list, options);
  const CompileReport& report = compiled.report();
  EXPECT_EQ(report.operations_before, 11);
  EXPECT_EQ(report.operations_after, 11);
  EXPECT_EQ(report.clones_before, 9);  // of what is changed; x by add
  EXPECT_EQ(report.clone_bytes_after, 0u);
  EXPECT_EQ(report.activation_bytes_before, 192u);
  EXPECT_EQ(report.activation_bytes_after, 192u);  // x lives beside both others, and they meet in mlp
  w.fill(1);
  testing::run_in_order(step.list, w, 4);
  const auto expected = w.kept();
  for (uint64_t seed = 0; seed < 20; ++seed) {
    w.fill(1);
    w.poison({});
    testing::replay(compiled.list(), w, 4, seed);
    EXPECT_EQ(w.kept(), expected);
  }
  EXPECT_EQ(mark.completed(), 20u * 4);
}

TEST_F(Layer, ACompiledStepMayBeMoved) {
  const Step step = whole();
  w.fill(1);
  testing::run_in_order(step.list, w, 2);
  const auto expected = w.kept();
  CompiledStep first = compile(step.list, w.options());
  CompiledStep second = std::move(first);
  first = compile(step.list, w.options());
  second = std::move(first);
  w.fill(1);
  testing::replay(second.list(), w, 2, 1);
  EXPECT_EQ(w.kept(), expected);
}

TEST_F(Layer, TheReportSaysWhatEachPassDid) {
  const Step step = whole();
  const std::string text = compile(step.list, w.options()).report().text();
  for (const char* line :
       {"11 operations became 11, 9 clones of", "\ndead-code: 0 of 11", "\nin-place: 9 of 9 clones",
        "\nstreams: 8 operations on main, 2 on side, 1 on spill\n", "\nbuffer-reuse: 3 buffers", "\nevents: "}) {
    EXPECT_TRUE(contains(text, line)) << text;
  }
}

TEST(Compile, AnEmptyListAndOneWithoutActivationsAreFine) {
  World w;
  const CompiledStep nothing = compile(device::OpList(), {});
  EXPECT_TRUE(nothing.list().empty());
  uint64_t* host = w.host_array(4);
  Step step(w);
  step.main("count").changes(host, 4);
  w.fill(2);
  testing::run_in_order(step.list, w, 3);
  const auto expected = w.kept();
  w.fill(2);
  testing::replay(compile(step.list, {}).list(), w, 3, 1);
  EXPECT_EQ(w.kept(), expected);
}

}  // namespace
}  // namespace tidepool::graph
