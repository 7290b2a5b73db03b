#include "graph/dot.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "base/text.h"

namespace tidepool::graph {
namespace {

constexpr std::array<const char*, device::kNumStreams> kColours{"#cfe2f3", "#fce5cd", "#d9ead3"};

// The text of a quoted string.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : base::one_line(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string size_of(const Object& object) {
  if (object.kind != ObjectKind::kResource) return base::bytes_text(object.bytes());
  return fmt::format("{} positions", object.range.end - object.range.begin);
}

std::string operation_line(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[static_cast<size_t>(id)];
  const bool clone = node.kind == Node::Kind::kClone;
  std::string label = clone ? "clone" : escaped(node.type->name);
  label += fmt::format(" {}", node.entry);
  if (node.done != nullptr) label += " (asynchronous)";
  if (node.constant_bytes > 0) label += "\\nreads " + base::bytes_text(node.constant_bytes) + " of constants";
  return fmt::format("  n{} [label=\"{}\", fillcolor=\"{}\", style=\"{}\"];\n", id, label,
                     kColours[static_cast<size_t>(node.stream)], clone ? "filled,dashed" : "filled");
}

std::string value_edge(const Graph& graph, NodeId id, const Use& use) {
  const Value& value = graph.values[static_cast<size_t>(use.in)];
  const Object& object = graph.objects[static_cast<size_t>(use.object)];
  const std::string from =
      value.producer != kNone ? fmt::format("n{}", value.producer) : fmt::format("o{}", use.object);
  return fmt::format("  {} -> n{} [label=\"{} v{}{}\\n{}\"{}];\n", from, id, escaped(object.name), value.version,
                     value.copy ? " (copy)" : "", size_of(object), use.looks ? "" : ", color=\"#999999\"");
}

}  // namespace

std::string to_dot(const Graph& graph, const std::string& title) {
  std::string out = fmt::format("digraph \"{}\" {{\n  node [shape=box];\n", escaped(title));
  std::vector<bool> found(graph.objects.size());
  for (const Node& node : graph.nodes) {
    for (const Use& use : node.uses) {
      if (use.in != kNone && graph.values[static_cast<size_t>(use.in)].producer == kNone)
        found[static_cast<size_t>(use.object)] = true;
    }
  }
  for (size_t o = 0; o < found.size(); ++o) {
    if (!found[o]) continue;
    out += fmt::format("  o{} [label=\"{}\\n{}\", shape=ellipse];\n", o, escaped(graph.objects[o].name),
                       size_of(graph.objects[o]));
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) out += operation_line(graph, static_cast<NodeId>(i));
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const Use& use : graph.nodes[i].uses) {
      if (use.in != kNone) out += value_edge(graph, static_cast<NodeId>(i), use);
    }
    for (NodeId wait : graph.nodes[i].waits) {
      const bool this_replay = wait < static_cast<NodeId>(i);
      out += fmt::format("  n{} -> n{} [style=dashed, constraint=false, color=\"{}\"];\n", wait, i,
                         this_replay ? "#cc0000" : "#aaaaaa");
    }
  }
  return out + "}\n";
}

void write_dot(const Graph& graph, const std::string& dir, const std::string& name, int number,
               const std::string& pass) {
  std::error_code failed;
  std::filesystem::create_directories(dir, failed);
  tidepool_check(!failed, "{}: {}", dir, failed.message());
  const std::string title = fmt::format("{}-{:02}-{}", name, number, pass);
  base::write_text_file((std::filesystem::path(dir) / (title + ".dot")).string(), to_dot(graph, title));
}

}  // namespace tidepool::graph
