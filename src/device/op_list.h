// Streams by number, and the bytes of a step: operations, event records and event waits of all streams in push order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/ring.h"
#include "tidepool/event.h"
#include "tidepool/op.h"

namespace tidepool::device {

using StreamId = int32_t;
inline constexpr StreamId kMainStream = 0;
inline constexpr StreamId kSideStream = 1;
inline constexpr StreamId kSpillStream = 2;
inline constexpr int32_t kNumStreams = 3;

// Copyable; holds no state of one run. Holds addresses: of operator types, events and whatever the parameters point to.
class OpList {
 public:
  OpList() = default;
  explicit OpList(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}  // bytes() of another list
  const std::vector<std::byte>& bytes() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }
  void clear() { bytes_.clear(); }

  // An operation with type.params_bytes bytes of parameters, which are copied; `done` is null unless it is
  // asynchronous.
  void append_operation(StreamId stream, const OpType& type, const void* params, Event* done);
  void append_record(StreamId stream, Event& event);
  void append_wait(StreamId stream, Event& event);
  void append(const Entry& entry, const void* params);

 private:
  std::vector<std::byte> bytes_;
};

Entry make_entry(EntryKind kind, StreamId stream, uint32_t params_bytes, const OpType* type, Event* event);
// Throws Error for a stream that does not exist.
void check_stream(StreamId stream);

// Goes through a list in push order. Throws Error where the bytes are no entry. The list stays as it is meanwhile.
class OpListReader {
 public:
  explicit OpListReader(const OpList& list) : bytes_(list.bytes()) {}
  // Moves to the next entry (at first to the first one); false: there is none.
  bool next();
  const Entry& entry() const { return entry_; }
  const std::byte* params() const { return params_; }  // aligned for every operator, as the list's bytes are not

 private:
  const std::vector<std::byte>& bytes_;
  size_t at_ = 0;
  Entry entry_{};
  alignas(16) std::byte params_[kMaxParamsBytes];
};

}  // namespace tidepool::device
