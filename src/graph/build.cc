#include "graph/build.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "graph/objects.h"

namespace tidepool::graph {
namespace {

using device::Access;
using device::EntryKind;

struct Recording {
  std::vector<Node> nodes;
  std::vector<std::vector<Access>> accesses;  // [nodes]
};

Recording read(const device::OpList& list, const CompileOptions& options, Graph& graph) {
  Recording r;
  std::set<const device::Event*> completed, waited;
  for (device::OpListReader reader(list); reader.next();) {
    const device::Entry& entry = reader.entry();
    const auto position = static_cast<int32_t>(r.nodes.size());
    if (entry.event != nullptr) (entry.kind == EntryKind::kWait ? waited : completed).insert(entry.event);
    if (entry.kind == EntryKind::kWait) ++graph.recorded_waits;
    if (entry.kind == EntryKind::kRecord) {
      ++graph.recorded_records;
      const auto& known = options.host_events;
      if (std::find(known.begin(), known.end(), entry.event) != known.end()) {
        graph.host_records.push_back({entry.stream, entry.event, position, {}});
      }
    }
    if (entry.kind != EntryKind::kOp) continue;
    Node node;
    node.entry = position;
    node.type = entry.type;
    node.params.assign(reader.params(), reader.params() + entry.params_bytes);
    node.done = entry.event;
    node.recorded_stream = node.stream = entry.stream;
    auto declared = device::AccessList::for_every_step();
    entry.type->declare(reader.params(), declared);
    r.accesses.push_back(declared.ranges());
    r.nodes.push_back(std::move(node));
  }
  const auto& by_host = options.waited_by_host;
  for (const device::Event* event : waited) {
    tidepool_check(completed.contains(event) || std::find(by_host.begin(), by_host.end(), event) != by_host.end(),
                   "the recorded step waits for an event that nothing in it completes: what that orders is not known");
  }
  return r;
}

// Objects that some operation writes, and activations that one reads, with what each operation does with them.
void find_objects(const CompileOptions& options, Recording& r, Graph& graph) {
  std::vector<Access> all;
  for (const auto& list : r.accesses) all.insert(all.end(), list.begin(), list.end());
  const ObjectTable table(options, all);
  std::vector<ObjectId> kept(table.objects().size(), kNone);
  for (size_t i = 0; i < r.nodes.size(); ++i) {
    for (const Access& access : r.accesses[i]) {
      const auto id = static_cast<size_t>(table.object_of(access, r.nodes[i].type->name));
      const Object& object = table.objects()[id];
      if (kept[id] != kNone || (!access.write && object.kind != ObjectKind::kActivation)) continue;
      kept[id] = static_cast<ObjectId>(graph.objects.size());
      graph.objects.push_back(object);
    }
  }
  for (size_t i = 0; i < r.nodes.size(); ++i) {
    Node& node = r.nodes[i];
    for (const Access& access : r.accesses[i]) {
      const ObjectId id = kept[static_cast<size_t>(table.object_of(access, node.type->name))];
      if (id == kNone) {
        node.constant_bytes += access.space == 0 ? access.end - access.begin : 0;
        continue;
      }
      auto use = std::find_if(node.uses.begin(), node.uses.end(), [&](const Use& u) { return u.object == id; });
      if (use == node.uses.end()) {
        node.uses.push_back({});
        use = std::prev(node.uses.end());
        use->object = id;
      }
      (access.write ? use->written : use->read).add({access.begin, access.end});
    }
    for (Use& use : node.uses) use.looks = !use.read.empty();
  }
}

struct Place {
  size_t node, use;
};

// Of every object, who uses it, in order.
std::vector<std::vector<Place>> uses_of_objects(const Graph& graph, const std::vector<Node>& nodes) {
  std::vector<std::vector<Place>> all(graph.objects.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (size_t u = 0; u < nodes[i].uses.size(); ++u)
      all[static_cast<size_t>(nodes[i].uses[u].object)].push_back({i, u});
  }
  return all;
}

// Bytes of an activation that are read later, backwards through the step: whether it is carried, and which writes leave
// bytes that somebody still reads.
std::vector<bool> find_kept(const std::vector<Node>& nodes, const std::vector<Place>& uses, Object& object) {
  std::vector<bool> keeps(uses.size());
  RangeSet live;
  for (size_t i = uses.size(); i-- > 0;) {
    const Use& use = nodes[uses[i].node].uses[uses[i].use];
    live.remove(use.written);
    keeps[i] = !live.empty();
    live.add(use.read);
  }
  object.carried = !live.empty();
  return keeps;
}

void make_versions(const std::vector<Place>& uses, ObjectId id, std::vector<Node>& nodes, Graph& graph) {
  Object& object = graph.objects[static_cast<size_t>(id)];
  std::vector<bool> keeps;
  if (object.kind == ObjectKind::kActivation) keeps = find_kept(nodes, uses, object);
  ValueId current = kNone;
  int32_t version = 0;
  const auto make = [&] {
    graph.values.push_back({id, version++, false, kNone, kNone});
    return static_cast<ValueId>(graph.values.size() - 1);
  };
  if (object.carried) {
    current = make();
  } else {
    ++version;  // 0 would be what the step finds
  }
  for (size_t i = 0; i < uses.size(); ++i) {
    Use& use = nodes[uses[i].node].uses[uses[i].use];
    if (use.written.empty()) {
      use.in = current;
      continue;
    }
    if (object.carried || use.looks || keeps[i]) use.in = current;
    use.out = current = make();
  }
  graph.results.push_back(object.carried ? current : kNone);
}

void add_clones(std::vector<Node> nodes, Graph& graph) {
  for (Node& node : nodes) {
    for (Use& use : node.uses) {
      if (use.in == kNone || use.out == kNone) continue;
      Node clone;
      clone.kind = Node::Kind::kClone;
      clone.entry = node.entry;
      clone.type = node.type;
      clone.recorded_stream = clone.stream = node.stream;
      const Value source = graph.values[static_cast<size_t>(use.in)];
      graph.values.push_back({use.object, source.version, true, kNone, kNone});
      const auto copy = static_cast<ValueId>(graph.values.size() - 1);
      RangeSet whole;
      whole.add(graph.objects[static_cast<size_t>(use.object)].range);
      clone.uses.push_back({use.object, use.in, copy, true, whole, whole});
      use.in = copy;
      graph.nodes.push_back(std::move(clone));
    }
    graph.nodes.push_back(std::move(node));
  }
  graph.remove_nodes(std::vector<bool>(graph.nodes.size()));  // numbers the producers
}

}  // namespace

Graph build(const device::OpList& list, const CompileOptions& options) {
  Graph graph;
  Recording recording = read(list, options, graph);
  find_objects(options, recording, graph);
  const auto uses = uses_of_objects(graph, recording.nodes);
  for (size_t id = 0; id < graph.objects.size(); ++id) {
    make_versions(uses[id], static_cast<ObjectId>(id), recording.nodes, graph);
  }
  add_clones(std::move(recording.nodes), graph);
  return graph;
}

}  // namespace tidepool::graph
