// As ref/gather.cc; the places of the last step are found through a hash table, a probe or two per id whatever the
// order of the list. Which ids are hits cannot be predicted, so what comes after the look-up does not branch on it:
// entries that need a place and places that are free are listed, then paired. Rows that the piece copies itself are few
// (ids of this step and those not spilled yet), so nothing is loaded ahead of them.
#include <algorithm>
#include <bit>

#include "ops/accesses.h"
#include "ops/batch.h"
#include "ops/costs.h"
#include "ops/pieces.h"
#include "ops/rows.h"

namespace tidepool::ops {
namespace {

// What becomes of a list entry; a number >= 0 is the place where its row lies already.
enum : int32_t { kRead = -1, kDropped = -2 };

// Places by the position they hold: open addressing, at most a quarter full, in [table_slots(topk)] words of scratch.
// Entries are place + 1, 0 is empty. Places enter in ascending order, so the lowest of one position is met first.
constexpr uint32_t table_slots(int32_t topk) { return std::bit_ceil(4 * static_cast<uint32_t>(topk)); }
static_assert(kGatherScratch >= 2 + 8);  // source, is_wanted and the table; table_slots(topk) < 8 * topk

class PlacesByPosition {
 public:
  PlacesByPosition(int32_t* slots, const int32_t* places, int32_t topk, int32_t num_places)
      : slots_(slots), places_(places), mask_(table_slots(topk) - 1), shift_(std::countl_zero(mask_)) {
    std::fill_n(slots, table_slots(topk), 0);
    for (int32_t place = 0; place < num_places; ++place) {
      if (places[place] < 0) continue;
      uint32_t at = slot_of(places[place]);
      while (slots[at] != 0) at = (at + 1) & mask_;
      slots[at] = place + 1;
    }
  }
  // The lowest place of `id` that nobody wants yet; kRead when there is none.
  int32_t find(int32_t id, const int32_t* is_wanted) const {
    for (uint32_t at = slot_of(id); slots_[at] != 0; at = (at + 1) & mask_) {
      const int32_t place = slots_[at] - 1;
      if (places_[place] == id && is_wanted[place] == 0) return place;
    }
    return kRead;
  }

 private:
  // The high bits of a product with 2^32 / golden ratio: positions next to each other lie far apart.
  uint32_t slot_of(int32_t id) const { return static_cast<uint32_t>(id) * 0x9E3779B9u >> shift_; }
  const int32_t* slots_;
  const int32_t* places_;
  uint32_t mask_;
  int shift_;
};

// One query's list and selection.
class List {
 public:
  List(const GatherParams& p, int32_t piece, int64_t slot)
      : p_(p),
        from_selection_(p.selection, p.selection),
        from_window_(p.selection, p.window),
        slot_(slot),
        first_entry_(static_cast<int64_t>(piece) * p.topk),
        ids_(p.topk_indices + first_entry_) {
    const int32_t b = piece / p.batch.q_len, q = piece % p.batch.q_len;
    const int64_t row = slot * p.status_queries + q, seq_len = p.batch.seq_len[b];
    first_row_ = row * p.topk;
    places_ = p.place_status + row * (p.topk + 1);
    visible_ = visible_bound(p.batch.seq_len[b], p.batch.q_len, q);
    newest_final_ = final_bound(p.batch, b);
    spilled_len_ = p.batch.spilled_len[b];
    oldest_in_window_ = seq_len - p.window_rows;
    source_ = p.scratch + first_entry_ * kGatherScratch;
    is_wanted_ = source_ + p.topk;
    table_ = is_wanted_ + p.topk;
    pending_ = table_;  // the table is done with by then
    free_ = table_ + p.topk;
  }

  // Returns how many rows are left to the store, listed in copies.
  int32_t gather(RowCopy* copies) {
    compact();
    find_places();
    const int32_t num_pending = locate_what_stays();
    int32_t num_copies = 0;
    for (int32_t k = 0; k < num_pending; ++k) {
      const int32_t i = pending_[k], place = free_[k];
      const bool exists = fill(i, first_row_ + place, copies, num_copies);
      places_[place] = exists ? ids_[i] : -1;
      if (exists) p_.locations[first_entry_ + i] = {Place::kSelection, static_cast<int32_t>(first_row_ + place)};
    }
    std::fill(places_ + num_ids_, places_ + p_.topk, -1);
    places_[p_.topk] = num_ids_;
    return num_copies;
  }

  void count() const {
    if (p_.counts == nullptr) return;
    const int64_t counts[] = {hits_, num_ids_ - num_window_ - hits_, num_window_, unspilled_};
    for (int64_t kind = 0; kind < 4; ++kind) {
      std::atomic_ref<int64_t>(p_.counts[slot_ * 4 + kind]).fetch_add(counts[kind], std::memory_order_relaxed);
    }
  }

