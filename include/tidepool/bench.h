// This machine's time per part of a step, beside the floor of each part (bytes / read bandwidth, multiply-adds / peak,
// both measured in the same process at the same thread count and SIMD target).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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
// A text decoded with drafts. Medians over the engine's decode steps; floors are those of the operations that ran.
struct BenchDrafts {
  int32_t num_draft_tokens = 0;
  double accept_length = 0;        // tokens per step: 1 + accepted drafts, all decode steps
  double main_ms = 0, mtp_ms = 0;  // of a step: the main pass; the passes of the MTP layer. The rest chooses tokens
  double floor_main_ms = 0, floor_mtp_ms = 0;
  double tokens_per_s = 0;        // accept_length / step
  double ratio_to_no_drafts = 0;  // of tokens_per_s
  double floor_tokens_per_s = 0;  // accept_length / floor
  double floor_ratio_to_no_drafts = 0;
};
struct BenchRow {
  std::string what;  // "decode off", "decode select", "prefill", ...
  ExecMode exec = ExecMode::kEager;
  int32_t context_tokens = 0;
  int32_t batch = 0;
  int32_t rows = 1;  // of each request in a step
  int32_t pool_size = 0;
  double step_ms = 0, floor_ms = 0, ratio_to_floor = 0;
  double ratio_to_off = 0;  // select rows: step / step of off in the same run, mode and rows alike; 0 elsewhere
  // More than one row: step / step and floor / floor of one row in the same run, all else alike; 0 elsewhere.
  double step_to_one_row = 0, floor_to_one_row = 0;
  double hit_rate = 0;
  double peak_share = 0;      // prefill: achieved multiply-adds / peak
  double overhead_share = 0;  // time of the step in no operation
  // Decode: time of the step in no operation of nn or ops, that is outside every kernel: the host's work before the
  // first operation and behind the last, what lies between operations, and copies within the device or to the host.
  // Of each step that is timed for it: 1 - (time in which at least one such operation ran) / wall time; the median. The
  // clock is read twice for each operation, about half of it outside.
  double outside_share = 0;
  std::vector<BenchPart> parts;
  std::optional<BenchDrafts> drafts;
};
struct BenchResult {
  MachineRates machine;
  std::vector<BenchRow> rows;
};

struct DecodeBenchOptions {
  EngineOptions engine;  // model, threads, dtype; route, mode and drafts are varied
  std::vector<int32_t> contexts{4096, 16384, 65536, 131072};
  int32_t batch = 1;
  // Rows of each request in a step, as with rows - 1 drafts that all stand; the main pass only. More than 1: measured
  // beside 1. The model then has an MTP layer. bench_ops: 1.
  int32_t rows = 1;
  // Distinct. Off and the largest pool in all of them, other pools in the first. bench_ops: kEager.
  std::vector<ExecMode> modes{ExecMode::kEager};
  int32_t steps = 12;  // measured steps per configuration
  std::vector<int32_t>
      pool_sizes;            // select configurations; empty: one pool that holds everything and one at about 90 % hits
  double topk_overlap = -1;  // >= 0: top-k lists with this step-to-step overlap instead of the model's own
  std::optional<MachineRates> machine;  // of num_threads threads; none: measured first. bench_ops measures
  std::function<void(const std::string&)> progress;
};
BenchResult bench_decode(const DecodeBenchOptions& options);

struct PrefillBenchOptions {
  EngineOptions engine;
  std::vector<int32_t> contexts{4096, 16384};
  std::function<void(const std::string&)> progress;
};
BenchResult bench_prefill(const PrefillBenchOptions& options);

// One text, greedy, with 0 to kMaxDraftTokens drafts: engines side by side that must all write the same ids.
struct DraftsBenchOptions {
  // Tokens that may be written beyond max_tokens, so that no step is cut short: the model must have room for them.
  static constexpr int32_t kExtraTokens = 2 * (1 + kMaxDraftTokens);
  EngineOptions engine;                 // route, pool, mode as wanted; drafts are varied
  std::vector<int32_t> prompt;          // ids; empty: seeded
  std::vector<int32_t> contexts{4096};  // prompt tokens; of a given prompt, which must have as many, its first ones
  int32_t max_tokens = 128;             // new ones, at least 24: every kind of timed step happens
  std::optional<MachineRates> machine;  // as above
  std::function<void(const std::string&)> progress;
};
BenchResult bench_drafts(const DraftsBenchOptions& options);

// Each operator alone on the shapes of the model.
BenchResult bench_ops(const DecodeBenchOptions& options);

}  // namespace tidepool
