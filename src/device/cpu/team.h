// The thread team of the CPU backend. Worker 0 is the host thread and works only inside calls; workers 1 .. n-1 are
// threads that run pieces of what was started, the lowest lane first, and sleep when nothing was started for a while.
//
// A lane holds one operation at a time. Workers know nothing of streams, events or order.
// Thread safety: everything from the host thread. Everything the host did before start() is seen by the pieces;
// everything the pieces did is seen by the host once finished() says true.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "tidepool/op.h"

namespace tidepool::device {

struct Job {
  const OpType* type = nullptr;
  const void* params = nullptr;
  int32_t num_pieces = 0;
  // Piece i of the order is (i * stride + offset) % num_pieces; stride prime to num_pieces; 0: piece i.
  int32_t stride = 0;
  int32_t offset = 0;

  void run(int32_t i) const {
    const int32_t piece = stride == 0 ? i : static_cast<int32_t>((int64_t{i} * stride + offset) % num_pieces);
    type->run(params, piece, num_pieces);
  }
};

class Team {
 public:
  static constexpr int kNumLanes = 3;

  // Throws Error when the machine does not give so many threads.
  // `pin`: worker i runs on the i-th CPU that the process may use (modulo their number).
  Team(int num_threads, bool pin);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }
  // Offers the pieces of a job to the team. Requires finished(lane). The job's parameters stay readable until finished.
  void start(int lane, const Job& job);
  // Runs one piece that nobody has begun; false when there is none.
  bool run_piece(int lane) { return lanes_[lane].run_piece(); }
  bool finished(int lane) const { return lanes_[lane].unfinished.load(std::memory_order_acquire) == 0; }

  // Pins the calling thread as worker 0 / gives it back the CPUs it had. No-ops without `pin`.
  void pin_host();
  void unpin_host();

 private:
  struct alignas(64) Lane {
    bool run_piece();

    // Generation in the upper half, pieces not yet begun in the lower. A worker takes a piece by a compare-and-swap
    // from a value it read before the fields below: success proves that the fields belong to this generation, since
    // they are written only between generations, when no piece is left to take.
    std::atomic<uint64_t> claim{0};
    std::atomic<const OpType*> type{nullptr};
    std::atomic<const void*> params{nullptr};
    std::atomic<int32_t> num_pieces{0};
    std::atomic<int32_t> stride{0};
    std::atomic<int32_t> offset{0};
    alignas(64) std::atomic<int32_t> unfinished{0};
  };

  void work(int worker);
  void stop();  // workers end
  bool run_any_piece();
  bool wait_for_start(uint32_t seen_starts) const;
  void pin_to(int worker);

  Lane lanes_[kNumLanes];
  alignas(64) std::atomic<uint32_t> starts_{0};  // jobs offered; workers sleep on it
  std::atomic<int32_t> sleepers_{0};
  std::atomic<bool> stopping_{false};
  bool pin_;
  cpu_set_t allowed_;
  std::vector<std::jthread> workers_;
};

}  // namespace tidepool::device
