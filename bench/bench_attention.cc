// index_score and sparse attention in multiply-adds per second beside the peak measured in the same process on the same
// SIMD target; topk in microseconds. One thread.
#include <benchmark/benchmark.h>

#include <chrono>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "nn/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "../bench/bench_attention.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "nn/indexer.h"
#include "nn/row_codes.h"
#include "nn/simd_target.h"
#include "nn/sparse_attention.h"

HWY_BEFORE_NAMESPACE();
namespace tidepool::nn {
namespace HWY_NAMESPACE {
namespace {

// Multiply-adds done. 12 chains in registers: enough for any latency, few enough for 16 registers. Chains start apart,
// or the compiler would find them equal and keep one.
int64_t multiply_add_loop(int64_t rounds, float* sink) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  constexpr int kChains = 12;
  hn::Vec<decltype(d)> sum[kChains];
  const auto x = hn::Set(d, 1e-3f), y = hn::Set(d, 0.5f);
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) sum[c] = hn::Set(d, sink[0] + static_cast<float>(c));
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sum[c] = hn::MulAdd(sum[c], y, x);
  }
#pragma GCC unroll 12
  for (int c = 1; c < kChains; ++c) sum[0] = hn::Add(sum[0], sum[c]);
  sink[0] = hn::GetLane(sum[0]);
  return rounds * kChains * static_cast<int64_t>(hn::Lanes(d));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tidepool::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidepool::nn {
namespace {

HWY_EXPORT(multiply_add_loop);

// Multiply-adds per second, best of a few short runs just before the measurement it is compared with.
double measure_peak() {
  double best = 0;
  float sink = 0.1f;
  for (int i = 0; i < 10; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const int64_t done = HWY_DYNAMIC_DISPATCH(multiply_add_loop)(1 << 17, &sink);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(done) / seconds.count());
    benchmark::DoNotOptimize(sink);
  }
  return best;
}

std::vector<float> random_floats(size_t n) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

std::vector<std::byte> random_values(size_t n, DType type) {
  const std::vector<float> values = random_floats(n);
  std::vector<std::byte> bytes(n * dtype_bytes(type));
  for (size_t i = 0; i < n; ++i) {
    if (type == DType::kF32)
      reinterpret_cast<float*>(bytes.data())[i] = values[i];
    else
      reinterpret_cast<uint16_t*>(bytes.data())[i] = f32_to_bf16(values[i]);
  }
  return bytes;
}

template <typename Params>
void run(const device::OpType& type, const Params& params) {
  const int32_t n = type.num_pieces(&params);
  for (int32_t i = 0; i < n; ++i) type.run(&params, i, n);
}

void report(benchmark::State& state, uint64_t multiply_adds, double peak) {
  const double done = static_cast<double>(multiply_adds) * static_cast<double>(state.iterations());
  state.counters["GFMA/s"] = benchmark::Counter(done / 1e9, benchmark::Counter::kIsRate);
  state.counters["of_peak"] = benchmark::Counter(done / peak, benchmark::Counter::kIsRate);
  state.counters["peak_GFMA/s"] = peak / 1e9;
}

void bench_peak(benchmark::State& state, const std::string& target) {
  force_simd_target(target);
  float sink = 0.1f;
  int64_t done = 0;
  for (auto _ : state) done = HWY_DYNAMIC_DISPATCH(multiply_add_loop)(1 << 15, &sink);
  benchmark::DoNotOptimize(sink);
  state.counters["GFMA/s"] =
      benchmark::Counter(static_cast<double>(done * state.iterations()) / 1e9, benchmark::Counter::kIsRate);
}

void bench_index_score(benchmark::State& state, const std::string& target, DType type) {
  force_simd_target(target);
  const int32_t num_rows = static_cast<int32_t>(state.range(0)), context = static_cast<int32_t>(state.range(1));
  constexpr int32_t kHeads = 32, kDim = 128, kBlock = 128;
  const std::vector<float> q = random_floats(static_cast<size_t>(num_rows * kHeads * kDim)),
                           w = random_floats(static_cast<size_t>(num_rows * kHeads));
  std::vector<std::byte> keys = random_values(static_cast<size_t>(context * kDim), type);
  std::vector<float> scores(static_cast<size_t>(num_rows) * static_cast<size_t>(context));
  std::vector<int32_t> position(static_cast<size_t>(num_rows), context - 1), slot(static_cast<size_t>(num_rows), 0),
      blocks(static_cast<size_t>(context / kBlock));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(2));
  const int32_t range[2] = {0, num_rows};
  IndexScoreParams p;
  p.rows = {range, num_rows};
  p.num_heads = kHeads;
  p.topk = 0;
  p.q = q.data();
  p.w = w.data();
  p.keys = {keys.data(), type, kDim};
  p.table = {position.data(), slot.data(), blocks.data(), context / kBlock, kBlock};
  p.scores = scores.data();
  p.score_stride = context;
  p.score_rows = num_rows;
  const double peak = measure_peak();
  for (auto _ : state) run(index_score(Backend::kCpu), p);
  report(state, index_score(Backend::kCpu).cost(&p).multiply_adds, peak);
}

// Rows of 512 + 64 values; every kDistinct-th is the same.
std::vector<std::byte> random_rows(const RowFormat& format, int32_t num_rows) {
  constexpr size_t kDistinct = 509;
  const std::vector<float> values = random_floats(kDistinct * 576);
  const auto row = static_cast<size_t>(format.row_bytes());
  std::vector<std::byte> bytes(static_cast<size_t>(num_rows) * row);
  for (size_t r = 0; r < static_cast<size_t>(num_rows); ++r) {
    std::byte* to = &bytes[r * row];
    if (r >= kDistinct) {
      std::memcpy(to, to - kDistinct * row, row);
      continue;
    }
    store_latent(format, &values[r * 576], 0, 512, to);
    store_rope(format, &values[r * 576 + 512], 0, 64, to + format.latent_bytes());
  }
  return bytes;
}

// Lists of num_rows query rows, ascending; each leaves out `own` of the positions of the first and has others instead.
std::vector<int32_t> overlapping_lists(int32_t context, int32_t topk, int32_t num_rows, int32_t own) {
  std::vector<int32_t> deck(static_cast<size_t>(context)), lists;
  std::iota(deck.begin(), deck.end(), 0);
  std::shuffle(deck.begin(), deck.end(), std::mt19937(2));
  for (int32_t m = 0; m < num_rows; ++m) {
    std::vector<int32_t> list(deck.begin(), deck.begin() + topk);
    std::shuffle(list.begin(), list.end(), std::mt19937(static_cast<uint32_t>(m)));
    for (int32_t i = 0; m > 0 && i < own && topk + m * own + i < context; ++i)
      list[static_cast<size_t>(i)] = deck[static_cast<size_t>(topk + m * own + i)];
    std::sort(list.begin(), list.end());
    lists.insert(lists.end(), list.begin(), list.end());
  }
  return lists;
}

// A decode step of num_rows query rows that belong to one request; shared: the operator is told so. own_copies: each
// reads rows of its own, as in the selection buffer of route select.
void bench_attention(benchmark::State& state, const std::string& target, DType type, bool split, int32_t num_rows = 1,
                     bool shared = false) {
  force_simd_target(target);
  const int32_t heads = static_cast<int32_t>(state.range(0)), context = static_cast<int32_t>(state.range(1));
  const bool own_copies = num_rows > 1 && state.range(2) != 0;
  constexpr int32_t kTopk = 2048;
  const RowFormat format{type, 512, 64};
  std::vector<std::byte> memory = random_rows(format, own_copies ? num_rows * kTopk : context);
  const std::vector<float> qa = random_floats(static_cast<size_t>(num_rows * heads * 576));
  std::vector<float> u(static_cast<size_t>(num_rows * heads * 512)),
      partial(static_cast<size_t>(num_rows * kTopk / kAttentionBlock * heads * 514));
  const std::vector<int32_t> positions = overlapping_lists(context, kTopk, num_rows, kTopk / 16);
  std::vector<RowLocation> locations;
  for (size_t i = 0; i < positions.size(); ++i)
    locations.push_back({Place::kResident, own_copies ? static_cast<int32_t>(i) : positions[i]});
  const int32_t range[2] = {0, num_rows};
  const std::vector<int32_t> selected(static_cast<size_t>(num_rows), kTopk);
  SparseAttentionParams p;
  p.rows = {range, num_rows};
  p.num_heads = heads;
  p.topk = kTopk;
  p.scale = 0.0625f;
  p.format = format;
  p.qa = qa.data();
  p.locations = locations.data();
  p.num_selected = selected.data();
  p.places[Place::kResident] = joint_planes(memory.data(), format);
  p.u = u.data();
  p.partial = partial.data();
  p.split_rows = num_rows;
  if (shared) {
    p.q_len = num_rows;
    p.positions = positions.data();
  }
  const double peak = measure_peak();
  for (auto _ : state) {
    if (split) {
      run(attention_split(Backend::kCpu), p);
      run(attention_merge(Backend::kCpu), p);
    } else {
      run(attention_whole(Backend::kCpu), p);
    }
  }
  report(state, attention_whole(Backend::kCpu).cost(&p).multiply_adds, peak);
}

// kind 0: normal scores; 1: nine tenths exactly zero, so that the cut lies among equal scores.
void bench_topk(benchmark::State& state, const std::string& target, int kind) {
  force_simd_target(target);
  const int32_t context = static_cast<int32_t>(state.range(0));
  std::vector<float> scores = random_floats(static_cast<size_t>(context));
  std::mt19937 random(3);
  for (float& s : scores) s = kind == 1 && random() % 100 != 0 ? 0.0f : std::abs(s);
  std::vector<int32_t> indices(2048);
  const int32_t range[2] = {0, 1}, position = context - 1;
  int32_t selected = 0;
  TopkParams p;
  p.rows = {range, 1};
  p.topk = 2048;
  p.table.position = &position;
  p.scores = scores.data();
  p.score_stride = context;
  p.topk_indices = indices.data();
  p.num_selected = &selected;
  for (auto _ : state) run(topk(Backend::kCpu), p);
}

void bench_index_prepare(benchmark::State& state, const std::string& target) {
  force_simd_target(target);
  std::vector<float> q = random_floats(32 * 128), k = random_floats(128), w = random_floats(32),
                     norm = random_floats(256), table = random_floats(64);
  std::vector<std::byte> keys(32 * 128 * 2);
  const int32_t range[2] = {0, 1}, loc = 5;
  IndexPrepareParams p;
  p.rows = {range, 1};
  p.num_heads = 32;
  p.rope_dim = 64;
  p.q = q.data();
  p.k = k.data();
  p.w = w.data();
  p.w_scale = 1;
  p.norm_weight = norm.data();
  p.norm_bias = norm.data() + 128;
  p.norm_eps = 1e-6f;
  p.cos_table = table.data();
  p.sin_table = table.data() + 32;
  p.keys = {keys.data(), DType::kBF16, 128};
  p.loc = &loc;
  for (auto _ : state) {
    std::fill(q.begin(), q.end(), 1.0f);  // the rotation is in place: keep the values tame
    run(index_prepare(Backend::kCpu), p);
  }
}

void register_all() {
  using benchmark::RegisterBenchmark;
  for (const std::string& target : simd_targets()) {
    RegisterBenchmark(("peak/" + target).c_str(), bench_peak, target);
    RegisterBenchmark(("index_score/bf16/" + target).c_str(), bench_index_score, target, DType::kBF16)
        ->ArgNames({"rows", "context"})
        ->Args({1, 4096})
        ->Args({1, 65536})
        ->Args({4, 4096});
    RegisterBenchmark(("index_score/f32/" + target).c_str(), bench_index_score, target, DType::kF32)->Args({1, 4096});
    for (DType type : {DType::kBF16, DType::kF32, DType::kI8, DType::kF8E4M3}) {
      const std::string name = std::string(dtype_name(type)) + "/" + target;
      for (bool split : {false, true}) {
        RegisterBenchmark(((split ? "attention_split/" : "attention_whole/") + name).c_str(), bench_attention, target,
                          type, split, 1, false)
            ->ArgNames({"heads", "context"})
            ->Args({8, 2048})
            ->Args({8, 65536})
            ->Args({64, 65536});
      }
      for (int32_t rows : {2, 4}) {
        for (bool shared : {false, true}) {
          RegisterBenchmark(
              ("attention_" + std::to_string(rows) + "_rows/" + (shared ? "shared/" : "apart/") + name).c_str(),
              bench_attention, target, type, true, rows, shared)
              ->ArgNames({"heads", "context", "own_copies"})
              ->Args({8, 65536, 0})
              ->Args({8, 65536, 1})
              ->Args({64, 65536, 0})
              ->Args({64, 65536, 1});
        }
      }
    }
    for (int kind : {0, 1}) {
      RegisterBenchmark(((kind ? "topk_plateau/" : "topk/") + target).c_str(), bench_topk, target, kind)
          ->Unit(benchmark::kMicrosecond)
          ->Arg(4096)
          ->Arg(65536)
          ->Arg(131072)
          ->Arg(1 << 20);
    }
    RegisterBenchmark(("index_prepare/" + target).c_str(), bench_index_prepare, target)->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace
}  // namespace tidepool::nn

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  tidepool::nn::register_all();
  benchmark::RunSpecifiedBenchmarks();
}
#endif
