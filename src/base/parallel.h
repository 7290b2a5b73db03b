// Runs independent pieces of host work (reading files, scanning weights) on short-lived threads.
// Not for steps: those run on the device's own team (device/stream.h).
#pragma once

#include <cstdint>
#include <functional>

namespace tidepool::base {

// The number of threads that may run at once on this machine (CPU affinity included); at least 1.
int available_threads();

// Calls work(i) once for every i in [0, num_pieces), in any order, on at most num_threads threads (the caller is one).
// The first exception thrown by a piece is rethrown here after all threads have stopped; later pieces are then skipped.
void parallel_for(int64_t num_pieces, int num_threads, const std::function<void(int64_t)>& work);

}  // namespace tidepool::base
