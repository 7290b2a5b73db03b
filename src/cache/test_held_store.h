// A host store for tests of what is in flight.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tidepool/ops/row_store.h"

namespace tidepool::cache::testing {

// A store that keeps what it is to write until release_newest. Reads are done at once.
class HeldStore : public ops::RowStore {
 public:
  explicit HeldStore(std::unique_ptr<ops::RowStore> inner) : inner_(std::move(inner)) {}
  ~HeldStore() override {
    while (release_newest()) {
    }
  }
  void fetch(const ops::RowTransfer& transfer, device::Event& done) override { inner_->fetch(transfer, done); }
  void store(const ops::RowTransfer& transfer, device::Event& done) override { held_.push_back({transfer, &done}); }
  uint64_t resource(int32_t group, int32_t layer) const override { return inner_->resource(group, layer); }

  // False: nothing is held. For Executor::add_pump, which asks when nothing else can run.
  bool release_newest() {
    if (held_.empty()) return false;
    const Held held = held_.back();
    held_.pop_back();
    for (int32_t i = 0; i < held.transfer.count; ++i) ++stored_[{held.transfer.group, held.transfer.copies[i].record}];
    inner_->store(held.transfer, *held.done);
    return true;
  }
  // A copy to the record is still to come in some layer.
  bool holds(int32_t record) const {
    return std::any_of(held_.begin(), held_.end(), [&](const Held& held) { return held.has(record); });
  }
  // How many copies to the record, one for each layer of the group, are done.
  int32_t num_stored(int32_t group, int32_t record) const {
    const auto found = stored_.find({group, record});
    return found == stored_.end() ? 0 : found->second;
  }

 private:
  struct Held {
    ops::RowTransfer transfer;
    device::Event* done;
    bool has(int32_t record) const {
      return std::any_of(transfer.copies, transfer.copies + transfer.count,
                         [&](const ops::RowCopy& copy) { return copy.record == record; });
    }
  };
  std::unique_ptr<ops::RowStore> inner_;
  std::vector<Held> held_;
  std::map<std::pair<int32_t, int32_t>, int32_t> stored_;
};

}  // namespace tidepool::cache::testing
