// Host stores for tests.
//
// MemoryRowStore: plain arrays; every copy is done before the call returns.
// DelayedRowStore: delays, reorders and fails the requests of a store behind it, and checks that no record is read
// before its write was complete. Who makes the delayed requests move: pump() on the host thread, or a thread of its
// own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "tidepool/ops/row_store.h"

namespace tidepool::testing {

enum class Layout { kInterleaved, kSeparate };
inline const char* layout_name(Layout layout) { return layout == Layout::kInterleaved ? "interleaved" : "separate"; }

// Memory of the rows of a group's layers, in either layout: rows of all layers next to each other, or one latent and
// one rope tensor per layer.
class RowMemory {
 public:
  RowMemory() = default;
  RowMemory(int64_t num_rows, int32_t num_layers, const RowFormat& format, Layout layout);
  RowPlanes planes(int32_t layer);
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  int64_t num_rows_ = 0;
  int32_t num_layers_ = 0;
  RowFormat format_;
  Layout layout_ = Layout::kInterleaved;
  std::vector<std::byte> bytes_;
};

// Bytes of one row, latent then rope.
std::vector<std::byte> read_row(const RowPlanes& planes, int64_t row);
void write_row(const RowPlanes& planes, int64_t row, const std::vector<std::byte>& bytes);

class MemoryRowStore : public ops::RowStore {
 public:
  // layers[g] = layers of group g.
  MemoryRowStore(const std::vector<int32_t>& layers, int64_t num_records, const RowFormat& format,
                 Layout layout = Layout::kInterleaved);
  void fetch(const ops::RowTransfer& transfer, device::Event& done) override;
  void store(const ops::RowTransfer& transfer, device::Event& done) override;
  uint64_t resource(int32_t group, int32_t layer_in_group) const override;

  int64_t num_records() const { return num_records_; }
  RowMemory& memory(int32_t group) { return groups_[static_cast<size_t>(group)]; }
  // Rows of one layer, by record; for tests that look or damage.
  RowPlanes planes(int32_t group, int32_t layer) { return memory(group).planes(layer); }

 private:
  int64_t num_records_;
  std::vector<RowMemory> groups_;
};

struct DelayOptions {
  uint64_t seed = 1;
  int32_t hold_percent = 50;  // chance that a pump only lets time pass
  int32_t fail_percent = 0;   // chance that a request fails
  // Decides about failure instead of the chance, when given.
  std::function<bool(const ops::RowTransfer& transfer, bool is_store)> fails = nullptr;
};

class DelayedRowStore : public ops::RowStore {
 public:
  // `inner` copies before its calls return (MemoryRowStore and any store in memory do); not owned.
  DelayedRowStore(ops::RowStore& inner, const DelayOptions& options);
  // Completes everything first.
  ~DelayedRowStore() override;

  void fetch(const ops::RowTransfer& transfer, device::Event& done) override;
  void store(const ops::RowTransfer& transfer, device::Event& done) override;
  uint64_t resource(int32_t group, int32_t layer_in_group) const override;

  // Moves one request along; false: none is waiting. For Executor::add_pump.
  bool pump();
  void drain();
  // From now on a thread of the store's own moves the requests; pump() does nothing then.
  void start_thread();

  // Records that hold rows without having been stored through here, and records whose rows are no longer anyone's
  // (their block was freed): a later read without a new write is a violation.
  void mark_written(int32_t group, int32_t layer, int64_t first, int64_t count);
  void forget(int32_t group, int32_t layer, int64_t first, int64_t count);

  // One sentence each: a read of a record that was not written, or while it was being written, a write under a read.
  std::vector<std::string> violations() const;
  int64_t num_completed() const;
  int64_t num_failed() const;
  int64_t num_reordered() const;  // requests completed before one that was issued earlier

 private:
  struct Request {
    ops::RowTransfer transfer;
    device::Event* done;
    bool is_store;
    bool fails;
    uint64_t number;
    std::vector<int32_t> order;  // copies still to do, last first
  };
  struct Record {
    bool written = false;
    int32_t reads = 0, writes = 0;  // in flight
  };
  void add(const ops::RowTransfer& transfer, device::Event& done, bool is_store);
  bool pump_locked();
  void advance(Request& request, size_t num_copies);
  void complete(size_t index);
  void violation(const char* what, const ops::RowTransfer& transfer, int32_t record);
  Record& record(const ops::RowTransfer& transfer, int32_t index) {
    return records_[{transfer.group, transfer.layer_in_group, index}];
  }
  int32_t percent() { return static_cast<int32_t>(random_() % 100); }

  ops::RowStore& inner_;
  DelayOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Request>> waiting_;
  std::map<std::tuple<int32_t, int32_t, int64_t>, Record> records_;
  std::vector<std::string> violations_;
  uint64_t issued_ = 0;
  int64_t completed_ = 0, failed_ = 0, reordered_ = 0;
  bool threaded_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace tidepool::testing
