// What the machine can do: the denominators of the floors.
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "base/check.h"
#include "engine/bench_common.h"
#include "model/weight_loader.h"
#include "nn/machine_probe.h"
#include "nn/simd_target.h"
#include "tidepool/bench.h"

namespace tidepool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRepetitions = 7;
constexpr uint64_t kSmallestBuffer = uint64_t{1} << 30;
constexpr uint64_t kChunk = 2 << 20;      // shares of threads are multiples of it
constexpr uint64_t kRounds = 20'000'000;  // of the multiply-add probe: some 40 ms

// Seconds from the first thread's start to the last one's end. The threads look at the clock themselves: this one may
// be woken late.
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
  tidepool_check(num_threads >= 1 && num_threads <= 1024, "measure_machine: {} threads, must be 1 to 1024",
                 num_threads);
  MachineRates rates;
  rates.simd_target = nn::simd_target();
  rates.num_threads = num_threads;
  const uint64_t bytes = buffer_bytes(num_threads), share = bytes / static_cast<uint64_t>(num_threads);
  const model::AnonymousRegion region(bytes);
  const auto part = [&](int i) { return region.data() + static_cast<uint64_t>(i) * share; };
  seconds_of(num_threads, [&](int i) { std::memset(part(i), 1, share); });
  // In turns: a clock that changes its speed, or a neighbour, meets all three.
  std::vector<double> reads, copies, multiply_adds;
  for (int i = 0; i < kRepetitions; ++i) {
    std::vector<uint64_t> done(static_cast<size_t>(num_threads));
    const auto total = static_cast<double>(bytes);
    reads.push_back(total / seconds_of(num_threads, [&](int t) { nn::probe_read(part(t), share); }));
    copies.push_back(total / 2 /
                     seconds_of(num_threads, [&](int t) { std::memcpy(part(t), part(t) + share / 2, share / 2); }));
    const double seconds =
        seconds_of(num_threads, [&](int t) { done[static_cast<size_t>(t)] = nn::probe_multiply_adds(kRounds); });
    multiply_adds.push_back(static_cast<double>(std::accumulate(done.begin(), done.end(), uint64_t{0})) / seconds);
  }
  rates.read_bytes_per_s = engine::median(reads);
  rates.copy_bytes_per_s = engine::median(copies);
  rates.multiply_adds_per_s = engine::median(multiply_adds);
  return rates;
}

}  // namespace tidepool
