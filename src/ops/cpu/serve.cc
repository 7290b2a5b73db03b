// As ref/serve.cc; pool rows and their targets are loaded ahead of the copy, and what is the same for all rows of a
// piece is computed once.
#include <algorithm>

#include "ops/accesses.h"
#include "ops/batch.h"
#include "ops/costs.h"
#include "ops/pieces.h"
#include "ops/rows.h"

namespace tidepool::ops {
namespace {

constexpr int64_t kLookahead = 4;

// One slice of one query's list.
class Slice {
 public:
  Slice(const ServeParams& p, int32_t b, int64_t slot)
      : p_(p),
        from_pool_(p.selection, p.pool),
        from_window_(p.selection, p.window),
        blocks_(p.block_table + slot * p.max_blocks),
        status_(p.status + slot),
        pool_base_(slot * p.pool_size),
        window_base_(slot * p.window_rows),
        seq_len_(p.batch.seq_len[b]),
        spilled_len_(p.batch.spilled_len[b]),
        oldest_in_window_(std::max<int64_t>(seq_len_ - p.window_rows, 0)) {}

  // Serves rows [first, end); returns how many it leaves to the store, listed in copies.
  int32_t serve(int64_t first, int64_t end, RowCopy* copies) const {
    int32_t num_copies = 0;
    for (int64_t r = first; r < end; ++r) {
      if (r + kLookahead < end) prefetch(r + kLookahead);
      const PlanEntry entry = p_.plan[r];
      bool exists = false;
      if (entry.source == kHit) {
        exists = copy_pool(r, entry.index);
      } else if (entry.source == kMiss && entry.index < spilled_len_) {
        const int64_t record = record_of(entry.index);
        exists = record >= 0;
        if (exists) copies[num_copies++] = {static_cast<int32_t>(record), static_cast<int32_t>(r)};
      } else if (entry.source == kMiss || entry.source == kWindow) {
        exists = copy_window(r, entry.index);
      }
      if (!exists) zero_row(p_.selection, r);
      p_.locations[r] = exists ? RowLocation{Place::kSelection, static_cast<int32_t>(r)} : RowLocation{};
    }
    return num_copies;
  }

 private:
  static constexpr int32_t kHit = static_cast<int32_t>(Source::kHit), kMiss = static_cast<int32_t>(Source::kMiss),
                           kWindow = static_cast<int32_t>(Source::kWindow);

  bool in_pool(int32_t index) const { return static_cast<uint32_t>(index) < static_cast<uint32_t>(p_.pool_size); }
  void prefetch(int64_t r) const {
    const PlanEntry entry = p_.plan[r];
    if (entry.source != kHit || !in_pool(entry.index)) return;
    from_pool_.prefetch(pool_base_ + entry.index);
    from_pool_.prefetch_target(r);
  }
  bool copy_pool(int64_t r, int32_t index) const {
    if (!in_pool(index)) {
      set_status(status_, RequestStatus::kBadPosition);
      return false;
    }
    from_pool_.copy(r, pool_base_ + index);
    return true;
  }
  bool copy_window(int64_t r, int32_t position) const {
    if (position < oldest_in_window_ || position >= seq_len_) {
      set_status(status_, RequestStatus::kRowNotDurable);
      return false;
    }
    from_window_.copy(r, window_base_ + position % p_.window_rows);
    return true;
  }
  // The store's record of a position; negative: it has none.
  int64_t record_of(int32_t position) const {
    const int32_t logical = position / p_.block_size;
    if (position < 0 || logical >= p_.max_blocks) {
      set_status(status_, RequestStatus::kBadPosition);
      return -1;
    }
    const int64_t block = blocks_[logical];
    if (block < 0) {
      set_status(status_, RequestStatus::kRowNotDurable);
      return -1;
    }
    return block * p_.block_size + position % p_.block_size;
  }

  const ServeParams& p_;
  RowCopier from_pool_, from_window_;
  const int32_t* blocks_;
  int32_t* status_;
  int64_t pool_base_, window_base_, seq_len_, spilled_len_, oldest_in_window_;
};

void run(const ServeParams& p, int32_t piece, int32_t) {
  const int32_t slices = serve_slices(p.topk);
  const int32_t list = piece / slices;  // b * q_len + q
  const int32_t b = list / p.batch.q_len;
  const int64_t slot = active_slot(p.batch, b);
  if (slot < 0) {
    p.done->finish_piece();
    return;
  }
  const int32_t begin = (piece - list * slices) * kServeSlice, end = std::min(begin + kServeSlice, p.topk);
  const int64_t first = static_cast<int64_t>(list) * p.topk + begin;
  RowCopy* copies = p.copies + first;
  const int32_t num_copies = Slice(p, b, slot).serve(first, first + end - begin, copies);
  // Last: the piece is finished, for whoever waits on the event, as soon as the store says so.
  if (num_copies == 0) {
    p.done->finish_piece();
    return;
  }
  std::atomic_ref<int64_t>(p.fetched_rows[slot]).fetch_add(num_copies, std::memory_order_relaxed);
  p.store->fetch({p.group, p.layer_in_group, copies, num_copies, p.selection, &p.status[slot]}, *p.done);
}

constexpr device::OpType kType =
    device::make_op_type<ServeParams, serve_pieces, run, declare_serve, cost_serve>("serve", device::Part::kServe);

}  // namespace

const device::OpType& serve_cpu() { return kType; }

}  // namespace tidepool::ops
