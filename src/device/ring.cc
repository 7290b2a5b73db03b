#include "device/ring.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tidepool::device {
namespace {

// Written where an entry would not fit before the end: the entry starts at position 0 of the ring.
struct Skip {
  EntryKind kind;
  uint32_t bytes;
};

}  // namespace

Ring::Ring(uint32_t bytes) : capacity_(std::bit_ceil(std::max<size_t>(bytes, 4096))), bytes_(make(capacity_)) {}

void Ring::push(const Entry& entry, const void* params) {
  const size_t to_end = capacity_ - (tail_ & (capacity_ - 1));
  const size_t padding = entry.bytes > to_end ? to_end : 0;
  if (tail_ - head_ + padding + entry.bytes > capacity_) {
    grow(entry.bytes);
    return push(entry, params);
  }
  if (padding > 0) {
    const Skip skip{EntryKind::kSkip, static_cast<uint32_t>(padding)};
    std::memcpy(&at(tail_), &skip, sizeof(skip));
    tail_ += padding;
  }
  Entry& place = at(tail_);
  place = entry;
  if (entry.params_bytes > 0) std::memcpy(&place + 1, params, entry.params_bytes);
  tail_ += entry.bytes;
}

uint64_t Ring::skip_padding(uint64_t position) const {
  if (position == tail_) return position;
  Skip skip;
  std::memcpy(&skip, &bytes_[position & (capacity_ - 1)], sizeof(skip));
  return skip.kind == EntryKind::kSkip ? position + skip.bytes : position;
}

void Ring::pop() {
  head_ = skip_padding(head_ + front().bytes);
  if (head_ == tail_) head_ = tail_ = 0;  // the next step finds its bytes in the cache; and front() is never padding
  if (!outgrown_.empty()) outgrown_.clear();
}

const OpType* Ring::next_operation() const {
  for (uint64_t position = head_; position != tail_; position = skip_padding(position + at(position).bytes)) {
    if (at(position).kind == EntryKind::kOp) return at(position).type;
  }
  return nullptr;
}

void Ring::grow(size_t needed) {
  const size_t capacity = std::bit_ceil(2 * capacity_ + needed);
  std::unique_ptr<std::byte[]> bytes = make(capacity);
  uint64_t end = 0;
  for (uint64_t position = head_; position != tail_; position = skip_padding(position + at(position).bytes)) {
    std::memcpy(&bytes[end], &at(position), at(position).bytes);
    end += at(position).bytes;
  }
  outgrown_.push_back(std::move(bytes_));
  bytes_ = std::move(bytes);
  capacity_ = capacity;
  head_ = 0;
  tail_ = end;
}

}  // namespace tidepool::device
