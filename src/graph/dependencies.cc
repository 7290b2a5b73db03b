#include "graph/dependencies.h"

#include <algorithm>

namespace tidepool::graph {
namespace {

struct Touch {
  NodeId node;
  const Use* use;
  bool writes() const { return use->out != kNone; }
};

std::vector<std::vector<Touch>> touches_of_objects(const Graph& graph) {
  std::vector<std::vector<Touch>> all(graph.objects.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const Use& use : graph.nodes[i].uses)
      all[static_cast<size_t>(use.object)].push_back({static_cast<NodeId>(i), &use});
  }
  return all;
}

bool conflict(const Use& a, const Use& b) {
  return a.written.intersects(b.read) || a.written.intersects(b.written) || a.read.intersects(b.written);
}

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph), found_(graph.nodes.size()) {}

  // Twice through the step: the first time makes what the second finds of the replay before.
  void whole_object(const std::vector<Touch>& touches) {
    NodeId writer = kNone;
    std::vector<NodeId> readers;
    for (int round = 0; round < 2; ++round) {
      for (const Touch& t : touches) {
        if (round == 1) {
          add(t.node, writer);
          for (NodeId reader : readers) {
            if (t.writes()) add(t.node, reader);
          }
        }
        if (t.writes()) {
          writer = t.node;
          readers.clear();
        } else {
          readers.push_back(t.node);
        }
      }
    }
  }
  void ranges_of_step(const std::vector<Touch>& touches) {
    for (size_t b = 0; b < touches.size(); ++b) {
      for (size_t a = 0; a < b; ++a) {
        if (conflict(*touches[a].use, *touches[b].use)) add(touches[b].node, touches[a].node);
      }
    }
  }
  std::vector<std::vector<NodeId>> take() {
    for (auto& list : found_) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
    return std::move(found_);
  }

 private:
  void add(NodeId later, NodeId earlier) {
    if (earlier == kNone) return;
    const Node& from = graph_.nodes[static_cast<size_t>(earlier)];
    if (from.done == nullptr && from.stream == graph_.nodes[static_cast<size_t>(later)].stream) return;
    found_[static_cast<size_t>(later)].push_back(earlier);
  }
  const Graph& graph_;
  std::vector<std::vector<NodeId>> found_;
};

}  // namespace

std::vector<std::vector<NodeId>> find_dependencies(const Graph& graph) {
  Finder finder(graph);
  const auto touches = touches_of_objects(graph);
  for (size_t id = 0; id < graph.objects.size(); ++id) {
    if (graph.objects[id].host_ordered) {
      finder.ranges_of_step(touches[id]);
    } else {
      finder.whole_object(touches[id]);
    }
  }
  return finder.take();
}

NodeId wait_target(const Graph& graph, NodeId waiter, NodeId node) {
  const device::Event* done = graph.nodes[static_cast<size_t>(node)].done;
  if (done == nullptr) return node;
  NodeId last = kNone, last_before = kNone;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].done != done) continue;
    last = static_cast<NodeId>(i);
    if (last < waiter) last_before = last;
  }
  return last_before != kNone ? last_before : last;
}

Precedence::Precedence(const Graph& graph, const std::vector<std::vector<NodeId>>& waits)
    : graph_(graph), waits_(waits) {
  const size_t count = graph.nodes.size();
  previous_on_stream_.assign(count, kNone);
  previous_of_event_.assign(count, kNone);
  // The last one before it, going round: before the first one of a replay comes the last one of the replay before.
  const auto last_before = [&](size_t i, auto belongs) {
    size_t j = i;
    do {
      j = (j + count - 1) % count;
    } while (j != i && !belongs(j));
    return static_cast<NodeId>(j);
  };
  for (size_t i = 0; i < count; ++i) {
    const Node& node = graph.nodes[i];
    previous_on_stream_[i] = last_before(i, [&](size_t j) { return graph.nodes[j].stream == node.stream; });
    if (node.done == nullptr) continue;
    previous_of_event_[i] = last_before(i, [&](size_t j) { return graph.nodes[j].done == node.done; });
  }
  before_.assign(4 * count, {});
  for (int32_t replay = 0; replay < 2; ++replay) {
    for (size_t i = 0; i < count; ++i) add_node(replay, static_cast<NodeId>(i));
  }
}

