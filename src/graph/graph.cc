#include "graph/graph.h"

#include <fmt/format.h>

namespace tidepool::graph {

Range Use::hull() const {
  RangeSet all = read;
  all.add(written);
  return all.hull();
}

void Graph::remove_nodes(const std::vector<bool>& removed) {
  size_t kept = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (removed[i]) continue;
    if (kept != i) nodes[kept] = std::move(nodes[i]);
    ++kept;
  }
  nodes.resize(kept);
  for (Value& value : values) value.producer = kNone;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const Use& use : nodes[i].uses) {
      if (use.out != kNone) values[static_cast<size_t>(use.out)].producer = static_cast<NodeId>(i);
    }
  }
}

std::string Graph::describe(NodeId id) const {
  const Node& node = nodes[static_cast<size_t>(id)];
  return fmt::format("{}'{}' (operation {})", node.kind == Node::Kind::kClone ? "the clone for " : "", node.type->name,
                     node.entry);
}

uint64_t Graph::clone_bytes() const {
  uint64_t sum = 0;
  for (const Node& node : nodes) {
    if (node.kind == Node::Kind::kClone) sum += objects[static_cast<size_t>(node.uses[0].object)].bytes();
  }
  return sum;
}

int32_t Graph::num_clones() const {
  int32_t count = 0;
  for (const Node& node : nodes) count += node.kind == Node::Kind::kClone;
  return count;
}

std::vector<std::vector<NodeId>> readers_of_values(const Graph& graph) {
  std::vector<std::vector<NodeId>> readers(graph.values.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const Use& use : graph.nodes[i].uses) {
      if (use.in != kNone) readers[static_cast<size_t>(use.in)].push_back(static_cast<NodeId>(i));
    }
  }
  return readers;
}

}  // namespace tidepool::graph
