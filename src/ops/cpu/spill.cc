// As ref/spill.cc; the copies of one store block are listed in one go.
#include <algorithm>

#include "ops/accesses.h"
#include "ops/batch.h"
#include "ops/costs.h"
#include "ops/pieces.h"
#include "ops/spill_turn.h"

namespace tidepool::ops {
namespace {

int64_t wanted_copies(const SpillParams& p, int32_t b) { return p.cache_slot[b] < 0 ? 0 : std::max(p.count[b], 0); }

// Lists the copies of batch row b; positions without a place in the store are left out.
int32_t list_copies(const SpillParams& p, int32_t b, int64_t slot, RowCopy* copies) {
  const int64_t end = int64_t{p.first[b]} + p.count[b];
  const int64_t stored_end = std::min(end, static_cast<int64_t>(p.max_blocks) * p.block_size);
  int64_t position = std::max({p.first[b], p.source_origin[b], 0});
  bool complete = position == p.first[b] && stored_end == end && p.source_rows[b] > 0;
  int32_t num_copies = 0;
  if (p.source_rows[b] > 0 && position < stored_end) {
    int64_t row = (position - p.source_origin[b]) % p.source_rows[b];
    while (position < stored_end) {
      const int64_t logical = position / p.block_size, offset = position - logical * p.block_size;
      const int64_t run = std::min(stored_end - position, p.block_size - offset);
      const int64_t block = p.block_table[slot * p.max_blocks + logical];
      complete = complete && block >= 0;
      for (int64_t i = 0; i < run; ++i) {
        if (block >= 0) {
          copies[num_copies++] = {static_cast<int32_t>(block * p.block_size + offset + i),
                                  static_cast<int32_t>(p.source_base[b] + row)};
        }
        row = row + 1 == p.source_rows[b] ? 0 : row + 1;
      }
      position += run;
    }
  }
  if (!complete) set_status(&p.status[slot], RequestStatus::kBadPosition);
  return num_copies;
}

void run(const SpillParams& params, int32_t b, int32_t) {
  const SpillParams p = at_turn(params);
  const int64_t slot = p.cache_slot[b], count = wanted_copies(p, b);
  if (count == 0) {
    p.done->finish_piece();
    return;
  }
  int64_t before = 0;
  for (int32_t other = 0; other < b; ++other) before += wanted_copies(p, other);
  if (before + count > p.max_copies) {
    set_status(&p.status[slot], RequestStatus::kSpillFailed);
    p.done->finish_piece();
    return;
  }
  RowCopy* copies = p.copies + before;
  const int32_t num_copies = list_copies(p, b, slot, copies);
  p.store->store({p.group, p.layer_in_group, copies, num_copies, p.source, &p.status[slot]}, *p.done);
}

constexpr device::OpType kType =
    device::make_op_type<SpillParams, spill_pieces, run, declare_spill, cost_spill>("spill", device::Part::kSpill);

}  // namespace

const device::OpType& spill_cpu() { return kType; }

namespace {

int32_t advance_pieces(const SpillAdvanceParams&) { return 1; }
void run_advance(const SpillAdvanceParams& p, int32_t, int32_t) { ++*p.turn; }
void declare_advance(const SpillAdvanceParams& p, device::AccessList& list) {
  list.read(p.turn, sizeof(int32_t));
  list.write(p.turn, sizeof(int32_t));
}
device::Cost cost_advance(const SpillAdvanceParams&) { return {sizeof(int32_t), sizeof(int32_t), 0, 0}; }

constexpr device::OpType kAdvance =
    device::make_op_type<SpillAdvanceParams, advance_pieces, run_advance, declare_advance, cost_advance>(
        "spill_advance", device::Part::kSpill);

}  // namespace

const device::OpType& spill_advance() { return kAdvance; }

}  // namespace tidepool::ops
