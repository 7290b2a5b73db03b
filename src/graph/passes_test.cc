// Each pass alone.
#include "graph/passes.h"

#include <gtest/gtest.h>

#include "graph/test_world.h"

namespace tidepool::graph {
namespace {

using testing::contains;
using testing::sentence_of;
using testing::Step;
using testing::waits_of;
using testing::World;

std::string names_of(const Graph& graph) {
  std::string out;
  for (const Node& node : graph.nodes) {
    if (!out.empty()) out += " ";
    out += node.type->name;
  }
  return out;
}

// The place of an operation among the nodes.
NodeId node_of(const Graph& graph, const std::string& name) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].kind == Node::Kind::kOperation && graph.nodes[i].type->name == name)
      return static_cast<NodeId>(i);
  }
  return kNone;
}

TEST(DeadCode, OnlyOperationsThatWriteUnreadActivationsGo) {
  World w;
  uint64_t *x = w.activation("x", 8), *y = w.activation("y", 8), *pool = w.device("pool", 8), *host = w.host_array(8);
  Step step(w);
  step.main("feeds the dead").writes(x, 8);
  step.main("dead").reads(x, 8).writes(y, 8);
  step.main("alive").writes(y, 8);
  step.main("pool").reads(y, 8).writes(pool, 8);
  step.main("host").writes(host, 8);
  step.main("status only").reads(pool, 8);  // may set a status word
  step.main("dead end").writes(x, 8);
  Graph graph = step.graph();
  const PassReport report = remove_dead_code(graph);
  write_in_place(graph);
  EXPECT_EQ(names_of(graph), "alive pool host status only");
  EXPECT_EQ(report.summary, "3 of 7 operations removed");
}

TEST(DeadCode, ACarriedActivationKeepsItsWriter) {
  World w;
  uint64_t *x = w.activation("x", 8), *out = w.device("out", 8);
  Step step(w);
  step.main("use").reads(x, 8).writes(out, 8);
  step.main("write").writes(x, 8);  // for the next step
  Graph graph = step.graph();
  EXPECT_EQ(remove_dead_code(graph).summary, "0 of 2 operations removed");
}

TEST(InPlace, EveryCloneOfARecordedStepGoes) {
  World w;
  uint64_t *pool = w.device("pool of layer 3", 8), *x = w.activation("x", 8);
  Step step(w);
  step.main("serve").reads(pool, 8).writes(x, 8);
  step.main("change").changes(x, 8);
  step.side("install").writes(pool, 8);
  step.main("look").reads(pool, 8).reads(x, 8);
  Graph graph = step.graph();
  EXPECT_EQ(graph.clone_bytes(), 128u);
  const PassReport report = write_in_place(graph);
  EXPECT_EQ(report.summary, "2 of 2 clones removed, 128 B of 128 B no longer copied");
  EXPECT_TRUE(report.refused.empty());
  EXPECT_EQ(names_of(graph), "serve change install look");
  verify(graph);
}

// As a pass would leave it that lets `reader` take an older version: the one before the last change.
void read_older_version(Graph& graph, const std::string& reader, const std::string& object) {
  for (Use& use : graph.nodes[static_cast<size_t>(node_of(graph, reader))].uses) {
    if (graph.objects[static_cast<size_t>(use.object)].name != object) continue;
    const ValueId last = use.in;
    for (size_t v = 0; v < graph.values.size(); ++v) {
      const Value& value = graph.values[v];
      if (value.object == use.object && !value.copy &&
          value.version + 1 == graph.values[static_cast<size_t>(last)].version)
        use.in = static_cast<ValueId>(v);
    }
  }
}

TEST(InPlace, AVersionThatIsReadLaterRefusesTheRewritingByName) {
  World w;
  uint64_t *pool = w.device("pool of layer 3", 8), *out = w.device("out", 8);
  Step step(w);
  step.side("install").writes(pool, 8);
  step.main("serve").reads(pool, 8).writes(out, 8);
  Graph graph = step.graph();
  read_older_version(graph, "serve", "pool of layer 3");
  EXPECT_TRUE(contains(sentence_of([&] { write_in_place(graph); }),
                       "in-place: 'install' (operation 0) cannot write 'pool of layer 3' in place: version 0 is read "
                       "later by 'serve' (operation 1)"));
}

TEST(InPlace, AVersionThatIsChangedTwiceOrIsTheResultIsRefused) {
  World w;
  uint64_t* pool = w.device("pool", 8);
  Step step(w);
  step.main("first").writes(pool, 8);
  step.main("second").writes(pool, 8);
  Graph twice = step.graph();
  for (Node& node : twice.nodes) {  // the clone of the second takes what the first took
    if (node.kind == Node::Kind::kClone) node.uses[0].in = 0;
  }
  EXPECT_TRUE(contains(sentence_of([&] { write_in_place(twice); }),
                       "'first' (operation 0) cannot write 'pool' in place: version 0 is copied later by the clone for "
                       "'second' (operation 1)"));
  Graph old = step.graph();
  old.results[0] = 0;
  EXPECT_TRUE(contains(sentence_of([&] { write_in_place(old); }), "version 0 is what the step must leave there"));
}

