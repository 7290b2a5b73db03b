#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "graph/passes.h"

namespace tidepool::graph {
namespace {

struct Rewriting {
  NodeId clone, operation;
  ValueId version, copy;
};

// The operation that a clone is made for: the only one that takes its copy.
Rewriting rewriting_of(const Graph& graph, NodeId clone, const std::vector<std::vector<NodeId>>& readers) {
  const Use& use = graph.nodes[static_cast<size_t>(clone)].uses[0];
  const auto& takers = readers[static_cast<size_t>(use.out)];
  tidepool_check(takers.size() == 1, "{} has {} readers, not one", graph.describe(clone), takers.size());
  return {clone, takers[0], use.in, use.out};
}

// Why the operation cannot change the version itself; "": it can.
std::string objection(const Graph& graph, const Rewriting& r, const std::vector<std::vector<NodeId>>& readers) {
  const ObjectId id = graph.values[static_cast<size_t>(r.version)].object;
  const Object& object = graph.objects[static_cast<size_t>(id)];
  const int32_t version = graph.values[static_cast<size_t>(r.version)].version;
  for (NodeId reader : readers[static_cast<size_t>(r.version)]) {
    if (reader == r.clone || reader < r.operation) continue;
    return fmt::format("version {} is {} later by {}", version,
                       graph.nodes[static_cast<size_t>(reader)].kind == Node::Kind::kClone ? "copied" : "read",
                       graph.describe(reader));
  }
  for (size_t other = 0; other < graph.objects.size(); ++other) {
    const Object& o = graph.objects[other];
    if (static_cast<ObjectId>(other) != id && o.space == object.space && overlap(o.range, object.range)) {
      return fmt::format("'{}' shares bytes with it", o.name);
    }
  }
  if (graph.results[static_cast<size_t>(id)] == r.version) {
    return fmt::format("version {} is what the step must leave there", version);
  }
  return "";
}

}  // namespace

PassReport write_in_place(Graph& graph) {
  const auto readers = readers_of_values(graph);
  const int32_t before = graph.num_clones();
  const uint64_t bytes_before = graph.clone_bytes();
  PassReport report{"in-place", "", {}};
  std::vector<bool> removed(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].kind != Node::Kind::kClone) continue;
    const Rewriting r = rewriting_of(graph, static_cast<NodeId>(i), readers);
    const std::string reason = objection(graph, r, readers);
    if (reason.empty()) {
      removed[i] = true;
      for (Use& use : graph.nodes[static_cast<size_t>(r.operation)].uses) {
        if (use.in == r.copy) use.in = r.version;
      }
      continue;
    }
    const Object& object = graph.object_of(r.version);
    const std::string sentence =
        fmt::format("in-place: {} cannot write '{}' in place: {}", graph.describe(r.operation), object.name, reason);
    tidepool_check(!object.carried, "{}", sentence);
    report.refused.push_back(sentence);
  }
  graph.remove_nodes(removed);
  report.summary =
      fmt::format("{} of {} clones removed, {} of {} no longer copied", before - graph.num_clones(), before,
                  base::bytes_text(bytes_before - graph.clone_bytes()), base::bytes_text(bytes_before));
  return report;
}

}  // namespace tidepool::graph
