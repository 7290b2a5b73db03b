#include "golden_model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/check.h"

namespace tidepool::test {
namespace {

template <typename To, typename From>
std::vector<To> convert(const model::TensorView& view) {
  std::vector<To> out(view.num_values());
  for (size_t i = 0; i < out.size(); ++i) {
    From value;
    std::memcpy(&value, view.data + i * sizeof(From), sizeof(From));
    out[i] = static_cast<To>(value);
  }
  return out;
}

int64_t width_of(const model::TensorView& view) { return view.shape.size() > 1 ? view.shape.back() : 1; }

class Comparison {
 public:
  Comparison(const Expected& e, const Computed& c, const Tolerance& t) : e_(e), c_(c), t_(t) {}

  std::vector<std::string> run() {
    tokens();
    logits("logits.prefill", e_.prefill_logits, static_cast<int64_t>(e_.input_ids.size()));
    logits("logits.decode", e_.decode_logits, static_cast<int64_t>(e_.input_ids.size() + e_.generated_ids.size()));
    for (const auto& [layer, table] : e_.hidden) hidden(layer, table);
    for (const auto& [layer, table] : e_.topk) topk(layer, table);
    return found_;
  }

 private:
  void tokens() {
    if (c_.generated_ids != e_.generated_ids) found_.push_back("generated_ids differ");
    const size_t total = e_.input_ids.size() + e_.generated_ids.size();
    if (c_.rows.size() != total)
      found_.push_back(fmt::format("{} rows were computed, {} expected", c_.rows.size(), total));
  }
  const RowRecord* at(int64_t position) const {
    return position >= 0 && position < static_cast<int64_t>(c_.rows.size()) ? &c_.rows[static_cast<size_t>(position)]
                                                                            : nullptr;
  }
  // Tables hold the rows that end at position `end`.
  void logits(const char* name, const FloatTable& table, int64_t end) {
    for (int64_t i = 0; i < table.rows; ++i) {
      const RowRecord* row = at(end - table.rows + i);
      const float d = row == nullptr || static_cast<int64_t>(row->logits.size()) != table.width
                          ? INFINITY
                          : max_abs_difference(row->logits.data(), table.row(i), table.width);
      worst_logits = std::max(worst_logits, d);
      if (!(d <= t_.logits)) found_.push_back(fmt::format("{} row {} is off by {}", name, i, d));
    }
  }
  void hidden(int32_t layer, const FloatTable& table) {
    const auto end = static_cast<int64_t>(c_.rows.size());
    for (int64_t i = 0; i < table.rows; ++i) {
      const RowRecord* row = at(end - table.rows + i);
      const float d = row == nullptr ? INFINITY
                                     : max_abs_difference(row->hidden.at(static_cast<size_t>(layer)).data(),
                                                          table.row(i), table.width);
      if (!(d <= t_.hidden * norm(table.row(i), table.width)))
        found_.push_back(fmt::format("hidden.{} row {} is off by {}", layer, i, d));
    }
  }
  void topk(int32_t layer, const IntTable& table) {
    const auto end = static_cast<int64_t>(c_.rows.size());
    const auto margins = e_.topk_margin.find(layer);
    for (int64_t i = 0; i < table.rows; ++i) {
      if (margins != e_.topk_margin.end() && margins->second.values.at(static_cast<size_t>(i)) <= t_.exact_margin)
        continue;
      const RowRecord* row = at(end - table.rows + i);
      if (row == nullptr || row->topk.at(static_cast<size_t>(layer)).empty()) {
        found_.push_back(fmt::format("topk.{} row {} was not computed", layer, i));
        continue;
      }
      const auto& ids = row->topk[static_cast<size_t>(layer)];
      if (without_suffix(ids.data(), static_cast<int64_t>(ids.size())) != without_suffix(table.row(i), table.width)) {
        found_.push_back(fmt::format("topk.{} row {} is another set", layer, i));
      }
    }
  }

