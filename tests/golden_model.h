// Comparing the engine with reference results of other implementations: tests/golden/README.md says what the files
// hold.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/engine_impl.h"
#include "model/safetensors.h"

namespace tidepool::test {

std::string source_dir();  // the checkout
std::string golden_dir();  // TIDEPOOL_GOLDEN_DIR, or tests/golden of the checkout
// Folders of golden_dir()/kind, sorted; empty when there are none.
std::vector<std::string> golden_cases(const std::string& kind);
std::string demo_model_dir();  // models/demo of the checkout

struct FloatTable {
  int64_t rows = 0, width = 0;
  std::vector<float> values;
  const float* row(int64_t i) const { return values.data() + i * width; }
};
struct IntTable {
  int64_t rows = 0, width = 0;
  std::vector<int32_t> values;
  const int32_t* row(int64_t i) const { return values.data() + i * width; }
};

FloatTable float_table(const model::TensorView& view);                // F32
IntTable int_table(const model::TensorView& view);                    // I32
std::vector<int32_t> token_ids(const model::TensorView& view);        // I64
float max_abs_difference(const float* a, const float* b, int64_t n);  // infinite when one is no number
double norm(const float* values, int64_t n);
std::vector<int32_t> without_suffix(const int32_t* row, int64_t width);  // the ids before the first -1

// expected.safetensors of a case.
struct Expected {
  std::vector<int32_t> input_ids, generated_ids;
  FloatTable prefill_logits, decode_logits;
  std::map<int32_t, FloatTable> hidden;
  std::map<int32_t, IntTable> topk;
  std::map<int32_t, FloatTable> topk_margin;
  static Expected read(const std::string& path);
};

// What the engine computed for a case: rows by position, prompt and generated tokens fed.
struct Computed {
  std::vector<int32_t> generated_ids;
  std::vector<RowRecord> rows;
};
// Greedy, generated_ids.size() tokens, the last one fed too.
Computed compute(const EngineOptions& options, const Expected& expected, const EngineHooks& hooks = {});

struct Tolerance {
  float logits = 2e-4f;
  float hidden = 2e-4f;    // of the row's norm
  float exact_margin = 0;  // topk rows with a margin above must agree as sets; only used where margins are given
};
// Every difference as a sentence; empty: the case passes.
std::vector<std::string> differences(const Expected& expected, const Computed& computed, const Tolerance& tolerance);

}  // namespace tidepool::test
