// Moving the memory of operations: what is a pointer, and what cannot be proved.
#include "graph/relocate.h"

#include <gtest/gtest.h>

#include <cstring>

#include "graph/buffer_plan.h"
#include "graph/test_world.h"

namespace tidepool::graph {
namespace {

using testing::contains;
using testing::Step;
using testing::World;

// Declares what a function says of its words.
struct WordParams {
  uint64_t word[4];
};
int32_t one_piece(const WordParams&) { return 1; }
void no_run(const WordParams&, int32_t, int32_t) {}
device::Cost no_cost(const WordParams&) { return {}; }
const void* address(uint64_t word) { return reinterpret_cast<const void*>(word); }

template <void (*Declare)(const WordParams&, device::AccessList&)>
constexpr device::OpType kType =
    device::make_op_type<WordParams, one_piece, no_run, Declare, no_cost>("words", device::Part::kOther);

std::vector<std::byte> bytes_of(const WordParams& p) {
  std::vector<std::byte> bytes(sizeof(p));
  std::memcpy(bytes.data(), &p, sizeof(p));
  return bytes;
}
WordParams params_of(const std::vector<std::byte>& bytes) {
  WordParams p;
  std::memcpy(&p, bytes.data(), sizeof(p));
  return p;
}

constexpr uint64_t kBase = 0x10000;
const std::vector<Move> kMoves = {{{kBase, kBase + 64}, 1000}, {{kBase + 64, kBase + 128}, uint64_t(-64)}};

void declare_plain(const WordParams& p, device::AccessList& list) {
  list.read(address(p.word[0]), 8);
  list.write(address(p.word[1] + 16), 8);
  list.read(address(p.word[0] + 32), 16);
  list.read(address(kBase + 200), 8);
}
TEST(Relocate, PointersAreFoundAndWhatOnlyLooksLikeOneStays) {
  auto params = bytes_of({{kBase, kBase + 64, kBase + 8, 7}});  // the third is not used
  EXPECT_EQ(relocate(kType<declare_plain>, params, kMoves), "");
  const WordParams moved = params_of(params);
  EXPECT_EQ(moved.word[0], kBase + 1000);
  EXPECT_EQ(moved.word[1], kBase);
  EXPECT_EQ(moved.word[2], kBase + 8);
  EXPECT_EQ(moved.word[3], 7u);
}

void declare_length(const WordParams& p, device::AccessList& list) {
  list.read(address(p.word[0]), 8);
  list.write(address(kBase + 500), p.word[1] % 1024);
}
void declare_fixed(const WordParams& p, device::AccessList& list) {
  list.read(address(p.word[0]), 8);
  list.write(address(kBase + 40), 8);
}
void declare_beyond(const WordParams& p, device::AccessList& list) { list.read(address(p.word[0]), 80); }
TEST(Relocate, WhatCannotBeProvedIsRefusedAndChangesNothing) {
  const WordParams before{{kBase, kBase + 8, 0, 0}};
  const auto refusal = [&](const device::OpType& type) {
    auto params = bytes_of(before);
    const std::string reason = relocate(type, params, kMoves);
    EXPECT_EQ(params, bytes_of(before));
    return reason;
  };
  EXPECT_TRUE(contains(refusal(kType<declare_length>), "the word at byte 8 of its parameters is not a plain pointer"));
  EXPECT_TRUE(contains(refusal(kType<declare_fixed>), "what it declares does not follow the pointers"));
  EXPECT_TRUE(contains(refusal(kType<declare_beyond>), "the word at byte 0"));
}

// Storages that live in [first, last].
Storage storage(uint64_t bytes, NodeId first, NodeId last, uint64_t home = 0, bool at_home = false) {
  Storage s;
  s.range = {home, home + bytes};
  s.first = first;
  s.last = last;
  s.at_home = at_home;
  return s;
}

TEST(BufferPlan, StoragesOfOneTimeAreApartAndOthersShare) {
  const std::vector<Storage> all = {storage(64, 0, 1), storage(128, 1, 2), storage(10, 2, 3), storage(64, 3, 4)};
  const auto places = place_storages(all, {1024, 1024 + 192});
  ASSERT_TRUE(places.has_value());
  EXPECT_EQ(*places, (std::vector<uint64_t>{1024 + 128, 1024, 1024 + 128, 1024}));
  EXPECT_FALSE(place_storages(all, {1024, 1024 + 128}).has_value());
}

TEST(BufferPlan, OthersGoAroundWhatIsAtHome) {
  const auto places = place_storages({storage(64, 0, 9, 64, true), storage(64, 0, 1), storage(128, 5, 6)}, {0, 256});
  ASSERT_TRUE(places.has_value());
  EXPECT_EQ(*places, (std::vector<uint64_t>{64, 0, 128}));
}

class BufferReuse : public ::testing::Test {
 protected:
  Graph reused(const Step& step, PassReport* report = nullptr) {
    Graph graph = step.graph();
    write_in_place(graph);
    assign_streams(graph);
    const PassReport r = reuse_buffers(graph, &w.activations);
    if (report != nullptr) *report = r;
    place_events(graph);
    verify(graph);
    return graph;
  }
  void same_results(const Step& step, const Graph& graph) {
    const CompiledStep compiled = emit(graph, {});
    w.fill(5);
    testing::run_in_order(step.list, w, 2);
    const auto expected = w.kept();
    w.fill(5);
    w.poison({});
    testing::replay(compiled.list(), w, 2, 1);
    EXPECT_EQ(w.kept(), expected);
  }
  World w;
};

TEST_F(BufferReuse, ValuesThatDoNotLiveTogetherShareBytes) {
  uint64_t *a = w.activation("a", 8), *b = w.activation("b", 8), *c = w.activation("c", 8), *d = w.activation("d", 8);
  uint64_t* out = w.device("out", 8);
  Step step(w);
  step.main("1").writes(a, 8);
  step.main("2").reads(a, 8).writes(b, 8);
  step.main("3").reads(b, 8).writes(c, 8);
  step.main("4").changes(c, 8).writes(d, 4, 4);
  step.main("5").reads(c, 8).reads(d, 4, 4).writes(out, 8);
  PassReport report;
  const Graph graph = reused(step, &report);
  EXPECT_EQ(report.summary, "4 buffers (0 at home) in 128 B instead of 256 B");
  same_results(step, graph);
}

TEST_F(BufferReuse, WhatOtherStreamsOrAsynchronousOperationsUseStaysAlone) {
  uint64_t *a = w.activation("a", 8), *b = w.activation("b", 8), *c = w.activation("c", 8);
  uint64_t *pool = w.device("pool", 8), *out = w.device("out", 8);
  device::Event done;
  Step step(w);
  step.main("1").writes(a, 8);
  step.side("install").reads(a, 8).writes(pool, 8);
  step.main("2").writes(b, 8).async(done);
  step.main("3").reads(b, 8).writes(c, 8);
  step.main("4").reads(c, 8).writes(out, 8);
  PassReport report;
  const Graph graph = reused(step, &report);
  EXPECT_EQ(report.summary, "3 buffers (2 at home) in 192 B instead of 192 B");
  same_results(step, graph);
}

uint64_t* indirect = nullptr;  // not among the parameters
void declare_indirect(const WordParams&, device::AccessList& list) { list.read(indirect, 64); }

TEST_F(BufferReuse, AnOperationThatCannotBeMovedKeepsItsValuesAtHome) {
  uint64_t *pad = w.activation("pad", 8), *a = w.activation("a", 8), *b = w.activation("b", 8);
  uint64_t* out = w.device("out", 8);
  indirect = a;
  Step step(w);
  step.main("1").writes(pad, 8);
  step.main("2").reads(pad, 8).writes(out, 8);
  step.main("3").writes(a, 8);
  const WordParams nothing{};
  step.list.append_operation(device::kMainStream, kType<declare_indirect>, &nothing, nullptr);
  step.main("4").reads(a, 8).writes(b, 8);
  step.main("5").reads(b, 8).writes(out, 8);
  PassReport report;
  const Graph graph = reused(step, &report);
  ASSERT_EQ(report.refused.size(), 1u);
  EXPECT_EQ(report.refused[0],
            "buffer-reuse: 'words' (operation 3) keeps its activations where they are: what it declares does not "
            "follow the pointers in its parameters");
  EXPECT_EQ(report.summary, "3 buffers (1 at home) in 128 B instead of 192 B");
  same_results(step, graph);
}

TEST(BufferReuseOfProtectedMemory, NothingMoves) {
  device::Arena protected_memory("activations", 4096, device::Guard::kProtected);
  auto* a = protected_memory.allocate_array<uint64_t>(8, "a");
  auto* b = protected_memory.allocate_array<uint64_t>(8, "b");
  World w;
  Step step(w);
  step.main("1").writes(a, 8);
  step.main("2").reads(a, 8);
  step.main("3").writes(b, 8);
  step.main("4").reads(b, 8);
  CompileOptions options = w.options();
  options.activations = &protected_memory;
  const CompiledStep compiled = compile(step.list, options);
  EXPECT_EQ(compiled.report().activation_bytes_after, 128u);
  EXPECT_TRUE(contains(compiled.report().text(), "protected allocation by allocation"));
}

}  // namespace
}  // namespace tidepool::graph