TEST(InPlace, AnObjectUnderTwoNamesIsRefused) {
  World w;
  uint64_t *pool = w.device("pool", 8), *other = w.device("other", 8);
  Step step(w);
  step.main("install").writes(pool, 8);
  step.main("reset").writes(other, 8);
  Graph graph = step.graph();
  graph.objects[1].range.begin -= 8;
  EXPECT_TRUE(contains(sentence_of([&] { write_in_place(graph); }),
                       "'install' (operation 0) cannot write 'pool' in place: 'other' shares bytes with it"));
}

TEST(Verify, AnOverwrittenVersionIsNamed) {
  World w;
  uint64_t *pool = w.device("pool", 8), *out = w.device("out", 8);
  Step step(w);
  step.main("install").writes(pool, 8);
  step.main("serve").reads(pool, 8).writes(out, 8);
  Graph graph = step.graph();
  write_in_place(graph);
  verify(graph);
  read_older_version(graph, "serve", "pool");
  EXPECT_TRUE(contains(sentence_of([&] { verify(graph); }), "'serve' (operation 1) takes version 0 of 'pool'"));
  graph.results[0] = 0;
  EXPECT_TRUE(contains(sentence_of([&] { verify(graph); }), "overwritten by then"));
}

TEST(InPlace, ARefusedActivationIsCopiedAndTheOldVersionStaysReadable) {
  World w;
  uint64_t *x = w.activation("x", 8), *y = w.activation("y", 8), *out = w.device("out", 8), *both = w.device("both", 8);
  Step step(w);
  step.main("make").writes(x, 8);
  step.main("change").reads(x, 4).writes(x, 4);
  step.main("new").reads(x, 8).writes(out, 8);
  step.main("old").reads(x, 8).writes(both, 8);
  step.main("room").writes(y, 8);
  step.main("room again").reads(y, 8);
  // What must come out: `old` takes x as `make` made it.
  w.fill(1);
  uint64_t expected[16];
  {
    Step plain(w);
    const size_t before = w.runs.size();
    plain.main("make").writes(x, 8);
    plain.main("skip");
    plain.main("skip");
    plain.main("old").reads(x, 8).writes(both, 8);
    const auto renumber = [&](const device::OpList& list) {  // results depend on the number of the operation
      device::OpList same;
      for (device::OpListReader reader(list); reader.next();) {
        testing::MixParams p;
        std::memcpy(&p, reader.params(), sizeof(p));
        p.id -= static_cast<int32_t>(before);
        same.append_operation(reader.entry().stream, *reader.entry().type, &p, nullptr);
      }
      return same;
    };
    testing::run_in_order(renumber(plain.list), w, 1);
    std::memcpy(expected + 8, both, 64);
    testing::run_in_order(step.list, w, 1);
    std::memcpy(expected, out, 64);
  }
  Graph graph = step.graph();
  read_older_version(graph, "old", "x");
  const PassReport report = write_in_place(graph);
  ASSERT_EQ(report.refused.size(), 1u);
  EXPECT_EQ(
      report.refused[0],
      "in-place: 'change' (operation 1) cannot write 'x' in place: version 1 is read later by 'old' (operation 3)");
  EXPECT_EQ(graph.num_clones(), 1);
  assign_streams(graph);
  reuse_buffers(graph, &w.activations);
  place_events(graph);
  verify(graph);
  const CompiledStep compiled = emit(graph, {});
  w.fill(1);
  testing::replay(compiled.list(), w, 1, 3);
  EXPECT_EQ(std::memcmp(expected, out, 64), 0);
  EXPECT_EQ(std::memcmp(expected + 8, both, 64), 0);

  World full;  // without room beside x
  uint64_t *only = full.activation("x", 8), *result = full.device("out", 8);
  Step tight(full);
  tight.main("make").writes(only, 8);
  tight.main("change").changes(only, 8);
  tight.main("old").reads(only, 8).writes(result, 8);
  Graph refused = tight.graph();
  read_older_version(refused, "old", "x");
  write_in_place(refused);
  assign_streams(refused);
  EXPECT_TRUE(contains(sentence_of([&] { reuse_buffers(refused, &full.activations); }), "do not hold 1 copies"));
}

TEST(Streams, PartsChooseThem) {
  World w;
  uint64_t* x = w.device("x", 8);
  Step step(w);
  step.main("plan").reads(x, 8);
  step.side("install").writes(x, 8);
  step.spill("spill").reads(x, 8);
  Graph graph = step.graph();
  for (Node& node : graph.nodes) node.stream = device::kMainStream;
  write_in_place(graph);
  EXPECT_EQ(assign_streams(graph).summary, "1 operations on main, 1 on side, 1 on spill");
  EXPECT_EQ(graph.nodes[1].stream, device::kSideStream);
  EXPECT_EQ(graph.nodes[2].stream, device::kSpillStream);
}

