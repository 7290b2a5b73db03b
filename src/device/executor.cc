#include "device/executor.h"

#include <cstring>

#include "base/check.h"
#include "device/executor_impl.h"

namespace tidepool::device {
namespace {

constexpr int kMaxThreads = 1024;

void check_stream(StreamId stream) {
  tidepool_check(stream >= 0 && stream < kNumStreams, "stream {} does not exist: there are {}", stream, kNumStreams);
}

Entry make_entry(EntryKind kind, StreamId stream, uint32_t params_bytes, const OpType* type, Event* event) {
  return Entry{kind, Entry::bytes_with(params_bytes), stream, params_bytes, type, event, 0};
}

}  // namespace

Executor::Impl::Impl(const ExecutorOptions& o) : options(o), random(o.seed), team(o.num_threads, o.pin_threads) {
  for (int stream = 0; stream < kNumStreams; ++stream) streams.emplace_back(o.ring_bytes);
  if (o.check_order) checker.emplace();
}

void Executor::Impl::push(Entry entry, const void* params) {
  Event* const event = entry.event;
  if (entry.kind == EntryKind::kWait) {
    if (event->enqueued_ == 0) return;
    entry.target = event->enqueued_;
    if (checker) checker->wait(entry.stream, event, entry.target);
  } else {
    if (event != nullptr) entry.target = event->enqueued_ + 1;
    if (checker && entry.kind == EntryKind::kOp) checker->push(entry.stream, *entry.type, params, event, entry.target);
    if (checker && entry.kind == EntryKind::kRecord) checker->record(entry.stream, event, entry.target);
    if (event != nullptr) ++event->enqueued_;
  }
  streams[entry.stream].ring.push(entry, params);
}

void Executor::Impl::append_to_list(Entry entry, const void* params) {
  if (capture == nullptr) return;
  std::vector<std::byte>& bytes = capture->bytes_;
  const size_t begin = bytes.size();
  bytes.resize(begin + entry.bytes);
  std::memcpy(&bytes[begin], &entry, sizeof(entry));
  if (entry.params_bytes > 0) std::memcpy(&bytes[begin + sizeof(entry)], params, entry.params_bytes);
}

void Executor::Impl::replay(const OpList& list) {
  tidepool_check(&list != capture, "a list of operations cannot be replayed while it is captured");
  const std::vector<std::byte>& bytes = list.bytes_;
  alignas(16) std::byte params[kMaxParamsBytes];  // declare() may ask for the alignment that the list does not promise
  for (size_t at = 0; at < bytes.size();) {
    Entry entry;
    tidepool_check(bytes.size() - at >= sizeof(entry), "the list of operations is cut off at byte {}", at);
    std::memcpy(&entry, &bytes[at], sizeof(entry));
    tidepool_check(entry.params_bytes <= kMaxParamsBytes && entry.bytes == Entry::bytes_with(entry.params_bytes) &&
                       entry.bytes <= bytes.size() - at && entry.kind >= EntryKind::kOp &&
                       entry.kind <= EntryKind::kWait,
                   "the list of operations is damaged at byte {}", at);
    check_stream(entry.stream);
    if (entry.params_bytes > 0) std::memcpy(params, &bytes[at + sizeof(entry)], entry.params_bytes);
    push(entry, params);
    append_to_list(entry, params);
    at += entry.bytes;
  }
}

void Executor::Impl::synchronize(StreamId stream) {
  run_until({stream, nullptr, 0});
  if (checker) checker->host_saw(stream);
}

void Executor::Impl::synchronize(Event& event) {
  const uint64_t target = event.enqueued_;
  run_until({-1, &event, target});
  if (checker) checker->host_saw(&event, target);
}

void Executor::Impl::drain() {
  for (StreamId stream = 0; stream < kNumStreams; ++stream) {
    try {
      run_until({stream, nullptr, 0});
    } catch (const Error&) {
      // Stuck: its entries are dropped with the ring.
    }
  }
}

Executor::Executor(const ExecutorOptions& options) {
  tidepool_check(options.num_threads >= 1 && options.num_threads <= kMaxThreads, "num_threads is {}, not in 1 to {}",
                 options.num_threads, kMaxThreads);
  impl_ = std::make_unique<Impl>(options);
}

Executor::~Executor() { impl_->drain(); }

void Executor::drain() noexcept { impl_->drain(); }

void Executor::push_bytes(StreamId stream, const OpType& type, const void* params, size_t bytes, Event* done) {
  check_stream(stream);
  tidepool_check(bytes == static_cast<size_t>(type.params_bytes) && bytes <= kMaxParamsBytes,
                 "operation '{}' takes {} bytes of parameters (at most {}), not {}", type.name, type.params_bytes,
                 kMaxParamsBytes, bytes);
  const Entry entry = make_entry(EntryKind::kOp, stream, static_cast<uint32_t>(bytes), &type, done);
  impl_->push(entry, params);
  impl_->append_to_list(entry, params);
}

void Executor::record(StreamId stream, Event& event) {
  check_stream(stream);
  const Entry entry = make_entry(EntryKind::kRecord, stream, 0, nullptr, &event);
  impl_->push(entry, nullptr);
  impl_->append_to_list(entry, nullptr);
}

void Executor::wait(StreamId stream, Event& event) {
  check_stream(stream);
  const Entry entry = make_entry(EntryKind::kWait, stream, 0, nullptr, &event);
  impl_->push(entry, nullptr);
  impl_->append_to_list(entry, nullptr);
}

void Executor::begin_capture(OpList& list) {
  tidepool_check(impl_->capture == nullptr, "a capture has already begun");
  impl_->capture = &list;
}

void Executor::end_capture() {
  tidepool_check(impl_->capture != nullptr, "no capture has begun");
  impl_->capture = nullptr;
}

void Executor::replay(const OpList& list) { impl_->replay(list); }

void Executor::synchronize(StreamId stream) {
  check_stream(stream);
  impl_->synchronize(stream);
}

void Executor::synchronize(Event& event) { impl_->synchronize(event); }

void Executor::synchronize_all() {
  for (StreamId stream = 0; stream < kNumStreams; ++stream) impl_->synchronize(stream);
}

bool Executor::query(Event& event) {
  if (event.completed() < event.enqueued_) return false;
  impl_->protection.close_completed();
  if (impl_->checker) impl_->checker->host_saw(&event, event.enqueued_);
  return true;
}

uint64_t Executor::observe(Event& event) {
  const uint64_t completed = event.completed();
  impl_->protection.close_completed();
  if (impl_->checker) impl_->checker->host_saw(&event, completed);
  return completed;
}

void Executor::add_pump(std::function<bool()> pump) { impl_->pumps.push_back(std::move(pump)); }

void Executor::protect(Arena& arena) {
  synchronize_all();
  if (impl_->checker) impl_->checker->name_allocations_of(arena);
  if (arena.guard() == Guard::kProtected) impl_->protection.add(arena);
}

int Executor::num_threads() const { return impl_->team.size(); }
void Executor::set_timeline(std::vector<TimelineEntry>* sink, bool with_costs) {
  impl_->timeline = sink;
  impl_->timeline_has_costs = with_costs;
}
uint64_t Executor::num_operations_run() const { return impl_->num_run; }

}  // namespace tidepool::device