int32_t Precedence::vertex(int32_t replay, NodeId node, bool completion) const {
  return (replay * static_cast<int32_t>(graph_.nodes.size()) + node) * 2 + (completion ? 1 : 0);
}

// Negative: it is in a replay that is not looked at.
int32_t Precedence::completion_seen_from(NodeId waiter, NodeId node, int32_t replay) const {
  const int32_t when = node < waiter ? replay : replay - 1;
  return when < 0 ? -1 : vertex(when, node, graph_.nodes[static_cast<size_t>(node)].done != nullptr);
}

void Precedence::follow(Bits& bits, int32_t earlier) const {
  if (earlier < 0) return;
  const Bits& more = before_[static_cast<size_t>(earlier)];
  for (size_t w = 0; w < more.size(); ++w) bits[w] |= more[w];
  bits[static_cast<size_t>(earlier) / 64] |= uint64_t{1} << (earlier % 64);
}

bool Precedence::knows(int32_t later, int32_t earlier) const {
  return (before_[static_cast<size_t>(later)][static_cast<size_t>(earlier) / 64] >> (earlier % 64) & 1) != 0;
}

void Precedence::add_node(int32_t replay, NodeId node) {
  const auto n = static_cast<size_t>(node);
  const auto in_replay = [&](NodeId other) { return other < node ? replay : replay - 1; };
  Bits start(before_.size() / 64 + 1);
  const NodeId previous = previous_on_stream_[n];
  if (in_replay(previous) >= 0) follow(start, vertex(in_replay(previous), previous, false));
  for (NodeId wait : waits_[n]) follow(start, completion_seen_from(node, wait, replay));
  before_[static_cast<size_t>(vertex(replay, node, false))] = start;
  if (graph_.nodes[n].done == nullptr) return;
  follow(start, vertex(replay, node, false));
  const NodeId same_event = previous_of_event_[n];
  if (in_replay(same_event) >= 0) follow(start, vertex(in_replay(same_event), same_event, true));
  before_[static_cast<size_t>(vertex(replay, node, true))] = std::move(start);
}

std::vector<NodeId> Precedence::needed(NodeId node) const {
  const auto n = static_cast<size_t>(node);
  std::vector<NodeId> waits = waits_[n];
  std::sort(waits.begin(), waits.end());
  waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
  std::vector<int32_t> sources;
  for (NodeId wait : waits) sources.push_back(completion_seen_from(node, wait, 1));
  const NodeId previous = previous_on_stream_[n];
  sources.push_back(vertex(previous < node ? 1 : 0, previous, false));
  std::vector<NodeId> needed;
  for (size_t i = 0; i < waits.size(); ++i) {
    const bool follows =
        std::any_of(sources.begin(), sources.end(), [&](int32_t other) { return knows(other, sources[i]); });
    if (!follows) needed.push_back(waits[i]);
  }
  return needed;
}

std::vector<NodeId> Precedence::needed_at_end(device::StreamId stream, const std::vector<NodeId>& nodes) const {
  const auto completion = [&](NodeId n) { return vertex(1, n, graph_.nodes[static_cast<size_t>(n)].done != nullptr); };
  std::vector<int32_t> sources;
  for (NodeId node : nodes) sources.push_back(completion(node));
  int32_t end_of_stream = -1;
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (graph_.nodes[i].stream == stream) end_of_stream = vertex(1, static_cast<NodeId>(i), false);
  }
  if (end_of_stream >= 0) sources.push_back(end_of_stream);
  std::vector<NodeId> needed;
  for (NodeId node : nodes) {
    const bool follows =
        completion(node) == end_of_stream ||
        std::any_of(sources.begin(), sources.end(), [&](int32_t other) { return knows(other, completion(node)); });
    if (!follows) needed.push_back(node);
  }
  return needed;
}

}  // namespace tidepool::graph
