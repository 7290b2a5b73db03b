// A recorded list as a functional graph.
#pragma once

#include "graph/graph.h"
#include "graph/options.h"

namespace tidepool::graph {

// The functional graph of a list (graph.h): every object that an operation changes is cloned first, so that each
// version stays what it is. The list's records and waits are dropped. Asks the operations what they may touch in any
// step, so the memory that the host wrote for the recorded step must still be as it was.
//
// Throws Error for a list that waits for an event which nothing in it completes (what that orders is not in the list),
// and for an operation that declares bytes of an arena outside its allocations.
Graph build(const device::OpList& list, const CompileOptions& options);

}  // namespace tidepool::graph
