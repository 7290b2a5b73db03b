// Waiting for another thread without burning a core for long: pause, then yield, then short sleeps.
#pragma once

#include <chrono>
#include <thread>

namespace tidepool::device {

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

class Backoff {
 public:
  static constexpr int kPauses = 256;   // some microseconds
  static constexpr int kYields = 4096;  // about a millisecond

  void reset() { rounds_ = 0; }
  bool pausing() const { return rounds_ < kPauses; }
  // For the end of a piece that a worker has begun: never sleeps.
  void wait_for_worker() {
    if (rounds_ < kPauses) {
      ++rounds_;
      pause_cpu();
    } else {
      std::this_thread::yield();
    }
  }
  // For something outside the team.
  void wait() {
    ++rounds_;
    if (rounds_ < kPauses) {
      pause_cpu();
    } else if (rounds_ < kPauses + kYields) {
      std::this_thread::yield();
    } else {
      --rounds_;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

 private:
  int rounds_ = 0;
};

}  // namespace tidepool::device
