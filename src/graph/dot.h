// Pictures of a graph, in the language of Graphviz.
#pragma once

#include <string>

#include "graph/graph.h"

namespace tidepool::graph {

// Operations are boxes in the colour of their stream, clones are dashed boxes, objects as the step finds them ellipses.
// An edge is a version on its way to who takes it, with its bytes. Dashed edges are waits; grey ones for the replay
// before.
std::string to_dot(const Graph& graph, const std::string& title);

// Writes DIR/NAME-NN-PASS.dot under a temporary name first. Throws Error.
void write_dot(const Graph& graph, const std::string& dir, const std::string& name, int number,
               const std::string& pass);

}  // namespace tidepool::graph
