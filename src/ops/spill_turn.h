// The lists of the turn a spill runs in (spill.h), as parameters with one turn.
#pragma once

#include "tidepool/ops/spill.h"

namespace tidepool::ops {

inline SpillParams at_turn(const SpillParams& p, bool about_to_run = true) {
  const int32_t* turn_now = about_to_run ? p.turn : p.pushed_turn;
  if (turn_now == nullptr || p.num_turns <= 1) return p;
  SpillParams now = p;
  const int64_t turn = static_cast<int64_t>(static_cast<uint32_t>(*turn_now) % static_cast<uint32_t>(p.num_turns));
  now.num_turns = 1;
  now.num_rows += turn;
  for (const int32_t** list :
       {&now.cache_slot, &now.first, &now.count, &now.source_base, &now.source_origin, &now.source_rows}) {
    *list += turn * p.max_rows;
  }
  return now;
}

}  // namespace tidepool::ops
