#include "graph/compile.h"

#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "device/copy.h"
#include "graph/buffer_plan.h"
#include "graph/build.h"
#include "graph/dot.h"
#include "graph/passes.h"

namespace tidepool::graph {
namespace {

class Emitter {
 public:
  Emitter(const Graph& graph, device::OpList& list, std::deque<device::Event>& events, const int32_t* one_row)
      : graph_(graph), list_(list), one_row_(one_row), event_of_(graph.nodes.size()) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      event_of_[i] = graph.nodes[i].is_waited_for ? &events.emplace_back() : graph.nodes[i].done;
    }
  }

  void run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      wait(node.stream, node.waits);
      if (node.kind == Node::Kind::kClone) {
        copy(node);
      } else {
        list_.append_operation(node.stream, *node.type, node.params.data(), node.done);
      }
      if (node.is_waited_for) list_.append_record(node.stream, *event_of_[i]);
    }
    for (const HostRecord& record : graph_.host_records) {
      wait(record.stream, record.waits);
      list_.append_record(record.stream, *record.event);
    }
  }

 private:
  void wait(device::StreamId stream, const std::vector<NodeId>& nodes) {
    for (NodeId node : nodes) list_.append_wait(stream, *event_of_[static_cast<size_t>(node)]);
  }
  void copy(const Node& node) {
    const Use& use = node.uses[0];
    const Range from = use.read.hull(), to = use.written.hull();
    if (from.begin == from.end) return;
    const device::CopyParams params{one_row_, reinterpret_cast<const std::byte*>(from.begin),
                                    reinterpret_cast<std::byte*>(to.begin), static_cast<int64_t>(to.end - to.begin)};
    list_.append_operation(node.stream, device::copy_rows(), &params, nullptr);
  }

  const Graph& graph_;
  device::OpList& list_;
  const int32_t* one_row_;
  std::vector<device::Event*> event_of_;  // [nodes]
};

void count_entries(const device::OpList& list, CompileReport& report) {
  for (device::OpListReader reader(list); reader.next();) {
    const device::EntryKind kind = reader.entry().kind;
    report.operations_after += kind == device::EntryKind::kOp;
    report.records_after += kind == device::EntryKind::kRecord;
    report.waits_after += kind == device::EntryKind::kWait;
  }
}

}  // namespace

CompiledStep emit(const Graph& graph, CompileReport report) {
  CompiledStep step;
  step.one_row_.reset(new int32_t[2]{0, 1});
  Emitter(graph, step.list_, step.events_, step.one_row_.get()).run();
  count_entries(step.list_, report);
  step.report_ = std::move(report);
  return step;
}

CompiledStep compile(const device::OpList& traced, const CompileOptions& options) {
  Graph graph = build(traced, options);
  CompileReport report;
  report.operations_before = graph.num_operations();
  report.clones_before = graph.num_clones();
  report.clone_bytes_before = graph.clone_bytes();
  report.records_before = graph.recorded_records;
  report.waits_before = graph.recorded_waits;
  int number = 0;
  const auto picture = [&](const std::string& pass) {
    if (!options.dump_dir.empty()) write_dot(graph, options.dump_dir, options.name, number, pass);
    ++number;
  };
  const auto run = [&](PassReport pass) {
    picture(pass.pass);
    report.passes.push_back(std::move(pass));
  };
  picture("functional");
  run(remove_dead_code(graph));
  run(write_in_place(graph));
  run(assign_streams(graph));
  run(reuse_buffers(graph, options.activations));
  run(place_events(graph));
  verify(graph);
  report.clones_after = graph.num_clones();
  report.clone_bytes_after = graph.clone_bytes();
  report.activation_bytes_before = bytes_of_storages(graph, true);
  report.activation_bytes_after = bytes_of_storages(graph, false);
  return emit(graph, std::move(report));
}

std::string CompileReport::text() const {
  std::string out = fmt::format("{} operations became {}, {} clones of {} became {} of {}\n", operations_before,
                                operations_after, clones_before, base::bytes_text(clone_bytes_before), clones_after,
                                base::bytes_text(clone_bytes_after));
  out += fmt::format("activations take {} instead of {}; {} records and {} waits instead of {} and {}\n",
                     base::bytes_text(activation_bytes_after), base::bytes_text(activation_bytes_before), records_after,
                     waits_after, records_before, waits_before);
  for (const PassReport& pass : passes) {
    out += fmt::format("{}: {}\n", pass.pass, pass.summary);
    for (const std::string& sentence : pass.refused) out += fmt::format("  {}\n", sentence);
  }
  return out;
}

}  // namespace tidepool::graph
