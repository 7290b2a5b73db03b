// An event orders streams, the host, and asynchronous copies.
//
// record(stream, event) on an Executor enqueues a completion; wait(stream, event) enqueues a wait for the record that
// was enqueued last before it (none yet: no wait). Counts only grow, so one event serves every step. Records of one
// event complete in the order they were enqueued: a record (or an asynchronous operation) whose predecessor on the same
// event is not complete holds its stream back until it is. An asynchronous operation (push_async) completes its event
// when every one of its pieces has called finish_piece() exactly once, from any thread, at any time after the piece
// started. The last call is the last touch of the event. Thread safety: finish_piece and completed from any thread;
// everything else from the executor. Lifetime: outlives every entry that names it.
#pragma once

#include <atomic>
#include <cstdint>

namespace tidepool::device {

class Event {
 public:
  // Of one asynchronous operation.
  static constexpr uint64_t kMaxPieces = (1u << 24) - 1;

  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // One piece of the asynchronous operation in flight is done (its bytes are in place, or its failure is in the
  // request's status word). The last one completes the event.
  void finish_piece() { state_.fetch_sub(1, std::memory_order_acq_rel); }
  // Records completed so far.
  uint64_t completed() const {
    const uint64_t state = state_.load(std::memory_order_acquire);
    return (state >> kPendingBits) - ((state & kMaxPieces) != 0 ? 1 : 0);
  }

  // --- for who executes operations: the executor, or a test in its place ---
  // Starts the next record, complete once num_pieces pieces are finished (at once for 0). Requires the one before to be
  // complete, and num_pieces <= kMaxPieces.
  void start(uint64_t num_pieces) {
    state_.fetch_add((uint64_t{1} << kPendingBits) + num_pieces, std::memory_order_acq_rel);
  }
  // Pieces of the asynchronous operation in flight that are not finished; 0: none is in flight.
  uint64_t unfinished_pieces() const { return state_.load(std::memory_order_acquire) & kMaxPieces; }

 private:
  friend class Executor;
  static constexpr int kPendingBits = 24;

  // Records started, and below them the pieces that the last one still waits for. One word: the last finish_piece is
  // one atomic step, after which the event may be destroyed.
  std::atomic<uint64_t> state_{0};
  uint64_t enqueued_ = 0;  // host thread only
};

}  // namespace tidepool::device
