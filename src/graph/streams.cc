#include <fmt/format.h>

#include "graph/passes.h"

namespace tidepool::graph {
namespace {

device::StreamId stream_of(device::Part part) {
  switch (part) {
    case device::Part::kInstall:
      return device::kSideStream;
    case device::Part::kSpill:
      return device::kSpillStream;
    default:
      return device::kMainStream;
  }
}

}  // namespace

PassReport assign_streams(Graph& graph) {
  int32_t count[device::kNumStreams] = {};
  for (Node& node : graph.nodes) {
    // A copy that is really made works on activations of main (reuse_buffers).
    node.stream = node.kind == Node::Kind::kClone ? device::kMainStream : stream_of(node.type->part);
    ++count[node.stream];
  }
  return {"streams",
          fmt::format("{} operations on main, {} on side, {} on spill", count[device::kMainStream],
                      count[device::kSideStream], count[device::kSpillStream]),
          {}};
}

}  // namespace tidepool::graph
