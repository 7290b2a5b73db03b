// Opens what an operation declared in protected arenas while it runs, and keeps open what asynchronous operations in
// flight declared until their events complete.
//
// Calls declare() while everything else is closed: declare may read only memory outside protected arenas. num_pieces
// and cost are called with the declared ranges open.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "device/memory.h"
#include "tidepool/event.h"
#include "tidepool/op.h"

namespace tidepool::device {

class Protection {
 public:
  void add(Arena& arena) { arenas_.push_back({&arena, {}, {}}); }
  bool empty() const { return arenas_.empty(); }

  // Throws Error when a declared range is not inside one allocation of its arena.
  void begin(const OpType& type, const void* params);
  // `done` null: not asynchronous; else the event and the count that completes the operation.
  void end(const Event* done, uint64_t target);
  // Closes what belongs to asynchronous operations that have completed since.
  void close_completed();

 private:
  struct InFlight {
    Arena::Range range;
    const Event* done;
    uint64_t target;
  };
  struct Guarded {
    Arena* arena;
    std::vector<Arena::Range> declared;  // of the operation that runs
    std::vector<InFlight> in_flight;
  };
  static void drop_completed(Guarded& guarded);
  void apply(Guarded& guarded);

  std::vector<Guarded> arenas_;
  AccessList accesses_{true};
  std::vector<Arena::Range> open_;
};

}  // namespace tidepool::device
