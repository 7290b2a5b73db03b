// The entries of one stream: a ring of bytes, first in, first out. An entry is a head and, for an operation, its
// parameters behind it, 16-byte aligned.
//
// An entry's address is fixed until the ring grows; the parameters of the entry at the head stay readable at their old
// address until it is popped, even when the ring grows meanwhile (workers may be reading them).
// Thread safety: one thread; workers read parameters only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tidepool/event.h"
#include "tidepool/op.h"

namespace tidepool::device {

enum class EntryKind : uint32_t { kSkip, kOp, kRecord, kWait };

// Also the format of an OpList, where target is 0: it is given when the entry is pushed.
struct alignas(16) Entry {
  EntryKind kind;
  uint32_t bytes;  // of the whole entry, a multiple of 16
  int32_t stream;
  uint32_t params_bytes;  // behind the head
  const OpType* type;     // operations; null otherwise
  Event* event;           // null: an operation that is not asynchronous
  uint64_t target;        // the count of completed records that this record makes or this wait needs

  const void* params() const { return this + 1; }
  static uint32_t bytes_with(uint32_t params_bytes) {
    return static_cast<uint32_t>(sizeof(Entry)) + (params_bytes + 15) / 16 * 16;
  }
};

class Ring {
 public:
  explicit Ring(uint32_t bytes);

  // Appends; allocates only when it must grow.
  void push(const Entry& entry, const void* params);
  bool empty() const { return head_ == tail_; }
  // The first entry; requires !empty().
  Entry& front() const { return at(head_); }
  void pop();
  // The type of the first operation at or behind the head; null when there is none.
  const OpType* next_operation() const;

 private:
  static std::unique_ptr<std::byte[]> make(size_t bytes) { return std::unique_ptr<std::byte[]>(new std::byte[bytes]); }
  Entry& at(uint64_t position) const { return *reinterpret_cast<Entry*>(&bytes_[position & (capacity_ - 1)]); }
  uint64_t skip_padding(uint64_t position) const;
  void grow(size_t needed);

  size_t capacity_;  // a power of two
  std::unique_ptr<std::byte[]> bytes_;
  uint64_t head_ = 0, tail_ = 0;                        // only grow; the position in the ring is the remainder
  std::vector<std::unique_ptr<std::byte[]>> outgrown_;  // kept for the entry at the head
};

}  // namespace tidepool::device
