// This machine's time per part of a step, beside the floor of each part (bytes / read bandwidth, multiply-adds / peak,
// both measured in the same process at the same thread count and SIMD target).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/engine.h"

namespace tidepool {

struct MachineRates {
  double read_bytes_per_s = 0;     // streaming read of a buffer larger than the caches
  double copy_bytes_per_s = 0;     // bytes copied per second
  double multiply_adds_per_s = 0;  // fp32 fused multiply-adds from registers
  std::string simd_target;
  int num_threads = 0;
};
MachineRates measure_machine(int num_threads);

struct BenchPart {
  std::string name;
  double ms = 0;        // median over steps
  double floor_ms = 0;  // max(bytes / bandwidth, multiply-adds / peak)
  uint64_t bytes = 0;
  uint64_t multiply_adds = 0;
};
struct BenchRow {
  std::string what;  // "decode off", "decode select", "prefill", ...
  int32_t context_tokens = 0;
  int32_t batch = 0;
  int32_t pool_size = 0;
  double step_ms = 0, floor_ms = 0, ratio_to_floor = 0;
  double ratio_to_off = 0;  // select rows: step / step of off in the same run; 0 elsewhere
  double hit_rate = 0;
  double peak_share = 0;      // prefill: achieved multiply-adds / peak
  double overhead_share = 0;  // time of the step in no operation
  std::vector<BenchPart> parts;
};
struct BenchResult {
  MachineRates machine;
  std::vector<BenchRow> rows;
};

struct DecodeBenchOptions {
  EngineOptions engine;  // model, threads, dtype; route is varied
  std::vector<int32_t> contexts{4096, 16384, 65536, 131072};
  int32_t batch = 1;
  int32_t steps = 12;  // measured steps per configuration
  std::vector<int32_t>
      pool_sizes;            // select configurations; empty: one pool that holds everything and one at about 90 % hits
  double topk_overlap = -1;  // >= 0: top-k lists with this step-to-step overlap instead of the model's own
  std::function<void(const std::string&)> progress;
};
BenchResult bench_decode(const DecodeBenchOptions& options);

struct PrefillBenchOptions {
  EngineOptions engine;
  std::vector<int32_t> contexts{4096, 16384};
  std::function<void(const std::string&)> progress;
};
BenchResult bench_prefill(const PrefillBenchOptions& options);

// Each operator alone on the shapes of the model.
BenchResult bench_ops(const DecodeBenchOptions& options);

}  // namespace tidepool
