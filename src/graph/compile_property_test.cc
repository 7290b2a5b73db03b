// Random steps: the compiled list, replayed back to back under random schedules, leaves the memory that the recorded
// one leaves when its operations run one after the other; and the order checker, which knows nothing of graphs, finds
// no two operations that touch the same bytes without an order.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "graph/test_world.h"

namespace tidepool::graph {
namespace {

using testing::Array;
using testing::MixParams;
using testing::Step;
using testing::World;

constexpr int32_t kWords = 8;  // of each array; a half or a quarter of it may be touched

class RandomStep {
 public:
  explicit RandomStep(uint64_t seed) : random_(seed), step_(world_) {
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) activations_.push_back(world_.activation(name, kWords));
    for (const char* name : {"pool", "maps", "window", "plan"}) devices_.push_back(world_.device(name, kWords));
    for (int i = 0; i < 2; ++i) devices_.push_back(world_.host_array(kWords));
    for (uint64_t space : {5u, 6u}) world_.resources.push_back({space, std::vector<uint64_t>(kWords)});
    world_.events.resize(4);
    world_.offsets = {0, 1, 3, 2};
    written_.resize(activations_.size());
    const auto count = 5 + below(25);
    for (int32_t i = 0; i < count; ++i) add();
    step_.list.append_record(device::kMainStream, noise_);
  }

  World& world() { return world_; }
  const device::OpList& list() const { return step_.list; }

 private:
  int32_t below(int32_t n) { return static_cast<int32_t>(random_() % static_cast<uint64_t>(n)); }

  // A part of an object that outlives the step; which one changes from replay to replay.
  Array part(uint64_t* base) {
    const int32_t kind = below(3);
    if (kind == 0) return {base, 0, kWords, 0};
    if (kind == 1) return {base, 0, kWords / 4, kWords / 4};
    return {base, 0, kWords / 2, 1};
  }
  void read_activation(MixParams& p) {
    const int32_t k = below(static_cast<int32_t>(activations_.size()));
    const auto& halves = written_[static_cast<size_t>(k)];
    const bool low = (halves & 1) != 0, high = (halves & 2) != 0;
    if (!low && !high && below(20) != 0) return;  // rarely of what nobody has written
    const int32_t begin = low || !high ? 0 : kWords / 2;
    p.read[p.num_read++] = {activations_[static_cast<size_t>(k)], begin, low && high ? kWords : kWords / 2, 0};
  }
  void write_activation(MixParams& p) {
    const auto k = static_cast<size_t>(below(static_cast<int32_t>(activations_.size())));
    const int32_t halves = below(3) == 0 ? 1 + below(2) : 3;
    written_[k] |= halves;
    p.written[p.num_written++] = {activations_[k], halves == 2 ? kWords / 2 : 0, halves == 3 ? kWords : kWords / 2, 0};
  }

  void add() {
    const int32_t kind = below(8);  // mostly main
    const device::StreamId home = kind < 5   ? device::kMainStream
                                  : kind < 7 ? device::kSideStream
                                             : device::kSpillStream;
    MixParams p;
    p.world = &world_;
    p.id = static_cast<int32_t>(world_.runs.size());
    world_.runs.push_back(0);
    const bool activations = home == device::kMainStream || below(8) == 0;
    for (int32_t i = below(3); i > 0; --i) {
      activations ? read_activation(p) : void(p.read[p.num_read++] = part(any_device()));
    }
    if (below(2) == 0 && p.num_read < testing::kMaxArrays) p.read[p.num_read++] = part(any_device());
    if (activations && below(4) != 0) write_activation(p);
    if (!activations || below(3) == 0) p.written[p.num_written++] = part(any_device());
    if (below(4) == 0) {
      p.resource = &world_.resources[static_cast<size_t>(below(2))];
      p.resource_begin = below(kWords);
      p.resource_count = 1 + below(kWords - p.resource_begin);
      p.resource_written = below(2);
    }
    if (below(4) == 0) p.done = &world_.events[static_cast<size_t>(below(static_cast<int32_t>(world_.events.size())))];
    push(home, p);
  }
  uint64_t* any_device() { return devices_[static_cast<size_t>(below(static_cast<int32_t>(devices_.size())))]; }
  void push(device::StreamId home, const MixParams& p) {
    // The stream of the recording says nothing, its events neither.
    const auto stream = static_cast<device::StreamId>(below(device::kNumStreams));
    const device::OpType& type = home == device::kMainStream   ? testing::mix_type<device::Part::kOther>("main")
                                 : home == device::kSideStream ? testing::mix_type<device::Part::kInstall>("install")
                                                               : testing::mix_type<device::Part::kSpill>("spill");
    step_.list.append_operation(stream, type, &p, p.done);
    if (below(4) == 0) step_.list.append_record(stream, noise_);
    if (below(4) == 0) step_.list.append_wait(stream, noise_);
  }

