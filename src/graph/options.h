// What compiling a recorded step needs to know, and what it tells.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/memory.h"
#include "device/op_list.h"
#include "device/region.h"

namespace tidepool::graph {

struct CompileOptions {
  // Memory that holds nothing from step to step, and that the host does not look at (graph.h). Null: none.
  const device::Arena* activations = nullptr;
  std::vector<const device::Arena*> arenas;  // the other device memory
  // Names and extents of host memory and resources, and which of it, or of the allocations above, is host_ordered. Not
  // needed for a correct result. Without it host memory is known by the ranges of the recorded step, so operations that
  // share some of it in any step must do so in that one, and nothing is host_ordered.
  std::vector<device::Region> regions;
  std::vector<device::Event*> host_events;  // that the host looks at; the list's other events are not recorded again
  // Events that other lists record, or the host: before each replay the host has waited for what they stand for, so the
  // list's waits for them order nothing.
  std::vector<const device::Event*> waited_by_host;
  std::string dump_dir;       // "": no pictures
  std::string name = "step";  // pictures are DIR/NAME-NN-PASS.dot
};

struct PassReport {
  std::string pass;
  std::string summary;               // one line
  std::vector<std::string> refused;  // sentences: what was left as it was, and why
};

struct CompileReport {
  std::vector<PassReport> passes;
  int32_t operations_before = 0, operations_after = 0;
  int32_t clones_before = 0, clones_after = 0;
  uint64_t clone_bytes_before = 0, clone_bytes_after = 0;  // that the functional graph copies, without resources
  uint64_t activation_bytes_before = 0, activation_bytes_after = 0;                  // that the step touches
  int32_t records_before = 0, records_after = 0, waits_before = 0, waits_after = 0;  // of events, in the lists
  // Everything above, a line each.
  std::string text() const;
};

}  // namespace tidepool::graph
