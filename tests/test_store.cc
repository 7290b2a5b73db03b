#include "test_store.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/check.h"
#include "tidepool/ops/plan_format.h"

namespace tidepool::testing {

using ops::RequestStatus;
using ops::RowCopy;
using ops::RowTransfer;

RowMemory::RowMemory(int64_t num_rows, int32_t num_layers, const RowFormat& format, Layout layout)
    : num_rows_(num_rows),
      num_layers_(num_layers),
      format_(format),
      layout_(layout),
      bytes_(static_cast<size_t>(num_rows * num_layers * format.row_bytes())) {}

RowPlanes RowMemory::planes(int32_t layer) {
  const int64_t row = format_.row_bytes();
  if (layout_ == Layout::kInterleaved) return joint_planes(bytes_.data() + layer * row, format_, num_layers_ * row);
  std::byte* latent = bytes_.data() + layer * num_rows_ * row;
  return {{latent, format_.latent_bytes(), format_.latent_bytes()},
          {latent + num_rows_ * format_.latent_bytes(), format_.rope_bytes(), format_.rope_bytes()}};
}

std::vector<std::byte> read_row(const RowPlanes& planes, int64_t row) {
  std::vector<std::byte> bytes(static_cast<size_t>(planes.latent.bytes + planes.rope.bytes));
  std::memcpy(bytes.data(), planes.latent.row(row), static_cast<size_t>(planes.latent.bytes));
  std::memcpy(bytes.data() + planes.latent.bytes, planes.rope.row(row), static_cast<size_t>(planes.rope.bytes));
  return bytes;
}

void write_row(const RowPlanes& planes, int64_t row, const std::vector<std::byte>& bytes) {
  std::memcpy(planes.latent.row(row), bytes.data(), static_cast<size_t>(planes.latent.bytes));
  std::memcpy(planes.rope.row(row), bytes.data() + planes.latent.bytes, static_cast<size_t>(planes.rope.bytes));
}

MemoryRowStore::MemoryRowStore(const std::vector<int32_t>& layers, int64_t num_records, const RowFormat& format,
                               Layout layout)
    : num_records_(num_records) {
  for (int32_t num_layers : layers) groups_.emplace_back(num_records, num_layers, format, layout);
}

void MemoryRowStore::fetch(const RowTransfer& transfer, device::Event& done) {
  const RowPlanes rows = planes(transfer.group, transfer.layer_in_group);
  for (int32_t i = 0; i < transfer.count; ++i) {
    const RowCopy& copy = transfer.copies[i];
    if (copy.record < 0 || copy.record >= num_records_) {
      ops::set_status(transfer.status, RequestStatus::kFetchFailed);
    } else {
      write_row(transfer.device, copy.row, read_row(rows, copy.record));
    }
  }
  done.finish_piece();
}

void MemoryRowStore::store(const RowTransfer& transfer, device::Event& done) {
  const RowPlanes rows = planes(transfer.group, transfer.layer_in_group);
  for (int32_t i = 0; i < transfer.count; ++i) {
    const RowCopy& copy = transfer.copies[i];
    if (copy.record < 0 || copy.record >= num_records_) {
      ops::set_status(transfer.status, RequestStatus::kSpillFailed);
    } else {
      write_row(rows, copy.record, read_row(transfer.device, copy.row));
    }
  }
  done.finish_piece();
}

uint64_t MemoryRowStore::resource(int32_t group, int32_t layer_in_group) const {
  return 1 + static_cast<uint64_t>(group) * 1000 + static_cast<uint64_t>(layer_in_group);
}

DelayedRowStore::DelayedRowStore(ops::RowStore& inner, const DelayOptions& options)
    : inner_(inner), options_(options), random_(options.seed) {}

DelayedRowStore::~DelayedRowStore() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  drain();
}

void DelayedRowStore::fetch(const RowTransfer& transfer, device::Event& done) { add(transfer, done, false); }
void DelayedRowStore::store(const RowTransfer& transfer, device::Event& done) { add(transfer, done, true); }
uint64_t DelayedRowStore::resource(int32_t group, int32_t layer_in_group) const {
  return inner_.resource(group, layer_in_group);
}

void DelayedRowStore::add(const RowTransfer& transfer, device::Event& done, bool is_store) {
  std::lock_guard lock(mutex_);
  auto request = std::make_unique<Request>();
  request->transfer = transfer;
  request->done = &done;
  request->is_store = is_store;
  request->number = issued_++;
  request->fails =
      transfer.count > 0 && (options_.fails ? options_.fails(transfer, is_store) : percent() < options_.fail_percent);
  for (int32_t i = 0; i < transfer.count; ++i) {
    request->order.push_back(i);
    const int32_t index = transfer.copies[i].record;
    Record& state = record(transfer, index);
    if (is_store) {
      if (state.reads > 0) violation("is written while it is read", transfer, index);
      if (state.writes > 0) violation("is written twice at the same time", transfer, index);
      state.written = false;
      ++state.writes;
    } else {
      if (state.writes > 0) violation("is read before its write is complete", transfer, index);
      if (state.writes == 0 && !state.written) violation("is read but was never written", transfer, index);
      ++state.reads;
    }
  }
  std::shuffle(request->order.begin(), request->order.end(), random_);
  waiting_.push_back(std::move(request));
  changed_.notify_all();
}