  const Expected& e_;
  const Computed& c_;
  const Tolerance& t_;
  std::vector<std::string> found_;

 public:
  float worst_logits = 0;
};

}  // namespace

FloatTable float_table(const model::TensorView& view) {
  return {view.shape.at(0), width_of(view), convert<float, float>(view)};
}

IntTable int_table(const model::TensorView& view) {
  return {view.shape.at(0), width_of(view), convert<int32_t, int32_t>(view)};
}

std::vector<int32_t> token_ids(const model::TensorView& view) { return convert<int32_t, int64_t>(view); }

float max_abs_difference(const float* a, const float* b, int64_t n) {
  float worst = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float d = std::abs(a[i] - b[i]);
    if (std::isnan(d)) return INFINITY;
    worst = std::max(worst, d);
  }
  return worst;
}

double norm(const float* values, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(values[i]) * values[i];
  return std::sqrt(sum);
}

std::vector<int32_t> without_suffix(const int32_t* row, int64_t width) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < width && row[i] >= 0; ++i) ids.push_back(row[i]);
  return ids;
}

std::string source_dir() {
  const char* dir = std::getenv("TIDEPOOL_SOURCE_DIR");
  return dir != nullptr ? dir : ".";
}

std::string golden_dir() {
  const char* dir = std::getenv("TIDEPOOL_GOLDEN_DIR");
  return dir != nullptr ? dir : source_dir() + "/tests/golden";
}

std::string demo_model_dir() { return source_dir() + "/models/demo"; }

std::vector<std::string> golden_cases(const std::string& kind) {
  std::vector<std::string> found;
  const std::filesystem::path dir = std::filesystem::path(golden_dir()) / kind;
  if (!std::filesystem::is_directory(dir)) return found;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.is_directory()) found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

Expected Expected::read(const std::string& path) {
  const model::SafetensorsFile file(path);
  Expected e;
  e.input_ids = token_ids(file.at("input_ids"));
  e.generated_ids = token_ids(file.at("generated_ids"));
  e.prefill_logits = float_table(file.at("logits.prefill"));
  e.decode_logits = float_table(file.at("logits.decode"));
  for (const auto& [name, view] : file.tensors()) {
    const auto layer_of = [&](const char* prefix) { return std::stoi(name.substr(std::strlen(prefix))); };
    if (name.starts_with("hidden.")) e.hidden[layer_of("hidden.")] = float_table(view);
    if (name.starts_with("topk.")) e.topk[layer_of("topk.")] = int_table(view);
    if (name.starts_with("topk_margin.")) e.topk_margin[layer_of("topk_margin.")] = float_table(view);
  }
  return e;
}

Computed compute(const EngineOptions& options, const Expected& expected, const EngineHooks& hooks) {
  EngineOptions o = options;
  o.record_hidden = true;
  o.max_model_len = static_cast<int32_t>(expected.input_ids.size() + expected.generated_ids.size()) + 1;
  EngineImpl engine(o, hooks);
  RequestOptions request;
  request.prompt = expected.input_ids;
  request.max_tokens = static_cast<int32_t>(expected.generated_ids.size()) + 1;
  request.ignore_eos = true;
  tidepool_check(engine.submit(request).admitted, "the golden case was not admitted");
  Computed c;
  StepResult result;
  while (engine.has_work()) {
    engine.step(result);
    for (auto& row : result.rows) c.rows.push_back(std::move(row));
    for (const auto& out : result.outputs) {
      tidepool_check(out.error.empty(), "{}", out.error);
      if (c.generated_ids.size() < expected.generated_ids.size()) c.generated_ids.push_back(out.token);
    }
  }
  return c;
}

std::vector<std::string> differences(const Expected& expected, const Computed& computed, const Tolerance& tolerance) {
  Comparison comparison(expected, computed, tolerance);
  return comparison.run();
}

}  // namespace tidepool::test