  std::mt19937_64 random_;
  World world_;
  Step step_;
  std::vector<uint64_t*> activations_, devices_;
  std::vector<int32_t> written_;  // [activations] halves, as bits
  device::Event noise_;
};

// Activations that are read before they are written, and what they hold.
std::vector<std::string> carried_activations(const Graph& graph) {
  std::vector<std::string> names;
  for (const Object& object : graph.objects) {
    if (object.kind == ObjectKind::kActivation && object.carried) names.push_back(object.name);
  }
  return names;
}

std::vector<uint64_t> activation_words(const World& world, const std::vector<std::string>& names) {
  std::vector<uint64_t> words;
  for (const auto& a : world.activations.allocations()) {
    if (std::find(names.begin(), names.end(), a.what) == names.end()) continue;
    const auto* base = reinterpret_cast<const uint64_t*>(a.base);
    words.insert(words.end(), base, base + a.bytes / 8);
  }
  return words;
}

TEST(CompileProperty, ACompiledStepLeavesWhatTheRecordedOneLeaves) {
  constexpr int32_t kReplays = 3;
  uint64_t saved = 0, waits = 0, dead = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomStep random(seed);
    World& w = random.world();
    w.replay = static_cast<int32_t>(seed % 4);  // which parts the recorded step names
    const auto carried = carried_activations(build(random.list(), w.options()));
    const CompiledStep compiled = compile(random.list(), w.options());
    EXPECT_EQ(compiled.report().clones_after, 0);
    saved += compiled.report().activation_bytes_before - compiled.report().activation_bytes_after;
    waits += static_cast<uint64_t>(compiled.report().waits_after);
    dead += static_cast<uint64_t>(compiled.report().operations_before - compiled.report().operations_after);

    w.fill(seed);
    testing::run_in_order(random.list(), w, kReplays);
    const auto expected = w.kept(), expected_activations = activation_words(w, carried);
    for (uint64_t schedule = 0; schedule < 3; ++schedule) {
      w.fill(seed);
      w.poison(carried);
      ASSERT_NO_THROW(testing::replay(compiled.list(), w, kReplays, seed * 3 + schedule));
      ASSERT_EQ(w.kept(), expected);
      ASSERT_EQ(activation_words(w, carried), expected_activations);
    }
  }
  EXPECT_GT(saved, 5000u);
  EXPECT_GT(waits, 1000u);
  EXPECT_GT(dead, 100u);
}

// How many waits of a step are left, and how many of them the order checker misses when they are left out.
struct Waits {
  int32_t left = 0, missed = 0;
};
Waits leave_waits_out(uint64_t seed) {
  Waits waits;
  for (int32_t skipped = 0; skipped == 0 || skipped < waits.left; ++skipped) {
    RandomStep random(seed);
    World& w = random.world();
    w.offsets.clear();
    const CompiledStep compiled = compile(random.list(), w.options());
    waits.left = compiled.report().waits_after;
    device::OpList list;
    int32_t number = 0;
    for (device::OpListReader reader(compiled.list()); reader.next();) {
      if (reader.entry().kind == device::EntryKind::kWait && number++ == skipped) continue;
      list.append(reader.entry(), reader.params());
    }
    try {
      testing::replay(list, w, 3, seed);
    } catch (const Error&) {
      ++waits.missed;
    }
  }
  return waits;
}

TEST(CompileProperty, MostWaitsThatAreLeftAreMissedWhenTheyAreLeftOut) {
  Waits all;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Waits waits = leave_waits_out(seed);
    all.left += waits.left;
    all.missed += waits.missed;
  }
  EXPECT_GT(all.left, 100);
  // Not all: objects are whole here, and the checker knows which parts of them are never touched together.
  EXPECT_GT(all.missed, all.left / 2);
}

}  // namespace
}  // namespace tidepool::graph