void DelayedRowStore::violation(const char* what, const RowTransfer& transfer, int32_t record) {
  violations_.push_back(
      fmt::format("record {} of group {}, layer {} {}", record, transfer.group, transfer.layer_in_group, what));
}

// Moves some copies; inner copies at once, its finish goes to an event nobody waits for.
void DelayedRowStore::advance(Request& request, size_t num_copies) {
  for (; num_copies > 0 && !request.order.empty(); --num_copies) {
    RowTransfer one = request.transfer;
    one.copies += request.order.back();
    one.count = 1;
    request.order.pop_back();
    device::Event ignored;
    ignored.start(1);
    if (request.is_store) {
      inner_.store(one, ignored);
    } else {
      inner_.fetch(one, ignored);
    }
  }
}

void DelayedRowStore::complete(size_t index) {
  Request& request = *waiting_[index];
  const RowTransfer& transfer = request.transfer;
  if (request.fails) {
    ++failed_;
    ops::set_status(transfer.status, request.is_store ? RequestStatus::kSpillFailed : RequestStatus::kFetchFailed);
  }
  for (int32_t i = 0; i < transfer.count; ++i) {
    Record& state = record(transfer, transfer.copies[i].record);
    if (request.is_store) {
      --state.writes;
      state.written = !request.fails;
    } else {
      --state.reads;
    }
  }
  reordered_ +=
      std::any_of(waiting_.begin(), waiting_.end(), [&](const auto& other) { return other->number < request.number; });
  ++completed_;
  device::Event* done = request.done;
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(index));
  // Last: from here on nothing of the transfer may be touched.
  done->finish_piece();
}

bool DelayedRowStore::pump_locked() {
  if (waiting_.empty()) return false;
  if (percent() < options_.hold_percent) return true;
  const size_t index = random_() % waiting_.size();
  Request& request = *waiting_[index];
  // A request that fails leaves half of its copies undone and their destinations as garbage.
  const size_t undone = request.fails ? (static_cast<size_t>(request.transfer.count) + 1) / 2 : 0;
  const size_t left = request.order.size() > undone ? request.order.size() - undone : 0;
  advance(request, std::min<size_t>(left, 1 + random_() % 8));
  if (request.order.size() > undone) return true;
  if (!request.is_store) {
    for (int32_t i : request.order) {
      const RowPlanes& planes = request.transfer.device;
      write_row(planes, request.transfer.copies[i].row,
                std::vector<std::byte>(static_cast<size_t>(planes.latent.bytes + planes.rope.bytes), std::byte{0xEE}));
    }
  }
  complete(index);
  return true;
}

bool DelayedRowStore::pump() {
  std::lock_guard lock(mutex_);
  return !threaded_ && pump_locked();
}

void DelayedRowStore::drain() {
  std::lock_guard lock(mutex_);
  while (pump_locked()) {
  }
}

void DelayedRowStore::start_thread() {
  std::lock_guard lock(mutex_);
  tidepool_check(!threaded_, "the store's thread runs already");
  threaded_ = true;
  thread_ = std::thread([this] {
    std::unique_lock held(mutex_);
    while (!stopping_) {
      if (!pump_locked()) {
        changed_.wait(held, [this] { return stopping_ || !waiting_.empty(); });
      } else if (percent() < 20) {
        held.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(20));
        held.lock();
      }
    }
  });
}

void DelayedRowStore::mark_written(int32_t group, int32_t layer, int64_t first, int64_t count) {
  std::lock_guard lock(mutex_);
  for (int64_t i = first; i < first + count; ++i) records_[{group, layer, i}].written = true;
}

void DelayedRowStore::forget(int32_t group, int32_t layer, int64_t first, int64_t count) {
  std::lock_guard lock(mutex_);
  for (int64_t i = first; i < first + count; ++i) records_[{group, layer, i}].written = false;
}

std::vector<std::string> DelayedRowStore::violations() const {
  std::lock_guard lock(mutex_);
  return violations_;
}
int64_t DelayedRowStore::num_completed() const {
  std::lock_guard lock(mutex_);
  return completed_;
}
int64_t DelayedRowStore::num_failed() const {
  std::lock_guard lock(mutex_);
  return failed_;
}
int64_t DelayedRowStore::num_reordered() const {
  std::lock_guard lock(mutex_);
  return reordered_;
}

}  // namespace tidepool::testing
