// Where the values of activations lie: storages, their lifetimes and their places.
#pragma once

#include <optional>
#include <vector>

#include "graph/graph.h"

namespace tidepool::graph {

inline constexpr uint64_t kStorageAlignment = 64;  // of an arena's allocations too

// Puts every activation value into a storage: a value and the one it is changed into share one. Fills graph.storages
// and Value::storage. Objects that are carried, or used by an operation that is asynchronous or not on main, have a
// single one, which is at home and lives for the whole step.
void make_storages(Graph& graph);

// How many bytes all storages cover together, where they lie now or at home.
uint64_t bytes_of_storages(const Graph& graph, bool at_home);

// Whether a storage is needed while another one is.
bool live_together(const Storage& a, const Storage& b);

// A place inside `memory` for every storage that is not at home, large ones first, each at the first one that no
// storage which lives at the same time has. Null: they do not fit.
std::optional<std::vector<uint64_t>> place_storages(const std::vector<Storage>& storages, Range memory);

}  // namespace tidepool::graph
