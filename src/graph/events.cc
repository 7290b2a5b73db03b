#include <algorithm>

#include "base/check.h"
#include "graph/dependencies.h"
#include "graph/passes.h"

namespace tidepool::graph {
namespace {

size_t count_of(const std::vector<std::vector<NodeId>>& lists) {
  size_t sum = 0;
  for (const auto& list : lists) sum += list.size();
  return sum;
}

void drop_implied(const Graph& graph, std::vector<std::vector<NodeId>>& waits) {
  const Precedence precedence(graph, waits);
  std::vector<std::vector<NodeId>> needed(waits.size());
  for (size_t i = 0; i < waits.size(); ++i) needed[i] = precedence.needed(static_cast<NodeId>(i));
  waits = std::move(needed);
}

// Operations that the stream ran before the record in the recorded list.
std::vector<NodeId> operations_before(const Graph& graph, const HostRecord& record) {
  std::vector<NodeId> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.recorded_stream == record.stream && node.entry < record.entry) nodes.push_back(static_cast<NodeId>(i));
  }
  return nodes;
}

}  // namespace

PassReport place_events(Graph& graph) {
  const std::vector<std::vector<NodeId>> dependencies = find_dependencies(graph);
  std::vector<std::vector<NodeId>> waits = dependencies;
  // Twice: a wait may stand for more than was asked (wait_target), which must not keep or make another one.
  drop_implied(graph, waits);
  for (size_t i = 0; i < waits.size(); ++i) {
    for (NodeId& node : waits[i]) node = wait_target(graph, static_cast<NodeId>(i), node);
  }
  drop_implied(graph, waits);
  const Precedence precedence(graph, waits);
  for (size_t i = 0; i < dependencies.size(); ++i) {
    for (NodeId earlier : dependencies[i]) {
      const auto node = static_cast<NodeId>(i);
      tidepool_check(precedence.orders(earlier, node), "events: nothing orders {} behind {}", graph.describe(node),
                     graph.describe(earlier));
    }
  }
  size_t num_waits = count_of(waits);
  for (HostRecord& record : graph.host_records) {
    record.waits = precedence.needed_at_end(record.stream, operations_before(graph, record));
    num_waits += record.waits.size();
  }
  for (size_t i = 0; i < waits.size(); ++i) graph.nodes[i].waits = std::move(waits[i]);
  const auto mark = [&](const std::vector<NodeId>& nodes) {
    for (NodeId node : nodes) {
      Node& n = graph.nodes[static_cast<size_t>(node)];
      n.is_waited_for = n.done == nullptr;
    }
  };
  for (const Node& node : graph.nodes) mark(node.waits);
  for (const HostRecord& record : graph.host_records) mark(record.waits);
  const auto num_records = static_cast<size_t>(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) { return n.is_waited_for; }));
  return {"events",
          fmt::format("{} waits and {} records for {} dependencies between streams; {} waits and {} records recorded",
                      num_waits, num_records + graph.host_records.size(), count_of(dependencies), graph.recorded_waits,
                      graph.recorded_records),
          {}};
}

}  // namespace tidepool::graph
