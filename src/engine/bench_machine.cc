// What the machine can do: the denominators of the floors.
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "base/check.h"
#include "engine/bench_common.h"
#include "model/weight_loader.h"
#include "nn/machine_probe.h"
#include "nn/simd_target.h"
#include "tidepool/bench.h"

namespace tidepool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRepetitions = 5;
constexpr uint64_t kSmallestBuffer = uint64_t{1} << 30;
constexpr uint64_t kChunk = 2 << 20;  // shares of threads are multiples of it
constexpr uint64_t kRounds = 10'000'000;  // of the multiply-add probe: about 20 ms

// Seconds from the first thread's start to the last one's end. The threads look at the clock themselves: this one may be
// woken late.
double seconds_of(int num_threads, const std::function<void(int)>& work) {
  std::barrier start(num_threads);
  std::vector<Clock::time_point> begins(static_cast<size_t>(num_threads)), ends(begins.size());
  std::vector<std::thread> threads;
  for (int i = 0; i < num_threads; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      begins[static_cast<size_t>(i)] = Clock::now();
      work(i);
      ends[static_cast<size_t>(i)] = Clock::now();
    });
  }
  for (auto& thread : threads) thread.join();
  const auto begin = *std::min_element(begins.begin(), begins.end()), end = *std::max_element(ends.begin(), ends.end());
  return std::chrono::duration<double>(end - begin).count();
}

double median_rate(int num_threads, double units, const std::function<void(int)>& work) {
  std::vector<double> rates;
  for (int i = 0; i < kRepetitions; ++i) rates.push_back(units / seconds_of(num_threads, work));
  return engine::median(rates);
}

uint64_t system_bytes(int pages) {
  const long count = sysconf(pages), page = sysconf(_SC_PAGESIZE);
  return count > 0 && page > 0 ? static_cast<uint64_t>(count) * static_cast<uint64_t>(page) : 0;
}

// Far larger than the caches, a quarter of the free memory at most.
uint64_t buffer_bytes(int num_threads) {
  const long level3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const uint64_t wanted = std::max(kSmallestBuffer, 4 * static_cast<uint64_t>(std::max(0L, level3)));
  const uint64_t share = 2 * kChunk * static_cast<uint64_t>(num_threads);
  return std::max(uint64_t{1}, std::min(wanted, system_bytes(_SC_AVPHYS_PAGES) / 4) / share) * share;
}

}  // namespace

MachineRates measure_machine(int num_threads) {
  tidepool_check(num_threads >= 1 && num_threads <= 1024, "measure_machine: {} threads, must be 1 to 1024", num_threads);
  MachineRates rates;
  rates.simd_target = nn::simd_target();
  rates.num_threads = num_threads;
  const uint64_t bytes = buffer_bytes(num_threads), share = bytes / static_cast<uint64_t>(num_threads);
  const model::AnonymousRegion region(bytes);
  const auto part = [&](int i) { return region.data() + static_cast<uint64_t>(i) * share; };
  seconds_of(num_threads, [&](int i) { std::memset(part(i), 1, share); });
  const auto total = static_cast<double>(bytes);
  rates.read_bytes_per_s = median_rate(num_threads, total, [&](int i) { nn::probe_read(part(i), share); });
  rates.copy_bytes_per_s =
      median_rate(num_threads, total / 2, [&](int i) { std::memcpy(part(i), part(i) + share / 2, share / 2); });
  const auto per_thread = static_cast<double>(nn::probe_multiply_adds(kRounds));
  rates.multiply_adds_per_s = median_rate(num_threads, per_thread * num_threads, [](int) { nn::probe_multiply_adds(kRounds); });
  return rates;
}

}  // namespace tidepool
