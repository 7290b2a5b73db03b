// Execution mode `compile`: a recorded step becomes another list of operations that gives the same results.
//
//   OpList traced;  executor.begin_capture(traced); ... push one step ...; executor.end_capture();
//   CompiledStep step = compile(traced, options);
//   executor.replay(step.list());   // for each later step with as many rows
//
// The list is replayed for steps with the row counts of the recorded one, so whose pushes would be the same. It orders
// its own operations, also those of one replay and the next; what else runs before the first, after the last or in
// between is the host's to order, and so is memory that the host writes for a step.
#pragma once

#include <deque>
#include <memory>

#include "device/op_list.h"
#include "graph/graph.h"
#include "graph/options.h"

namespace tidepool::graph {

// Owns the events that the list names: it outlives every replay, until the streams are drained. May be moved.
class CompiledStep {
 public:
  const device::OpList& list() const { return list_; }
  const CompileReport& report() const { return report_; }

 private:
  friend CompiledStep emit(const Graph& graph, CompileReport report);
  device::OpList list_;
  CompileReport report_;
  std::deque<device::Event> events_;          // fixed addresses, also when moved
  std::unique_ptr<const int32_t[]> one_row_;  // what a copy copies
};

// Runs the passes of passes.h. The list must have been recorded in the step that the host's memory still describes:
// call it before the next step's inputs are written. Throws Error, a sentence, when the list cannot be compiled; an
// operation that only keeps one pass from its best is named in the report.
CompiledStep compile(const device::OpList& traced, const CompileOptions& options);

// The last part of compile: the list of a graph after all passes.
CompiledStep emit(const Graph& graph, CompileReport report);

}  // namespace tidepool::graph
