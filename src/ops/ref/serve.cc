#include <algorithm>

#include "ops/accesses.h"
#include "ops/batch.h"
#include "ops/costs.h"
#include "ops/pieces.h"
#include "ops/rows.h"

namespace tidepool::ops {
namespace {

// Where the row of one plan entry is. kNone: nowhere, the row is zero; status says whether that is a failure.
struct Found {
  Place place = Place::kNone;
  int64_t row = 0;  // of the pool, the window ring or the host store (a record)
  RequestStatus status = RequestStatus::kOk;
};

Found find_in_window(const ServeParams& p, int32_t b, int64_t slot, int32_t position) {
  const int64_t seq_len = p.batch.seq_len[b];
  if (position < 0 || position >= seq_len || position <= seq_len - 1 - p.window_rows) {
    return {Place::kNone, 0, RequestStatus::kRowNotDurable};
  }
  return {Place::kWindow, slot * p.window_rows + position % p.window_rows, RequestStatus::kOk};
}

Found find_in_store(const ServeParams& p, int64_t slot, int32_t position) {
  if (position < 0 || position / p.block_size >= p.max_blocks) return {Place::kNone, 0, RequestStatus::kBadPosition};
  const int64_t block = p.block_table[slot * p.max_blocks + position / p.block_size];
  if (block < 0) return {Place::kNone, 0, RequestStatus::kRowNotDurable};
  return {Place::kHost, block * p.block_size + position % p.block_size, RequestStatus::kOk};
}

Found find(const ServeParams& p, int32_t b, int64_t slot, const PlanEntry& entry) {
  switch (static_cast<Source>(entry.source)) {
    case Source::kHit:
      if (entry.index < 0 || entry.index >= p.pool_size) return {Place::kNone, 0, RequestStatus::kBadPosition};
      return {Place::kPool, slot * p.pool_size + entry.index, RequestStatus::kOk};
    case Source::kMiss:
      if (entry.index >= p.batch.spilled_len[b]) return find_in_window(p, b, slot, entry.index);
      return find_in_store(p, slot, entry.index);
    case Source::kWindow:
      return find_in_window(p, b, slot, entry.index);
    default:
      return {};
  }
}

void run(const ServeParams& p, int32_t piece, int32_t) {
  const int32_t list = piece / serve_slices(p.topk);  // b * q_len + q
  const int32_t b = list / p.batch.q_len;
  const int32_t begin = piece % serve_slices(p.topk) * kServeSlice, end = std::min(begin + kServeSlice, p.topk);
  const int64_t slot = active_slot(p.batch, b);
  if (slot < 0) {
    p.done->finish_piece();
    return;
  }
  const int64_t first = static_cast<int64_t>(list) * p.topk + begin;
  RowCopy* copies = p.copies + first;
  int32_t num_copies = 0;
  for (int64_t r = first; r < first + end - begin; ++r) {
    const Found found = find(p, b, slot, p.plan[r]);
    if (found.status != RequestStatus::kOk) set_status(&p.status[slot], found.status);
    switch (found.place) {
      case Place::kPool:
        RowCopier(p.selection, p.pool).copy(r, found.row);
        break;
      case Place::kWindow:
        RowCopier(p.selection, p.window).copy(r, found.row);
        break;
      case Place::kHost:
        copies[num_copies++] = {static_cast<int32_t>(found.row), static_cast<int32_t>(r)};
        break;
      default:
        zero_row(p.selection, r);
    }
    const bool exists = found.place != Place::kNone;
    p.locations[r] = {exists ? Place::kSelection : Place::kNone, exists ? static_cast<int32_t>(r) : 0};
  }
  std::atomic_ref<int64_t>(p.fetched_rows[slot]).fetch_add(num_copies, std::memory_order_relaxed);
  // Last: the piece is finished, for whoever waits on the event, as soon as the store says so.
  p.store->fetch({p.group, p.layer_in_group, copies, num_copies, p.selection, &p.status[slot]}, *p.done);
}

constexpr device::OpType kType = device::make_op_type<ServeParams, serve_pieces, run, declare_serve, cost_serve>(
    "serve (ref)", device::Part::kServe);

}  // namespace

const device::OpType& serve_ref() { return kType; }

}  // namespace tidepool::ops
