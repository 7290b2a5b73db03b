#include "base/check.h"
#include "graph/passes.h"

namespace tidepool::graph {
namespace {

// Which version each place holds while the step runs. A place is a storage, or an object's home.
class Memory {
 public:
  explicit Memory(const Graph& graph) : graph_(graph), held_(graph.storages.size() + graph.objects.size(), kNone) {
    overlapping_.resize(graph.storages.size());
    for (size_t a = 0; a < graph.storages.size(); ++a) {
      for (size_t b = 0; b < graph.storages.size(); ++b) {
        if (a != b && overlap(graph.storages[a].place(), graph.storages[b].place())) overlapping_[a].push_back(b);
      }
    }
    for (size_t v = 0; v < graph.values.size(); ++v) {
      const Value& value = graph.values[v];
      if (value.version == 0 && !value.copy && graph.objects[static_cast<size_t>(value.object)].carried)
        held_[place_of(static_cast<ValueId>(v))] = static_cast<ValueId>(v);
    }
  }

  ValueId held(ValueId v) const { return held_[place_of(v)]; }
  void write(ValueId v) {
    const size_t place = place_of(v);
    held_[place] = v;
    if (place >= overlapping_.size()) return;
    for (size_t other : overlapping_[place]) held_[other] = kNone;
  }

 private:
  size_t place_of(ValueId v) const {
    const Value& value = graph_.values[static_cast<size_t>(v)];
    return value.storage != kNone ? static_cast<size_t>(value.storage)
                                  : graph_.storages.size() + static_cast<size_t>(value.object);
  }
  const Graph& graph_;
  std::vector<ValueId> held_;                     // [places]
  std::vector<std::vector<size_t>> overlapping_;  // [storages]
};

}  // namespace

void verify(const Graph& graph) {
  Memory memory(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    for (const Use& use : node.uses) {
      if (use.in == kNone) continue;
      tidepool_check(memory.held(use.in) == use.in,
                     "the compiled step is wrong: {} takes version {} of '{}', which is overwritten by then",
                     graph.describe(static_cast<NodeId>(i)), graph.values[static_cast<size_t>(use.in)].version,
                     graph.objects[static_cast<size_t>(use.object)].name);
    }
    for (const Use& use : node.uses) {
      if (use.out != kNone) memory.write(use.out);
    }
  }
  for (size_t id = 0; id < graph.objects.size(); ++id) {
    const ValueId result = graph.results[id];
    tidepool_check(result == kNone || memory.held(result) == result,
                   "the compiled step is wrong: '{}' does not hold its version {} when the step ends",
                   graph.objects[id].name, graph.values[static_cast<size_t>(result)].version);
  }
}

}  // namespace tidepool::graph
