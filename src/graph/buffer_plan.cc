#include "graph/buffer_plan.h"

#include <algorithm>
#include <numeric>

namespace tidepool::graph {
namespace {

uint64_t round_up(uint64_t value) { return (value + kStorageAlignment - 1) / kStorageAlignment * kStorageAlignment; }

// Sets of values, by their first.
class Sets {
 public:
  explicit Sets(size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), 0); }
  int32_t of(int32_t v) {
    while (parent_[static_cast<size_t>(v)] != v) {
      parent_[static_cast<size_t>(v)] = parent_[static_cast<size_t>(parent_[static_cast<size_t>(v)])];
      v = parent_[static_cast<size_t>(v)];
    }
    return v;
  }
  void join(int32_t a, int32_t b) {
    const int32_t first = std::min(of(a), of(b)), second = std::max(of(a), of(b));
    parent_[static_cast<size_t>(second)] = first;
  }

 private:
  std::vector<int32_t> parent_;
};

// Objects whose values are one storage.
std::vector<bool> find_fixed(const Graph& graph) {
  std::vector<bool> fixed(graph.objects.size());
  for (size_t i = 0; i < fixed.size(); ++i) fixed[i] = graph.objects[i].carried;
  for (const Node& node : graph.nodes) {
    if (node.done == nullptr && node.stream == device::kMainStream) continue;
    for (const Use& use : node.uses) fixed[static_cast<size_t>(use.object)] = true;
  }
  return fixed;
}

template <typename Visit>
void for_each_activation(const Graph& graph, Visit visit) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const Use& use : graph.nodes[i].uses) {
      if (graph.objects[static_cast<size_t>(use.object)].kind == ObjectKind::kActivation)
        visit(static_cast<NodeId>(i), use);
    }
  }
}

Sets join_values(const Graph& graph, const std::vector<bool>& fixed) {
  Sets sets(graph.values.size());
  std::vector<ValueId> first(graph.objects.size(), kNone);
  for_each_activation(graph, [&](NodeId node, const Use& use) {
    const auto object = static_cast<size_t>(use.object);
    const bool is_clone = graph.nodes[static_cast<size_t>(node)].kind == Node::Kind::kClone;
    if (use.in != kNone && use.out != kNone && !is_clone) sets.join(use.in, use.out);
    if (!fixed[object]) return;
    for (ValueId v : {use.in, use.out}) {
      if (v == kNone) continue;
      if (first[object] == kNone) first[object] = v;
      sets.join(first[object], v);
    }
  });
  return sets;
}

// What operations touch of a storage is its range, and all of an object that stays; clones copy no more than that.
void find_ranges(Graph& graph) {
  for (Storage& s : graph.storages) s.range = {UINT64_MAX, 0};
  for_each_activation(graph, [&](NodeId node, const Use& use) {
    if (graph.nodes[static_cast<size_t>(node)].kind == Node::Kind::kClone) return;
    const ValueId v = use.in != kNone ? use.in : use.out;
    Range& range = graph.storages[static_cast<size_t>(graph.values[static_cast<size_t>(v)].storage)].range;
    const Range hull = use.hull();
    range = {std::min(range.begin, hull.begin), std::max(range.end, hull.end)};
  });
  for (Storage& s : graph.storages) {
    const uint64_t base = graph.objects[static_cast<size_t>(s.object)].range.begin;
    if (s.range.begin > s.range.end) s.range = {base, base};  // of a value that nobody uses any more
    if (s.at_home) s.range = graph.objects[static_cast<size_t>(s.object)].range;
    s.range.begin = base + (s.range.begin - base) / kStorageAlignment * kStorageAlignment;
    s.begin = s.range.begin;
  }
}

}  // namespace

void make_storages(Graph& graph) {
  const std::vector<bool> fixed = find_fixed(graph);
  Sets sets = join_values(graph, fixed);
  std::vector<int32_t> storage_of(graph.values.size(), kNone);  // [first value of a set]
  graph.storages.clear();
  for_each_activation(graph, [&](NodeId node, const Use& use) {
    for (ValueId v : {use.in, use.out}) {
      if (v == kNone) continue;
      int32_t& id = storage_of[static_cast<size_t>(sets.of(v))];
      if (id == kNone) {
        id = static_cast<int32_t>(graph.storages.size());
        Storage s;
        s.object = use.object;
        s.first = node;
        s.at_home = fixed[static_cast<size_t>(use.object)];
        graph.storages.push_back(s);
      }
      graph.values[static_cast<size_t>(v)].storage = id;
      graph.storages[static_cast<size_t>(id)].last = node;
    }
  });
  // What nobody uses any more is still what the next step finds.
  std::vector<bool> has_storage(graph.objects.size());
  for (const Storage& s : graph.storages) has_storage[static_cast<size_t>(s.object)] = true;
  for (size_t id = 0; id < graph.objects.size(); ++id) {
    const Object& object = graph.objects[id];
    if (object.kind != ObjectKind::kActivation || !object.carried || has_storage[id]) continue;
    Storage s;
    s.object = static_cast<ObjectId>(id);
    s.at_home = true;
    graph.storages.push_back(s);
  }
  find_ranges(graph);
  for (Storage& s : graph.storages) {
    if (s.at_home) s.first = 0, s.last = static_cast<NodeId>(graph.nodes.size()) - 1;
  }
}

uint64_t bytes_of_storages(const Graph& graph, bool at_home) {
  RangeSet all;
  for (const Storage& s : graph.storages) all.add(at_home ? s.range : s.place());
  return all.bytes();
}

bool live_together(const Storage& a, const Storage& b) { return a.first <= b.last && b.first <= a.last; }

std::optional<std::vector<uint64_t>> place_storages(const std::vector<Storage>& storages, Range memory) {
  std::vector<size_t> order(storages.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (storages[a].at_home != storages[b].at_home) return storages[a].at_home;
    return storages[a].bytes() > storages[b].bytes();
  });
  std::vector<uint64_t> places(storages.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const Storage& s = storages[order[i]];
    std::vector<Range> taken;
    for (size_t j = 0; j < i; ++j) {
      const Storage& other = storages[order[j]];
      const uint64_t begin = places[order[j]];
      if (live_together(s, other)) taken.push_back({begin, begin + round_up(other.bytes())});
    }
    std::sort(taken.begin(), taken.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
    uint64_t at = s.at_home ? s.range.begin : memory.begin;
    const uint64_t bytes = round_up(s.bytes());
    for (const Range& r : taken) {
      if (overlap(r, {at, at + bytes})) {
        if (s.at_home) return std::nullopt;
        at = r.end;
      }
    }
    if (at + bytes > round_up(memory.end)) return std::nullopt;
    places[order[i]] = at;
  }
  return places;
}

}  // namespace tidepool::graph
