#include <fmt/format.h>

#include "graph/passes.h"

namespace tidepool::graph {
namespace {

// Needed: changes something that outlives the step, or declares no effect at all, or makes a value that is taken.
bool is_dead(const Graph& graph, const Node& node, const std::vector<int32_t>& num_readers) {
  bool writes = false;
  for (const Use& use : node.uses) {
    if (use.out == kNone) continue;
    writes = true;
    if (graph.object_of(use.out).carried || num_readers[static_cast<size_t>(use.out)] > 0) return false;
  }
  return writes;
}

}  // namespace

PassReport remove_dead_code(Graph& graph) {
  std::vector<int32_t> num_readers(graph.values.size());
  for (const Node& node : graph.nodes) {
    for (const Use& use : node.uses) {
      if (use.in != kNone) ++num_readers[static_cast<size_t>(use.in)];
    }
  }
  const int32_t before = graph.num_operations();
  std::vector<bool> removed(graph.nodes.size());
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    if (!is_dead(graph, graph.nodes[i], num_readers)) continue;
    removed[i] = true;
    for (const Use& use : graph.nodes[i].uses) {
      if (use.in != kNone) --num_readers[static_cast<size_t>(use.in)];
    }
  }
  graph.remove_nodes(removed);
  const int32_t gone = before - graph.num_operations();
  return {"dead-code", fmt::format("{} of {} operations removed", gone, before), {}};
}

}  // namespace tidepool::graph
