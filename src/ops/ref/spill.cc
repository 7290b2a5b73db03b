#include <algorithm>

#include "ops/accesses.h"
#include "ops/batch.h"
#include "ops/costs.h"
#include "ops/pieces.h"
#include "ops/spill_turn.h"

namespace tidepool::ops {
namespace {

int64_t wanted_copies(const SpillParams& p, int32_t b) { return p.cache_slot[b] < 0 ? 0 : std::max(p.count[b], 0); }

void run(const SpillParams& params, int32_t b, int32_t) {
  const SpillParams p = at_turn(params);
  const int64_t slot = p.cache_slot[b], count = wanted_copies(p, b);
  int64_t before = 0;
  for (int32_t other = 0; other < b; ++other) before += wanted_copies(p, other);
  if (count > 0 && before + count > p.max_copies) set_status(&p.status[slot], RequestStatus::kSpillFailed);
  if (count == 0 || before + count > p.max_copies) {
    p.done->finish_piece();
    return;
  }

  RowCopy* copies = p.copies + before;
  int32_t num_copies = 0;
  const int64_t rows = p.source_rows[b], base = p.source_base[b], origin = p.source_origin[b];
  for (int64_t position = p.first[b]; position < p.first[b] + count; ++position) {
    const int64_t logical = position / p.block_size;
    const bool reachable = position >= 0 && position >= origin && rows > 0 && logical < p.max_blocks;
    const int64_t block = reachable ? p.block_table[slot * p.max_blocks + logical] : -1;
    if (block < 0) {
      set_status(&p.status[slot], RequestStatus::kBadPosition);
      continue;
    }
    copies[num_copies++] = {static_cast<int32_t>(block * p.block_size + position % p.block_size),
                            static_cast<int32_t>(base + (position - origin) % rows)};
  }
  p.store->store({p.group, p.layer_in_group, copies, num_copies, p.source, &p.status[slot]}, *p.done);
}

constexpr device::OpType kType = device::make_op_type<SpillParams, spill_pieces, run, declare_spill, cost_spill>(
    "spill (ref)", device::Part::kSpill);

}  // namespace

const device::OpType& spill_ref() { return kType; }

}  // namespace tidepool::ops