 private:
  void compact() {
    const int64_t table_end = static_cast<int64_t>(p_.max_blocks) * p_.block_size;
    const auto end = static_cast<int32_t>(std::min<int64_t>(int64_t{visible_} + 1, table_end));
    int32_t num_window = 0, num_beyond = 0;
    for (int32_t i = 0; i < p_.topk; ++i) {
      const int32_t id = ids_[i];
      const bool is_listed = id >= 0 && id < end;
      source_[i] = is_listed ? kRead : kDropped;
      num_ids_ += is_listed;
      num_window += is_listed && id > newest_final_;
      num_beyond += id >= end && id <= visible_;
    }
    num_window_ = num_window;
    if (num_beyond > 0) set_status(&p_.status[slot_], RequestStatus::kBadPosition);
  }

  void find_places() {
    std::fill_n(is_wanted_, p_.topk, 0);
    const int32_t num_places = std::clamp(places_[p_.topk], 0, p_.topk);
    if (num_places == 0) return;
    const PlacesByPosition table(table_, places_, p_.topk, num_places);
    for (int32_t i = 0; i < p_.topk; ++i) {
      if (source_[i] == kDropped || ids_[i] > newest_final_) continue;
      const int32_t place = table.find(ids_[i], is_wanted_);
      if (place == kRead) continue;
      source_[i] = place;
      is_wanted_[place] = 1;
      ++hits_;
    }
  }

  // Locations of the entries that stay, {kNone, 0} for all others. Lists what needs a place, and the places that are
  // free: as many. Returns how many entries need one.
  int32_t locate_what_stays() {
    const int32_t first_row = static_cast<int32_t>(first_row_);
    RowLocation* locations = p_.locations + first_entry_;
    int32_t num_pending = 0, num_free = 0;
    for (int32_t i = 0; i < p_.topk; ++i) {
      const int32_t place = source_[i];
      const bool stays = (place >= 0) & (place < num_ids_);
      locations[i].place = static_cast<Place>(stays ? static_cast<int32_t>(Place::kSelection) : 0);
      locations[i].index = stays ? first_row + place : 0;
      pending_[num_pending] = i;
      num_pending += !stays & (place != kDropped);
    }
    for (int32_t place = 0; place < num_ids_; ++place) {
      free_[num_free] = place;
      num_free += is_wanted_[place] == 0;
    }
    return num_pending;
  }

  // Fills row `to` of the selection with the row of entry i, at once or through `copies`. False: there is none.
  bool fill(int32_t i, int64_t to, RowCopy* copies, int32_t& num_copies) {
    const int32_t id = ids_[i];
    if (source_[i] >= 0) {
      // Nothing has overwritten it: only places below num_ids are filled, and it lies above.
      from_selection_.copy(to, first_row_ + source_[i]);
      return true;
    }
    const bool is_final = id <= newest_final_;
    if (is_final && id < spilled_len_) {
      const int64_t block = p_.block_table[slot_ * p_.max_blocks + id / p_.block_size];
      if (block < 0) return zero(to);
      copies[num_copies++] = {static_cast<int32_t>(block * p_.block_size + id % p_.block_size),
                              static_cast<int32_t>(to)};
      return true;
    }
    unspilled_ += is_final;
    if (id < oldest_in_window_) return zero(to);
    from_window_.copy(to, slot_ * p_.window_rows + id % p_.window_rows);
    return true;
  }
  bool zero(int64_t to) {
    zero_row(p_.selection, to);
    set_status(&p_.status[slot_], RequestStatus::kRowNotDurable);
    return false;
  }

  const GatherParams& p_;
  RowCopier from_selection_, from_window_;
  int64_t slot_, first_entry_, first_row_ = 0, oldest_in_window_ = 0;  // entries of the lists; rows of the selection
  const int32_t* ids_;
  int32_t* places_ = nullptr;     // the status row
  int32_t* source_ = nullptr;     // [topk] of each entry
  int32_t* is_wanted_ = nullptr;  // [topk] the row at a place stays or is moved
  int32_t* table_ = nullptr;
  int32_t* pending_ = nullptr;  // [topk] entries that need a place
  int32_t* free_ = nullptr;     // [topk] places, ascending
  int32_t visible_ = 0, newest_final_ = 0, spilled_len_ = 0;
  int32_t num_ids_ = 0, num_window_ = 0, hits_ = 0, unspilled_ = 0;
};

void run(const GatherParams& p, int32_t piece, int32_t) {  // piece = b * q_len + q
  const int64_t slot = active_slot(p.batch, piece / p.batch.q_len);
  if (slot < 0) {
    p.done->finish_piece();
    return;
  }
  List list(p, piece, slot);
  RowCopy* copies = p.copies + static_cast<int64_t>(piece) * p.topk;
  const int32_t num_copies = list.gather(copies);
  list.count();
  // Last: the piece is finished, for whoever waits on the event, as soon as the store says so.
  if (num_copies == 0) {
    p.done->finish_piece();
    return;
  }
  std::atomic_ref<int64_t>(p.fetched_rows[slot]).fetch_add(num_copies, std::memory_order_relaxed);
  p.store->fetch({p.group, p.layer_in_group, copies, num_copies, p.selection, &p.status[slot]}, *p.done);
}

constexpr device::OpType kType =
    device::make_op_type<GatherParams, gather_pieces, run, declare_gather, cost_gather>("gather", device::Part::kServe);

}  // namespace

const device::OpType& gather_cpu() { return kType; }

}  // namespace tidepool::ops
