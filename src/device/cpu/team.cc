#include "device/cpu/team.h"

#include <chrono>
#include <system_error>

#include "base/check.h"
#include "device/cpu/backoff.h"

namespace tidepool::device {
namespace {

// A worker without work stays awake this long: the next operation of a step comes within microseconds, and waking a
// sleeper costs the host a system call.
constexpr auto kAwake = std::chrono::microseconds(100);

}  // namespace

Team::Team(int num_threads, bool pin) : pin_(pin) {
  CPU_ZERO(&allowed_);
  if (sched_getaffinity(0, sizeof(allowed_), &allowed_) != 0 || CPU_COUNT(&allowed_) == 0) pin_ = false;
  workers_.reserve(static_cast<size_t>(num_threads - 1));
  try {
    for (int worker = 1; worker < num_threads; ++worker) workers_.emplace_back([this, worker] { work(worker); });
  } catch (const std::system_error& error) {
    const int started = size();
    stop();  // or the workers that run would be waited for, for ever
    tidepool_fail("--threads {}: only {} threads could be started: {}", num_threads, started, error.code().message());
  }
}

Team::~Team() { stop(); }

void Team::stop() {
  stopping_.store(true);
  starts_.fetch_add(1);
  starts_.notify_all();
  workers_.clear();  // joins them
}

void Team::start(int lane, const Job& job) {
  Lane& l = lanes_[lane];
  if (job.num_pieces == 0) return;
  l.type.store(job.type, std::memory_order_relaxed);
  l.params.store(job.params, std::memory_order_relaxed);
  l.num_pieces.store(job.num_pieces, std::memory_order_relaxed);
  l.stride.store(job.stride, std::memory_order_relaxed);
  l.offset.store(job.offset, std::memory_order_relaxed);
  l.unfinished.store(job.num_pieces, std::memory_order_relaxed);
  const uint64_t generation = (l.claim.load(std::memory_order_relaxed) >> 32) + 1;
  l.claim.store(generation << 32 | static_cast<uint32_t>(job.num_pieces), std::memory_order_release);
  // Sequentially consistent on both sides: either a worker about to sleep sees the new count, or it is seen here.
  starts_.fetch_add(1);
  if (sleepers_.load() > 0) starts_.notify_all();
}

bool Team::Lane::run_piece() {
  uint64_t seen = claim.load(std::memory_order_acquire);
  for (;;) {
    const uint32_t left = static_cast<uint32_t>(seen);
    if (left == 0) return false;
    const Job job{type.load(std::memory_order_relaxed), params.load(std::memory_order_relaxed),
                  num_pieces.load(std::memory_order_relaxed), stride.load(std::memory_order_relaxed),
                  offset.load(std::memory_order_relaxed)};
    if (claim.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
      job.run(job.num_pieces - static_cast<int32_t>(left));
      unfinished.fetch_sub(1, std::memory_order_acq_rel);
      return true;
    }
  }
}

bool Team::run_any_piece() {
  for (Lane& lane : lanes_) {
    if (lane.run_piece()) return true;
  }
  return false;
}

void Team::work(int worker) {
  if (pin_) pin_to(worker);
  for (;;) {
    const uint32_t seen_starts = starts_.load();
    if (run_any_piece()) continue;
    if (stopping_.load()) return;
    if (wait_for_start(seen_starts)) continue;
    sleepers_.fetch_add(1);
    starts_.wait(seen_starts);
    sleepers_.fetch_sub(1);
  }
}

bool Team::wait_for_start(uint32_t seen_starts) const {
  for (int i = 0; i < Backoff::kPauses; ++i) {
    if (starts_.load(std::memory_order_acquire) != seen_starts) return true;
    pause_cpu();
  }
  const auto end = std::chrono::steady_clock::now() + kAwake;
  do {
    if (starts_.load(std::memory_order_acquire) != seen_starts) return true;
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

void Team::pin_to(int worker) {
  int wanted = worker % CPU_COUNT(&allowed_);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed_) || wanted-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);  // a wish; the result does not depend on it
    return;
  }
}

void Team::pin_host() {
  if (pin_) pin_to(0);
}

void Team::unpin_host() {
  if (pin_) sched_setaffinity(0, sizeof(allowed_), &allowed_);
}

}  // namespace tidepool::device
