// Products against what the machine can do, in one process, one thread, on every SIMD target:
//   decode/<type>/m<M>: weights streamed from a buffer larger than the caches. "of_read" = bytes per second over those
//   of a
//     plain read of the same buffer just before.
//   prefill/<type>/m<M>: "of_peak" = multiply-adds per second over those of independent sums in registers just before.
// Ratios of neighbouring measurements: the machine may be shared.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "nn/machine_probe.h"
#include "nn/product.h"
#include "nn/simd_target.h"

namespace tidepool::nn {
namespace {

constexpr size_t kBufferBytes = size_t{768} << 20;

std::byte* weight_buffer() {
  static std::byte* buffer = [] {
    void* memory = mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    madvise(memory, kBufferBytes, MADV_HUGEPAGE);
    std::memset(memory, 0x3b, kBufferBytes);  // a small normal number in every type
    return static_cast<std::byte*>(memory);
  }();
  return buffer;
}

// Of this thread: what other programs take of the core does not count.
double seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Matrices one after the other through the buffer.
struct Workload {
  DType type;
  int32_t n, k, m;
  std::vector<float> x, y, scale;
  int32_t range[2];
  size_t next = 0;
  Workload(DType t, int32_t outputs, int32_t inputs, int32_t rows)
      : type(t),
        n(outputs),
        k(inputs),
        m(rows),
        x(static_cast<size_t>(m) * k, 0.25f),
        y(static_cast<size_t>(m) * n),
        scale(static_cast<size_t>(n / 128 + 1) * (k / 128 + 1), 0.01f),
        range{0, rows} {}
  size_t bytes() const { return packed_bytes(type, n, k); }
  void run() {
    if (next + bytes() > kBufferBytes) next = 0;
    ProductParams p;
    p.rows = {range, m};
    p.x = x.data();
    p.x_stride = k;
    p.num_segments = 1;
    p.segments[0] = {
        {weight_buffer() + next, type, n, k, type == DType::kF8E4M3 ? scale.data() : nullptr, 1}, y.data(), n, 0};
    next += bytes();
    const device::OpType& type_of = product(Backend::kCpu, device::Part::kProjection);
    const int32_t pieces = type_of.num_pieces(&p);
    for (int32_t i = 0; i < pieces; ++i) type_of.run(&p, i, pieces);
  }
};

void decode(benchmark::State& state, std::string target, DType type, int32_t m) {
  force_simd_target(target);
  Workload work(type, 2048, 6144, m);
  double read_seconds = 0, read_bytes = 0, work_seconds = 0, work_bytes = 0;
  size_t read_at = 0;
  for (auto _ : state) {
    const size_t chunk = size_t{48} << 20;
    if (read_at + chunk > kBufferBytes) read_at = 0;
    double begin = seconds();
    benchmark::DoNotOptimize(probe_read(weight_buffer() + read_at, chunk));
    read_seconds += seconds() - begin;
    read_bytes += static_cast<double>(chunk);
    read_at += chunk;
    begin = seconds();
    for (size_t done = 0; done < chunk; done += work.bytes()) {
      work.run();
      work_bytes += static_cast<double>(work.bytes());
    }
    const double took = seconds() - begin;
    work_seconds += took;
    state.SetIterationTime(took);
  }
  state.counters["GB/s"] = work_bytes / work_seconds * 1e-9;
  state.counters["read_GB/s"] = read_bytes / read_seconds * 1e-9;
  state.counters["of_read"] = work_bytes / work_seconds / (read_bytes / read_seconds);
  force_simd_target("");
}

void prefill(benchmark::State& state, std::string target, DType type, int32_t m) {
  force_simd_target(target);
  Workload work(type, 1024, 2048, m);
  double peak_seconds = 0, peak_count = 0, work_seconds = 0, work_count = 0;
  for (auto _ : state) {
    double begin = seconds();
    peak_count += static_cast<double>(probe_multiply_adds(200000));
    peak_seconds += seconds() - begin;
    begin = seconds();
    work.run();
    const double took = seconds() - begin;
    work_seconds += took;
    work_count += static_cast<double>(m) * work.n * work.k;
    state.SetIterationTime(took);
  }
  state.counters["GFMA/s"] = work_count / work_seconds * 1e-9;
  state.counters["peak_GFMA/s"] = peak_count / peak_seconds * 1e-9;
  state.counters["of_peak"] = work_count / work_seconds / (peak_count / peak_seconds);
  force_simd_target("");
}

void register_all() {
  weight_buffer();  // its pages are filled before any clock runs
  for (const std::string& target : simd_targets()) {
    for (DType type : {DType::kBF16, DType::kF32, DType::kF8E4M3}) {
      for (int32_t m : {1, 2, 4, 8, 16}) {
        const std::string name = target + "/decode/" + dtype_name(type) + "/m" + std::to_string(m);
        benchmark::RegisterBenchmark(name.c_str(), decode, target, type, m)->UseManualTime();
      }
      for (int32_t m : {16, 64, 512}) {
        const std::string name = target + "/prefill/" + dtype_name(type) + "/m" + std::to_string(m);
        benchmark::RegisterBenchmark(name.c_str(), prefill, target, type, m)->UseManualTime();
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::nn

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  tidepool::nn::register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
