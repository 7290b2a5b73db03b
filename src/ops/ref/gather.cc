#include <algorithm>

#include "ops/accesses.h"
#include "ops/batch.h"
#include "ops/costs.h"
#include "ops/pieces.h"
#include "ops/rows.h"

namespace tidepool::ops {
namespace {

// What becomes of a list entry; a number >= 0 is the place where its row lies already.
enum : int32_t { kRead = -1, kDropped = -2 };

// One query's list and selection.
struct List {
  const GatherParams& p;
  int32_t b;
  int64_t slot, first_entry, first_row;  // of the lists; of the selection
  int32_t visible, newest_final, spilled_len;
  const int32_t* ids;
  int32_t* places;     // the status row
  int32_t* source;     // [topk] of each entry
  int32_t* is_wanted;  // [topk] the row at a place stays or is moved
  int32_t num_ids = 0;
};

List list_of(const GatherParams& p, int32_t piece, int64_t slot) {
  const int32_t b = piece / p.batch.q_len, q = piece % p.batch.q_len;
  const int64_t first_entry = static_cast<int64_t>(piece) * p.topk, row = slot * p.status_queries + q;
  int32_t* scratch = p.scratch + first_entry * kGatherScratch;
  return {.p = p,
          .b = b,
          .slot = slot,
          .first_entry = first_entry,
          .first_row = row * p.topk,
          .visible = visible_bound(p.batch.seq_len[b], p.batch.q_len, q),
          .newest_final = final_bound(p.batch, b),
          .spilled_len = p.batch.spilled_len[b],
          .ids = p.topk_indices + first_entry,
          .places = p.place_status + row * (p.topk + 1),
          .source = scratch,
          .is_wanted = scratch + p.topk};
}

void drop_what_is_not_there(List& list) {
  const GatherParams& p = list.p;
  for (int32_t i = 0; i < p.topk; ++i) {
    const int32_t id = list.ids[i];
    list.source[i] = kDropped;
    if (id < 0 || id > list.visible) continue;
    if (id >= static_cast<int64_t>(p.max_blocks) * p.block_size) {
      set_status(&p.status[list.slot], RequestStatus::kBadPosition);
      continue;
    }
    list.source[i] = kRead;
    ++list.num_ids;
  }
}

void find_rows_of_the_last_step(List& list) {
  for (int32_t place = 0; place < list.p.topk; ++place) list.is_wanted[place] = 0;
  for (int32_t i = 0; i < list.p.topk; ++i) {
    if (list.source[i] == kDropped || list.ids[i] > list.newest_final) continue;
    for (int32_t place = 0; place < list.p.topk && list.source[i] == kRead; ++place) {
      if (list.places[place] != list.ids[i] || list.is_wanted[place] != 0) continue;
      list.source[i] = place;
      list.is_wanted[place] = 1;
    }
  }
}

// Where a row that must be read is. kNone: nowhere.
struct Found {
  Place place = Place::kNone;
  int64_t row = 0;  // of the window ring or the host store (a record)
};

Found find(const List& list, int32_t position) {
  const GatherParams& p = list.p;
  if (position > list.newest_final || position >= list.spilled_len) {
    if (position <= int64_t{p.batch.seq_len[list.b]} - 1 - p.window_rows) return {};
    return {Place::kWindow, list.slot * p.window_rows + position % p.window_rows};
  }
  const int64_t block = p.block_table[list.slot * p.max_blocks + position / p.block_size];
  if (block < 0) return {};
  return {Place::kHost, block * p.block_size + position % p.block_size};
}

// Fills a row of the selection with the row of entry i, at once or through `copies`. False: there is none.
bool fill(const List& list, int32_t i, int64_t to, RowCopy* copies, int32_t& num_copies) {
  const GatherParams& p = list.p;
  if (list.source[i] >= 0) {
    // Nothing has overwritten it: only places below num_ids are filled, and it lies above.
    RowCopier(p.selection, p.selection).copy(to, list.first_row + list.source[i]);
    return true;
  }
  const Found found = find(list, list.ids[i]);
  switch (found.place) {
    case Place::kWindow:
      RowCopier(p.selection, p.window).copy(to, found.row);
      return true;
    case Place::kHost:
      copies[num_copies++] = {static_cast<int32_t>(found.row), static_cast<int32_t>(to)};
      return true;
    default:
      zero_row(p.selection, to);
      set_status(&p.status[list.slot], RequestStatus::kRowNotDurable);
      return false;
  }
}

// Returns how many rows are left to the store.
int32_t fill_places(List& list, RowCopy* copies) {
  const GatherParams& p = list.p;
  int32_t num_copies = 0, next_free = 0;
  for (int32_t i = 0; i < p.topk; ++i) {
    p.locations[list.first_entry + i] = {};
    if (list.source[i] == kDropped) continue;
    int32_t place = list.source[i];
    if (place < 0 || place >= list.num_ids) {
      // There is one: below num_ids as many places are free as there are ids that do not stay.
      while (list.is_wanted[next_free] != 0) ++next_free;
      place = next_free++;
      const bool exists = fill(list, i, list.first_row + place, copies, num_copies);
      list.places[place] = exists ? list.ids[i] : -1;
      if (!exists) continue;
    }
    p.locations[list.first_entry + i] = {Place::kSelection, static_cast<int32_t>(list.first_row + place)};
  }
  for (int32_t place = list.num_ids; place < p.topk; ++place) list.places[place] = -1;
  list.places[p.topk] = list.num_ids;
  return num_copies;
}

void count(const List& list) {
  const GatherParams& p = list.p;
  if (p.counts == nullptr) return;
  // Queries of one row count to the same numbers.
  const auto add_one = [&](int64_t kind) {
    std::atomic_ref<int64_t>(p.counts[list.slot * 4 + kind]).fetch_add(1, std::memory_order_relaxed);
  };
  for (int32_t i = 0; i < p.topk; ++i) {
    if (list.source[i] == kDropped) continue;
    const bool is_window = list.ids[i] > list.newest_final, is_hit = list.source[i] >= 0;
    add_one(is_window ? 2 : is_hit ? 0 : 1);
    if (!is_window && !is_hit && list.ids[i] >= list.spilled_len) add_one(3);
  }
}

void run(const GatherParams& p, int32_t piece, int32_t) {  // piece = b * q_len + q
  const int64_t slot = active_slot(p.batch, piece / p.batch.q_len);
  if (slot < 0) {
    p.done->finish_piece();
    return;
  }
  List list = list_of(p, piece, slot);
  RowCopy* copies = p.copies + list.first_entry;
  drop_what_is_not_there(list);
  find_rows_of_the_last_step(list);
  const int32_t num_copies = fill_places(list, copies);
  count(list);
  std::atomic_ref<int64_t>(p.fetched_rows[slot]).fetch_add(num_copies, std::memory_order_relaxed);
  // Last: the piece is finished, for whoever waits on the event, as soon as the store says so.
  p.store->fetch({p.group, p.layer_in_group, copies, num_copies, p.selection, &p.status[slot]}, *p.done);
}

constexpr device::OpType kType = device::make_op_type<GatherParams, gather_pieces, run, declare_gather, cost_gather>(
    "gather (ref)", device::Part::kServe);

void run_reset(const GatherResetParams& p, int32_t piece, int32_t) {
  const int64_t slot = p.slots[piece];
  if (slot < 0 || slot >= p.num_cache_slots) return;
  for (int64_t row = slot * p.status_queries; row < (slot + 1) * p.status_queries; ++row) {
    int32_t* places = p.place_status + row * (p.topk + 1);
    std::fill_n(places, p.topk, -1);
    places[p.topk] = 0;
  }
}

constexpr device::OpType kResetType =
    device::make_op_type<GatherResetParams, gather_reset_pieces, run_reset, declare_gather_reset, cost_gather_reset>(
        "gather_reset", device::Part::kOther);

}  // namespace

const device::OpType& gather_ref() { return kType; }
const device::OpType& gather_reset() { return kResetType; }

}  // namespace tidepool::ops
