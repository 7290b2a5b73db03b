#include "device/op_list.h"

#include <cstring>

#include "base/check.h"

namespace tidepool::device {

void check_stream(StreamId stream) {
  tidepool_check(stream >= 0 && stream < kNumStreams, "stream {} does not exist: there are {}", stream, kNumStreams);
}

Entry make_entry(EntryKind kind, StreamId stream, uint32_t params_bytes, const OpType* type, Event* event) {
  return Entry{kind, Entry::bytes_with(params_bytes), stream, params_bytes, type, event, 0};
}

void OpList::append(const Entry& entry, const void* params) {
  const size_t begin = bytes_.size();
  bytes_.resize(begin + entry.bytes);
  std::memcpy(&bytes_[begin], &entry, sizeof(entry));
  if (params != nullptr) std::memcpy(bytes_.data() + begin + sizeof(entry), params, entry.params_bytes);
}

void OpList::append_operation(StreamId stream, const OpType& type, const void* params, Event* done) {
  append(make_entry(EntryKind::kOp, stream, static_cast<uint32_t>(type.params_bytes), &type, done), params);
}

void OpList::append_record(StreamId stream, Event& event) {
  append(make_entry(EntryKind::kRecord, stream, 0, nullptr, &event), nullptr);
}

void OpList::append_wait(StreamId stream, Event& event) {
  append(make_entry(EntryKind::kWait, stream, 0, nullptr, &event), nullptr);
}

bool OpListReader::next() {
  if (at_ == bytes_.size()) return false;
  tidepool_check(bytes_.size() - at_ >= sizeof(entry_), "the list of operations is cut off at byte {}", at_);
  std::memcpy(&entry_, &bytes_[at_], sizeof(entry_));
  tidepool_check(entry_.params_bytes <= kMaxParamsBytes && entry_.bytes == Entry::bytes_with(entry_.params_bytes) &&
                     entry_.bytes <= bytes_.size() - at_ && entry_.kind >= EntryKind::kOp &&
                     entry_.kind <= EntryKind::kWait &&
                     (entry_.kind == EntryKind::kOp ? entry_.type != nullptr : entry_.event != nullptr),
                 "the list of operations is damaged at byte {}", at_);
  check_stream(entry_.stream);
  if (entry_.params_bytes > 0) std::memcpy(params_, &bytes_[at_ + sizeof(entry_)], entry_.params_bytes);
  at_ += entry_.bytes;
  return true;
}

}  // namespace tidepool::device
