#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "graph/buffer_plan.h"
#include "graph/passes.h"
#include "graph/relocate.h"

namespace tidepool::graph {
namespace {

// From the first byte of an arena that is allocated to the last.
Range memory_of(const device::Arena& arena) {
  Range memory;
  for (const device::Arena::Allocation& a : arena.allocations()) {
    const auto begin = reinterpret_cast<uint64_t>(a.base);
    if (memory.end == 0) memory.begin = begin;
    memory.end = std::max(memory.end, begin + a.bytes);
  }
  return memory;
}

int32_t storage_of(const Graph& graph, const Use& use) {
  return graph.values[static_cast<size_t>(use.in != kNone ? use.in : use.out)].storage;
}

std::vector<Move> moves_of(const Graph& graph, const Node& node) {
  std::vector<Move> moves;
  for (const Use& use : node.uses) {
    const int32_t id = storage_of(graph, use);
    if (id == kNone) continue;
    const Storage& s = graph.storages[static_cast<size_t>(id)];
    if (s.begin == s.range.begin) continue;
    moves.push_back({graph.objects[static_cast<size_t>(use.object)].range, s.begin - s.range.begin});
  }
  return moves;
}

class Reuse {
 public:
  Reuse(Graph& graph, Range memory, PassReport& report) : graph_(graph), memory_(memory), report_(report) {}

  // Places and parameters; operations that cannot be moved keep their values at home, and the others are placed anew.
  void run() {
    do {
      place();
    } while (!rewrite());
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].kind == Node::Kind::kOperation) graph_.nodes[i].params = std::move(rewritten_[i]);
    }
  }

 private:
  void place() {
    auto places = place_storages(graph_.storages, memory_);
    if (!places) {
      tidepool_check(graph_.num_clones() == 0, "buffer-reuse: the activations do not hold {} copies of {} besides",
                     graph_.num_clones(), base::bytes_text(graph_.clone_bytes()));
      report_.refused.push_back("buffer-reuse: what moved does not fit around what stays, so nothing moves");
      for (Storage& s : graph_.storages) s.at_home = true, s.begin = s.range.begin;
      return;
    }
    for (size_t i = 0; i < places->size(); ++i) graph_.storages[i].begin = (*places)[i];
  }

  bool rewrite() {
    bool all = true;
    rewritten_.assign(graph_.nodes.size(), {});
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.kind == Node::Kind::kClone) continue;
      rewritten_[i] = node.params;
      const std::vector<Move> moves = moves_of(graph_, node);
      if (moves.empty()) continue;
      const std::string reason = relocate(*node.type, rewritten_[i], moves);
      if (reason.empty()) continue;
      report_.refused.push_back(fmt::format("buffer-reuse: {} keeps its activations where they are: {}",
                                            graph_.describe(static_cast<NodeId>(i)), reason));
      for (const Use& use : node.uses) {
        const int32_t id = storage_of(graph_, use);
        if (id != kNone) graph_.storages[static_cast<size_t>(id)].at_home = true;
      }
      all = false;
    }
    return all;
  }

  Graph& graph_;
  const Range memory_;
  PassReport& report_;
  std::vector<std::vector<std::byte>> rewritten_;  // [nodes] parameters
};

RangeSet moved(const RangeSet& ranges, const Storage& s) {
  RangeSet result;
  for (const Range& r : ranges.ranges()) {
    result.add({r.begin - s.range.begin + s.begin, r.end - s.range.begin + s.begin});
  }
  return result;
}

// The ranges that nodes use, where they lie now. A copy takes what both storages hold of the object.
void move_uses(Graph& graph) {
  for (Node& node : graph.nodes) {
    for (Use& use : node.uses) {
      if (storage_of(graph, use) == kNone) continue;
      const auto storage = [&](ValueId v) -> const Storage& {
        return graph.storages[static_cast<size_t>(graph.values[static_cast<size_t>(v)].storage)];
      };
      if (node.kind == Node::Kind::kClone) {
        const Storage &from = storage(use.in), &to = storage(use.out);
        RangeSet both;
        both.add({std::max(from.range.begin, to.range.begin), std::min(from.range.end, to.range.end)});
        use.read = moved(both, from);
        use.written = moved(both, to);
      } else {
        const Storage& s = storage(use.in != kNone ? use.in : use.out);
        use.read = moved(use.read, s);
        use.written = moved(use.written, s);
      }
    }
  }
}

}  // namespace

PassReport reuse_buffers(Graph& graph, const device::Arena* activations) {
  PassReport report{"buffer-reuse", "no activations", {}};
  if (activations == nullptr) return report;
  make_storages(graph);
  if (activations->guard() == device::Guard::kProtected) {
    report.refused.push_back("buffer-reuse: the memory is protected allocation by allocation, so nothing moves");
    for (Storage& s : graph.storages) s.at_home = true;
  }
  Reuse(graph, memory_of(*activations), report).run();
  move_uses(graph);
  const uint64_t before = bytes_of_storages(graph, true), after = bytes_of_storages(graph, false);
  const auto num_home = std::count_if(graph.storages.begin(), graph.storages.end(), [](auto& s) { return s.at_home; });
  report.summary = fmt::format("{} buffers ({} at home) in {} instead of {}", graph.storages.size(), num_home,
                               base::bytes_text(after), base::bytes_text(before));
  return report;
}

}  // namespace tidepool::graph
