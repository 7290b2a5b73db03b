// A recorded step as a functional graph: operations in the order of a valid sequential run, and between them the
// versions of the memory objects that they read and make. No events: what must wait for what follows from the versions.
//
// An object is an allocation of an arena, a resource, or a range of host memory. It is whole or nothing: which cache
// slots and rows are active changes while the list is replayed, so the ranges of the recorded step say nothing about
// the next one. An operation that writes an object takes its version so far and returns a new one.
//
// Activations (allocations of one arena) hold nothing from step to step. Rule for operators: what an operation declares
// to write of an activation, and not to read, it writes in every row of the step before any operation of the step reads
// it; one that fills gaps which another left declares to read as well. So where nothing of the old bytes is read any
// more, a write begins a value of its own, without an input. An activation that is read before the step writes it is no
// such scratch: it is carried, like every other object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/op_list.h"
#include "graph/range_set.h"

namespace tidepool::graph {

using ObjectId = int32_t;
using ValueId = int32_t;
using NodeId = int32_t;  // place in Graph::nodes: also the order
inline constexpr int32_t kNone = -1;

enum class ObjectKind { kActivation, kDevice, kHost, kResource };

struct Object {
  std::string name;
  ObjectKind kind = ObjectKind::kDevice;
  uint64_t space = 0;         // 0: memory
  Range range;                // addresses, or positions of the resource as far as they were declared
  bool carried = true;        // its last version is what the next step, or the host, finds
  bool host_ordered = false;  // device/region.h
  uint64_t bytes() const { return kind == ObjectKind::kResource ? 0 : range.end - range.begin; }
};

struct Value {
  ObjectId object = kNone;
  int32_t version = 0;      // of the object, 0 is what it holds when the step begins
  bool copy = false;        // made by a clone, with the contents of that version
  NodeId producer = kNone;  // none: there when the step begins
  int32_t storage = kNone;  // Graph::storages; only after reuse_buffers, and only of activations
};

// What a node does with one object. Both `in` and `out`: the same bytes, changed in place.
struct Use {
  ObjectId object = kNone;
  ValueId in = kNone, out = kNone;
  bool looks = false;  // whether the operation reads `in`; otherwise it only keeps what it does not write
  RangeSet read, written;
  Range hull() const;
};

struct Node {
  enum class Kind { kOperation, kClone };
  Kind kind = Kind::kOperation;
  int32_t entry = 0;  // number among the operations of the recorded list, from 0; a clone: of the one it is for
  const device::OpType* type = nullptr;
  std::vector<std::byte> params;
  device::Event* done = nullptr;  // of an asynchronous operation
  device::StreamId recorded_stream = device::kMainStream, stream = device::kMainStream;
  std::vector<Use> uses;        // one for each object of the graph that it touches
  uint64_t constant_bytes = 0;  // what else it reads: weights, tables, the step's inputs
  // After place_events: operations that must be complete before this one starts. Those listed earlier are meant in the
  // same replay, itself and those listed later in the replay before.
  std::vector<NodeId> waits;
  bool is_waited_for = false;  // its completion is recorded (asynchronous operations record their own)
};

// An event that the host looks at: complete when all that the stream ran before it in the recorded list is complete.
struct HostRecord {
  device::StreamId stream = device::kMainStream;
  device::Event* event = nullptr;
  int32_t entry = 0;  // operations of the list before it
  std::vector<NodeId> waits;
};

// Bytes that hold activation values one after the other which are changes of each other.
struct Storage {
  ObjectId object = kNone;
  Range range;         // what the operations touch of it, at its home
  uint64_t begin = 0;  // where it lies now
  NodeId first = 0, last = 0;
  bool at_home = false;  // does not move
  uint64_t bytes() const { return range.end - range.begin; }
  Range place() const { return {begin, begin + bytes()}; }
};

struct Graph {
  std::vector<Object> objects;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<ValueId> results;  // [objects] the version that a carried object has when the step ends; kNone otherwise
  std::vector<HostRecord> host_records;
  std::vector<Storage> storages;
  int32_t recorded_records = 0, recorded_waits = 0;  // of the list

  const Object& object_of(ValueId value) const {
    return objects[static_cast<size_t>(values[static_cast<size_t>(value)].object)];
  }
  // Drops nodes and renumbers producers.
  void remove_nodes(const std::vector<bool>& removed);
  // For sentences: 'serve' (operation 17).
  std::string describe(NodeId node) const;
  // Bytes that clone nodes copy, and how many there are.
  uint64_t clone_bytes() const;
  int32_t num_clones() const;
  int32_t num_operations() const { return static_cast<int32_t>(nodes.size()) - num_clones(); }
};

// [values] nodes that take the value as input, ascending.
std::vector<std::vector<NodeId>> readers_of_values(const Graph& graph);

}  // namespace tidepool::graph
