// The formats of cache rows, as they show in an engine's logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "engine/engine_impl.h"
#include "tiny_models.h"

namespace tidepool {
namespace {

using Rows = std::vector<std::vector<float>>;

constexpr DType kFormats[] = {DType::kF32, DType::kBF16, DType::kI8, DType::kF8E4M3};

EngineOptions options_of(DType row_dtype, OffloadRoute route) {
  EngineOptions o;
  o.model = test::tiny_model();
  o.route = route;
  o.kv_dtype = DType::kF32;  // index keys: the formats differ in rows alone
  o.row_dtype = row_dtype;
  o.pool_size = 16;
  o.num_threads = 2;
  o.max_model_len = 200;
  o.max_num_batched_tokens = 32;
  o.record_logits = true;
  return o;
}

// Logits of a request's tokens, which are given: all formats see the same text.
Rows run(const EngineOptions& options, int32_t prompt_len = 70, int32_t num_tokens = 24) {
  EngineImpl engine(options);
  RequestOptions request;
  for (int32_t i = 0; i < prompt_len; ++i) request.prompt.push_back(i * 37 % 256);
  for (int32_t i = 0; i < num_tokens; ++i) request.forced.push_back(i * 91 % 256);
  request.max_tokens = num_tokens;
  request.ignore_eos = true;
  engine.submit(request);
  Rows logits;
  StepResult result;
  while (engine.has_work()) {
    engine.step(result);
    for (auto& out : result.outputs) {
      EXPECT_EQ(out.error, "");
      logits.push_back(std::move(out.logits));
    }
  }
  return logits;
}

bool same_bits(const Rows& a, const Rows& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  });
}

// Root of the mean square of differences over that of the values.
double distance(const Rows& a, const Rows& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t v = 0; v < a[i].size(); ++v) {
      const double x = static_cast<double>(a[i][v]), y = static_cast<double>(b[i][v]);
      difference += (x - y) * (x - y);
      size += x * x;
    }
  }
  return std::sqrt(difference / size);
}

TEST(RowFormats, give_the_same_bits_with_and_without_offload) {
  for (DType format : kFormats) {
    const Rows off = run(options_of(format, OffloadRoute::kOff));
    ASSERT_EQ(off.size(), 24u);
    EXPECT_TRUE(same_bits(off, run(options_of(format, OffloadRoute::kSelect)))) << dtype_name(format);
    auto other = options_of(format, OffloadRoute::kSelect);
    other.max_num_batched_tokens = 7;
    other.num_threads = 1;
    EXPECT_TRUE(same_bits(off, run(other))) << dtype_name(format) << ", other chunks";
  }
}

TEST(RowFormats, differ_from_each_other) {
  std::map<DType, Rows> logits;
  for (DType format : kFormats) logits[format] = run(options_of(format, OffloadRoute::kOff));
  for (DType a : kFormats) {
    for (DType b : kFormats) EXPECT_EQ(same_bits(logits[a], logits[b]), a == b) << dtype_name(a) << dtype_name(b);
  }
}

// Texts of no more than top-k tokens: a list is everything in each format. (Beyond that the formats come to select
// different rows, and a random model is another model then.) Measured: 0.0033, 0.011, 0.054.
TEST(RowFormats, stay_near_fp32_while_they_select_the_same_rows) {
  const Rows exact = run(options_of(DType::kF32, OffloadRoute::kOff), 3, 6);
  const auto far = [&](DType format) { return distance(exact, run(options_of(format, OffloadRoute::kSelect), 3, 6)); };
  EXPECT_LT(far(DType::kBF16), 0.007);
  EXPECT_LT(far(DType::kI8), 0.022);
  EXPECT_LT(far(DType::kF8E4M3), 0.11);
}

TEST(RowFormats, are_read_alike_by_plain_loops_and_simd_kernels) {
  for (DType format : kFormats) {
    auto options = options_of(format, OffloadRoute::kSelect);
    const Rows fast = run(options, 40, 6);
    options.reference_kernels = true;
    EXPECT_LT(distance(run(options, 40, 6), fast), 1e-4) << dtype_name(format);
  }
}

TEST(RowFormats, are_what_the_budgets_and_counters_are_counted_in) {
  for (DType format : kFormats) {
    EngineImpl engine(options_of(format, OffloadRoute::kSelect));
    const RowFormat& rows = engine.cache().options().format;
    EXPECT_EQ(rows.type, format);
    EXPECT_EQ(engine.cache().options().key_type, DType::kF32);
    EXPECT_EQ(engine.info().row_bytes, rows.row_bytes());
  }
}

TEST(RowFormats, that_are_none_are_refused_by_name) {
  try {
    EngineImpl engine(options_of(DType::kF16, OffloadRoute::kOff));
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "row_dtype float16 is not available, bfloat16, float32, int8 and float8_e4m3 are");
  }
}

}  // namespace
}  // namespace tidepool
