#include "base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace tidepool::base {

int available_threads() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void parallel_for(int64_t num_pieces, int num_threads, const std::function<void(int64_t)>& work) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr first_error;
  std::mutex mutex;
  auto run = [&] {
    for (int64_t i = next.fetch_add(1); i < num_pieces && !failed.load(); i = next.fetch_add(1)) {
      try {
        work(i);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!first_error) first_error = std::current_exception();
        failed.store(true);
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    const int64_t num_helpers = std::min<int64_t>(num_threads, num_pieces) - 1;
    try {
      for (int64_t i = 0; i < num_helpers; ++i) helpers.emplace_back(run);
    } catch (const std::system_error&) {
      // The machine has no more threads to give: those that run do all the work.
    }
    run();
  }
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace tidepool::base
