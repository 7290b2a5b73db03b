// Which operation must be complete before which starts.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace tidepool::graph {

// [nodes] ascending: operations that must be complete before the node starts, and that the order of its stream alone
// does not see to. Of a node listed earlier the same replay is meant, of itself or one listed later the replay before.
// Direct ones: what follows from them through other operations is left out.
std::vector<std::vector<NodeId>> find_dependencies(const Graph& graph);

// What precedes what when a list is replayed again and again: in the order of streams, by waits, and by records of one
// event, which complete in order. Two replays are looked at; every one is like the second.
class Precedence {
 public:
  // waits: [nodes], in the sense of Node::waits.
  Precedence(const Graph& graph, const std::vector<std::vector<NodeId>>& waits);

  // Whether `earlier` (in the sense of Node::waits) is complete when the node starts.
  bool orders(NodeId earlier, NodeId node) const {
    return knows(vertex(1, node, false), completion_seen_from(node, earlier, 1));
  }
  // Of the waits of a node those that follow neither from its stream nor from other waits. Ascending, without repeats.
  std::vector<NodeId> needed(NodeId node) const;
  // Of these nodes those whose completion follows neither from the end of the stream nor from another one's.
  std::vector<NodeId> needed_at_end(device::StreamId stream, const std::vector<NodeId>& nodes) const;

 private:
  using Bits = std::vector<uint64_t>;
  int32_t vertex(int32_t replay, NodeId node, bool completion) const;
  int32_t completion_seen_from(NodeId waiter, NodeId node, int32_t replay) const;
  void follow(Bits& bits, int32_t vertex) const;
  bool knows(int32_t vertex, int32_t earlier) const;
  void add_node(int32_t replay, NodeId node);

  const Graph& graph_;
  const std::vector<std::vector<NodeId>>& waits_;
  std::vector<NodeId> previous_on_stream_;  // [nodes] of the first one: the last, in the replay before
  std::vector<NodeId> previous_of_event_;   // [nodes] likewise; kNone for operations that are not asynchronous
  std::vector<Bits> before_;                // [vertices] what precedes the vertex
};

// The node whose completion a wait for `node`, placed before `waiter`, waits for in fact: a wait means the record of
// the event that was pushed last, and asynchronous operations may share an event.
NodeId wait_target(const Graph& graph, NodeId waiter, NodeId node);

}  // namespace tidepool::graph
