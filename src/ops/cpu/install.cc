// As ref/install.cc; the selection rows of later records are loaded ahead of their copy.
#include <algorithm>

#include "ops/accesses.h"
#include "ops/batch.h"
#include "ops/costs.h"
#include "ops/pieces.h"
#include "ops/rows.h"
#include "policy/visit.h"

namespace tidepool::ops {
namespace {

constexpr int64_t kLookahead = 4;

template <typename Policy>
class Walk {
 public:
  Walk(const InstallParams& p, int32_t b, int64_t slot)
      : p_(p),
        copier_(p.pool, p.selection),
        entries_(static_cast<int64_t>(p.batch.q_len) * p.topk),
        selection_base_(b * entries_),
        records_(p.records + selection_base_),
        num_records_(std::clamp<int64_t>(p.num_records[b], 0, entries_)),
        seen_(p.seen + b * bitset_words(p.state.id_range)),
        pool_base_(slot * p.state.pool_size()),
        cursors_(p.state.cursor + slot * p.state.num_sets),
        copy_(p.cursor_copy + static_cast<int64_t>(b) * p.state.num_sets),
        slot_of_token_(p.state.slot_of_token + slot * p.state.id_range),
        token_of_slot_(p.state.token_of_slot + pool_base_),
        slot_state_(p.state.slot_state + pool_base_),
        generation_(p.state.generation[slot]),
        counts_(p.counts + 3 * slot) {}

  template <bool kUpdate>
  void run() {
    // Without an update the copy is the cursors; with one it counts the installs of each set.
    if (kUpdate) {
      std::fill_n(copy_, p_.state.num_sets, 0);
    } else {
      std::copy_n(cursors_, p_.state.num_sets, copy_);
    }
    int32_t* cursors = kUpdate ? cursors_ : copy_;
    const int32_t num_ways = p_.state.num_ways;
    for (int64_t i = 0; i < num_records_; ++i) {
      if (i + kLookahead < num_records_ && in_range(records_[i + kLookahead])) {
        copier_.prefetch(selection_row(records_[i + kLookahead]));
      }
      const InstallRecord record = records_[i];
      if (!in_range(record) || !first_time(record.position)) continue;
      policy::SetState set{num_ways, &cursors[record.set], nullptr, nullptr};
      const int32_t way = Policy::choose_way(set);
      if (way == policy::kNoVictim) continue;
      const int32_t at = record.set * num_ways + way;
      if (kUpdate) reserve(at);
      copier_.copy(pool_base_ + at, selection_row(record));
      if (kUpdate) {
        commit(at, record.position);
        counts_[2] += ++copy_[record.set] > num_ways;
      }
    }
    for (int64_t i = 0; i < num_records_; ++i) {
      if (in_range(records_[i])) seen_[static_cast<uint32_t>(records_[i].position) / 32] = 0;
    }
  }

 private:
  static bool below(int32_t value, int32_t limit) {
    return static_cast<uint32_t>(value) < static_cast<uint32_t>(limit);
  }
  bool in_range(const InstallRecord& record) const {
    return below(record.position, p_.state.id_range) && below(record.set, p_.state.num_sets) &&
           below(record.query, p_.batch.q_len) && below(record.place, p_.topk);
  }
  bool first_time(int32_t position) {
    uint32_t& word = seen_[static_cast<uint32_t>(position) / 32];
    const uint32_t bit = 1u << (static_cast<uint32_t>(position) % 32);
    if ((word & bit) != 0) return false;
    word |= bit;
    return true;
  }
  int64_t selection_row(const InstallRecord& record) const {
    return selection_base_ + static_cast<int64_t>(record.query) * p_.topk + record.place;
  }
  void reserve(int32_t at) {
    const int32_t old = token_of_slot_[at];
    if (below(old, p_.state.id_range)) {
      slot_of_token_[old] = -1;
      ++counts_[1];
    }
    token_of_slot_[at] = -1;
    slot_state_[at] = -generation_;
  }
  void commit(int32_t at, int32_t position) {
    token_of_slot_[at] = position;
    slot_of_token_[position] = at;
    slot_state_[at] = generation_;
    ++counts_[0];
  }

  const InstallParams& p_;
  RowCopier copier_;
  int64_t entries_, selection_base_;
  const InstallRecord* records_;
  int64_t num_records_;
  uint32_t* seen_;
  int64_t pool_base_;
  int32_t *cursors_, *copy_, *slot_of_token_, *token_of_slot_, *slot_state_;
  int32_t generation_;
  int64_t* counts_;
};

void run(const InstallParams& p, int32_t b, int32_t) {
  const int64_t slot = active_slot(p.batch, b);
  if (slot < 0 || load_status(&p.status[slot]) != RequestStatus::kOk) return;
  policy::visit(static_cast<policy::Kind>(p.state.policy), [&](auto policy) {
    Walk<decltype(policy)> walk(p, b, slot);
    if (p.metadata_update != 0) {
      walk.template run<true>();
    } else {
      walk.template run<false>();
    }
  });
}

constexpr device::OpType kType =
    device::make_op_type<InstallParams, install_pieces, run, declare_install, cost_install>("install",
                                                                                            device::Part::kInstall);

}  // namespace

const device::OpType& install_cpu() { return kType; }

}  // namespace tidepool::ops
