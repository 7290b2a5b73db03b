// Recorded lists as functional graphs.
#include "graph/build.h"

#include <gtest/gtest.h>

#include "graph/test_world.h"

namespace tidepool::graph {
namespace {

using testing::contains;
using testing::sentence_of;
using testing::Step;
using testing::World;

// "x 1 -> 2": what each operation does with each object, clones left out.
std::string versions_of(const Graph& graph) {
  std::string out;
  for (const Node& node : graph.nodes) {
    if (node.kind == Node::Kind::kClone) continue;
    if (!out.empty()) out += " | ";
    out += node.type->name;
    out += ":";
    for (const Use& use : node.uses) {
      const auto version = [&](ValueId v) { return graph.values[static_cast<size_t>(v)].version; };
      out += " ";
      out += graph.objects[static_cast<size_t>(use.object)].name;
      if (use.in != kNone) out.append(" ").append(std::to_string(version(use.in)));
      if (use.out != kNone) out.append(" -> ").append(std::to_string(version(use.out)));
    }
  }
  return out;
}

TEST(GraphBuild, AChangedObjectHasVersionsInPushOrder) {
  World w;
  uint64_t *pool = w.device("pool", 8), *maps = w.device("maps", 4);
  Step step(w);
  step.main("plan").reads(maps, 4);
  step.main("serve").reads(pool, 8);
  step.side("install").writes(pool, 8).changes(maps, 4);
  step.main("look").reads(pool, 2);
  const Graph graph = step.graph();
  EXPECT_EQ(versions_of(graph), "plan: maps 0 | serve: pool 0 | install: maps 0 -> 1 pool 0 -> 1 | look: pool 1");
  EXPECT_EQ(graph.num_clones(), 2);
  EXPECT_EQ(graph.clone_bytes(), 96u);
}

TEST(GraphBuild, AWriteOfAnActivationThatNobodyReadsOnBeginsAValue) {
  World w;
  uint64_t *x = w.activation("x", 8), *out = w.device("out", 8);
  Step step(w);
  step.main("first").writes(x, 8);
  step.main("use").reads(x, 8).writes(out, 8);
  step.main("second").writes(x, 8);
  step.main("half").writes(x, 4);
  step.main("use again").reads(x, 8).writes(out, 8);
  step.main("in place").changes(x, 8);
  step.main("end").reads(x, 8).writes(out, 8);
  EXPECT_EQ(versions_of(step.graph()),
            "first: x -> 1 | use: x 1 out 0 -> 1 | second: x -> 2 | half: x 2 -> 3 | use again: x 3 out 1 -> 2 | "
            "in place: x 3 -> 4 | end: x 4 out 2 -> 3");
}

TEST(GraphBuild, AnActivationReadBeforeItIsWrittenIsCarried) {
  World w;
  uint64_t *x = w.activation("x", 8), *only_read = w.activation("only read", 8), *out = w.device("out", 8);
  Step step(w);
  step.main("use").reads(x, 8).reads(only_read, 8).writes(out, 8);
  step.main("write").writes(x, 8);
  const Graph graph = step.graph();
  EXPECT_EQ(versions_of(graph), "use: x 0 only read 0 out 0 -> 1 | write: x 0 -> 1");
  for (const Object& object : graph.objects) EXPECT_TRUE(object.carried) << object.name;
}

TEST(GraphBuild, OverlappingHostRangesAndPartsOfAResourceAreOneObject) {
  World w;
  uint64_t *host = w.host_array(8), *other = w.host_array(8);
  auto& store = w.resources.emplace_back(testing::Resource{5, std::vector<uint64_t>(8)});
  Step step(w);
  step.main("a").writes(host, 5).reads(other, 8);
  step.main("b").reads(host, 4, 4).resource(store, 0, 2, true);
  step.main("c").resource(store, 6, 2, false);
  EXPECT_EQ(versions_of(step.graph()),
            "a: host memory 0 0 -> 1 | b: host memory 0 1 resource 5 0 -> 1 | c: resource 5 1");
  EXPECT_EQ(step.graph().nodes[1].constant_bytes, 64u);  // `other`: nobody writes it

  CompileOptions options = w.options();
  const auto begin = reinterpret_cast<uint64_t>(host);
  options.regions = {{"counters", 0, begin, begin + 64}, {"host rows", 5, 0, 100, true}};
  const Graph named = build(step.list, options);
  EXPECT_EQ(versions_of(named), "a: counters 0 -> 1 | b: counters 1 host rows 0 -> 1 | c: host rows 1");
  EXPECT_EQ(named.objects[0].bytes(), 64u);
  EXPECT_TRUE(named.objects[1].host_ordered);
}

TEST(GraphBuild, ListsThatCannotBeUnderstoodAreRefused) {
  World w;
  uint64_t* x = w.device("x", 8);
  device::Event outside, inside;
  Step step(w);
  step.list.append_wait(device::kMainStream, inside);  // of the replay before
  step.main("late").writes(x, 9);
  EXPECT_TRUE(contains(sentence_of([&] { step.graph(); }), "an event that nothing in it completes"));
  step.list.append_record(device::kMainStream, inside);
  EXPECT_TRUE(contains(sentence_of([&] { step.graph(); }), "'late' declares bytes [0, 72) of 'x', which has 64"));
  step.list.append_wait(device::kMainStream, outside);
  EXPECT_TRUE(contains(sentence_of([&] { step.graph(); }), "an event that nothing in it completes"));
}

}  // namespace
}  // namespace tidepool::graph
