#include "device/protection.h"

#include "base/check.h"

namespace tidepool::device {

void Protection::begin(const OpType& type, const void* params) {
  accesses_.clear();
  type.declare(params, accesses_);
  for (Guarded& guarded : arenas_) {
    guarded.declared.clear();
    for (const Access& access : accesses_.ranges()) {
      const void* base = reinterpret_cast<const void*>(access.begin);
      if (access.space != 0 || !guarded.arena->contains(base)) continue;
      const uint64_t bytes = access.end - access.begin;
      const Arena::Allocation* a = guarded.arena->allocation_of(base);
      tidepool_check(a != nullptr, "operation '{}' declares {} bytes at {}, outside every allocation", type.name, bytes,
                     base);
      tidepool_check(static_cast<const std::byte*>(base) + bytes <= a->base + a->bytes,
                     "operation '{}' declares bytes {} to {} of '{}', which has {}", type.name,
                     static_cast<const std::byte*>(base) - a->base,
                     static_cast<const std::byte*>(base) + bytes - a->base, a->what, a->bytes);
      guarded.declared.push_back({base, bytes, access.write});
    }
  }
  for (Guarded& guarded : arenas_) {
    drop_completed(guarded);
    apply(guarded);
  }
}

void Protection::end(const Event* done, uint64_t target) {
  for (Guarded& guarded : arenas_) {
    if (done != nullptr) {
      for (const Arena::Range& range : guarded.declared) guarded.in_flight.push_back({range, done, target});
    }
    guarded.declared.clear();
    drop_completed(guarded);
    apply(guarded);
  }
}

void Protection::close_completed() {
  for (Guarded& guarded : arenas_) {
    const size_t before = guarded.in_flight.size();
    drop_completed(guarded);
    if (guarded.in_flight.size() != before) apply(guarded);
  }
}

void Protection::drop_completed(Guarded& guarded) {
  std::erase_if(guarded.in_flight, [](const InFlight& f) { return f.done->completed() >= f.target; });
}

void Protection::apply(Guarded& guarded) {
  open_ = guarded.declared;
  for (const InFlight& f : guarded.in_flight) open_.push_back(f.range);
  guarded.arena->set_open(open_);
}

}  // namespace tidepool::device
