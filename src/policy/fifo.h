// fifo, the published policy: set = low bits of the position; a cursor per set names the way overwritten next and moves
// on install only. Hits change nothing.
#pragma once

#include "policy/policy.h"

namespace tidepool::policy {

struct Fifo {
  static constexpr Kind kKind = Kind::kFifo;
  static constexpr const char* kName = "fifo";
  static constexpr bool kNeedsInUse = false;
  static constexpr bool kNeedsReferenced = false;

  static constexpr int32_t set_of(int32_t position, int32_t num_sets) { return position & (num_sets - 1); }

  // A cursor outside the set counts as 0: damaged state may choose a wrong way but never one outside the pool.
  static constexpr int32_t choose_way(SetState& set) {
    const int32_t way = *set.cursor >= 0 && *set.cursor < set.num_ways ? *set.cursor : 0;
    *set.cursor = way + 1 == set.num_ways ? 0 : way + 1;
    return way;
  }

  static constexpr void hit(SetState&, int32_t) {}
};
static_assert(Policy<Fifo>);

}  // namespace tidepool::policy