Graph with_events(const Step& step, World& w, std::vector<device::Region> regions = {}) {
  CompileOptions options = w.options();
  options.regions = std::move(regions);
  Graph graph = build(step.list, options);
  write_in_place(graph);
  assign_streams(graph);
  place_events(graph);
  return graph;
}

TEST(Events, ADependencyOnTheStepBeforeIsWaitedForAndAnImpliedOneIsNot) {
  World w;
  uint64_t *pool = w.device("pool", 8), *maps = w.device("maps", 8), *plan = w.device("plan", 8);
  Step step(w);
  step.main("plan").reads(maps, 8).writes(plan, 8);
  step.main("serve").reads(plan, 8).reads(pool, 8);
  step.side("install").reads(plan, 8).writes(pool, 8);
  step.side("commit").reads(plan, 8).writes(maps, 8);
  // plan: the commit of the replay before, and with it the install; serve: nothing more. install: serve, and so plan.
  EXPECT_EQ(waits_of(with_events(step, w)), "plan: commit' | serve | install: serve | commit");
}

TEST(Events, AnAsynchronousOperationIsWaitedForOnItsOwnStreamToo) {
  World w;
  device::Event done;
  uint64_t *selection = w.device("selection", 8), *pool = w.device("pool", 8), *out = w.device("out", 8);
  Step step(w);
  step.main("serve").reads(pool, 8).writes(selection, 8).async(done);
  step.main("unrelated").writes(out, 8);
  step.main("attention").reads(selection, 8);
  step.side("install").reads(selection, 8).writes(pool, 8);
  const Graph graph = with_events(step, w);
  EXPECT_EQ(waits_of(graph), "serve: install' | unrelated | attention: serve | install: serve");
  EXPECT_FALSE(graph.nodes[0].is_waited_for);  // its own event does
  EXPECT_TRUE(graph.nodes[3].is_waited_for);
}

TEST(Events, AnAsynchronousOperationWaitsForItselfInTheReplayBefore) {
  World w;
  device::Event done;
  uint64_t* selection = w.device("selection", 8);
  Step step(w);
  step.main("serve").writes(selection, 8).async(done);
  EXPECT_EQ(waits_of(with_events(step, w)), "serve: serve'");
}

TEST(Events, OfHostOrderedObjectsOnlyWhatOverlapsInTheRecordedStepCounts) {
  World w;
  uint64_t* ring = w.device("window", 8);
  auto& store = w.resources.emplace_back(testing::Resource{5, std::vector<uint64_t>(8)});
  Step step(w);
  step.main("write_row").writes(ring, 1, 3);
  step.spill("spill").reads(ring, 1, 3).resource(store, 3, 1, true);
  step.main("serve").reads(ring, 4).resource(store, 0, 3, false);
  EXPECT_EQ(waits_of(with_events(step, w)), "write_row | spill: write_row | serve: spill");
  const auto begin = reinterpret_cast<uint64_t>(ring);
  EXPECT_EQ(waits_of(with_events(step, w, {{"ring", 0, begin, begin + 64, true}, {"rows", 5, 0, 8, true}})),
            "write_row | spill: write_row | serve");
}

TEST(Events, OperationsThatShareAnEventAreWaitedForByTheLastRecord) {
  World w;
  device::Event done;
  uint64_t *a = w.device("a", 8), *b = w.device("b", 8);
  Step step(w);
  step.main("first").writes(a, 8).async(done);
  step.main("second").writes(b, 8).async(done);
  step.main("use").reads(a, 8);
  step.main("use b").reads(b, 8);
  EXPECT_EQ(waits_of(with_events(step, w)), "first | second | use: second | use b");
}

TEST(Events, AHostRecordWaitsForAllThatItsStreamRanBefore) {
  World w;
  device::Event mark, first_done, second_done;
  uint64_t *a = w.device("a", 8), *b = w.device("b", 8);
  Step step(w);
  step.spill("spill").writes(a, 8).async(first_done);
  step.spill("spill too").writes(b, 8).async(second_done);
  step.spill("advance").reads(a, 8);
  step.list.append_record(device::kSpillStream, mark);
  step.main("later");
  CompileOptions options = w.options();
  options.host_events = {&mark};
  Graph graph = build(step.list, options);
  write_in_place(graph);
  place_events(graph);
  ASSERT_EQ(graph.host_records.size(), 1u);
  EXPECT_EQ(graph.host_records[0].waits, std::vector<NodeId>{1});  // advance has waited for the first
  const CompiledStep compiled = emit(graph, {});
  int marks = 0;
  for (device::OpListReader reader(compiled.list()); reader.next();) {
    marks += reader.entry().kind == device::EntryKind::kRecord && reader.entry().event == &mark;
  }
  EXPECT_EQ(marks, 1);
}

}  // namespace
}  // namespace tidepool::graph
