#include "model/config_rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

namespace tidepool::model {
namespace {

constexpr double kMaxTheta = 1e12;
constexpr double kMaxFactor = 1e6;

// yarn's correction of magnitudes: 0.1 m ln(factor) + 1.
double yarn_mscale(double factor, double mscale) { return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

// `rope_type` or its older name `type`; "default" when neither is there.
std::string rope_type(const JsonFields& rope) {
  const std::string type = rope.string_or(rope.has("rope_type") ? "rope_type" : "type", "default");
  tidepool_check(type == "default" || type == "yarn",
                 "{}: rope_type is \"{}\", only \"default\" and \"yarn\" are supported", rope.what(),
                 base::shown(type));
  return type;
}

RopeScaling read_yarn(const JsonFields& rope, int64_t max_position) {
  RopeScaling yarn;
  yarn.original_max_position =
      rope.number_or("original_max_position_embeddings", static_cast<double>(max_position), 1, 1e12);
  tidepool_check(rope.has("factor"), "{}: factor is missing, rope_type \"yarn\" needs it", rope.what());
  yarn.factor = rope.number_or("factor", 1, 1, kMaxFactor);
  yarn.beta_fast = rope.number_or("beta_fast", 32, 1e-6, kMaxFactor);
  yarn.beta_slow = rope.number_or("beta_slow", 1, 1e-6, kMaxFactor);
  tidepool_check(yarn.beta_fast >= yarn.beta_slow, "{}: beta_fast is {}, it must not be below beta_slow = {}",
                 rope.what(), yarn.beta_fast, yarn.beta_slow);
  yarn.mscale = rope.number_or("mscale", 0, 0, 1e3);
  yarn.mscale_all_dim = rope.number_or("mscale_all_dim", 0, 0, 1e3);
  yarn.attention_factor = rope.number_or("attention_factor", 0, 0, 1e3);
  yarn.truncate = rope.boolean_or("truncate", true);
  return yarn;
}

// The two ends of yarn's ramp, in pairs of dimensions: pairs below `low` keep their frequency, above `high` they are
// interpolated.
std::pair<double, double> ramp_ends(const RopeScaling& yarn, double theta, int32_t rope_dim) {
  auto dimension_of = [&](double rotations) {
    return rope_dim * std::log(yarn.original_max_position / (rotations * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = dimension_of(yarn.beta_fast);
  double high = dimension_of(yarn.beta_slow);
  if (yarn.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rope_dim - 1.0);
  if (low == high) high += 0.001;  // a step, without a division by zero
  return {low, high};
}

}  // namespace

void read_rope(const JsonFields& fields, Config& config) {
  std::optional<double> theta;
  auto take_theta = [&](const JsonFields& from) {
    if (!from.has("rope_theta")) return;
    // theta 1 would leave yarn without a ramp (its logarithm is 0).
    const double value = from.number_or("rope_theta", 0, 1.0 + 1e-6, kMaxTheta);
    tidepool_check(!theta || *theta == value, "{}: rope_theta is {} in one place and {} in another", fields.what(),
                   *theta, value);
    theta = value;
  };
  std::optional<RopeScaling> scaling;
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const base::Json* value = fields.find(key);
    if (value == nullptr) continue;
    const JsonFields rope(*value, fields.what() + ": " + key);
    take_theta(rope);
    const RopeScaling read = rope_type(rope) == "yarn" ? read_yarn(rope, config.max_position) : RopeScaling{};
    tidepool_check(!scaling || *scaling == read, "{}: rope_parameters and rope_scaling contradict each other",
                   fields.what());
    scaling = read;
    rope.number_or("partial_rotary_factor", 1, 1, 1);
  }
  take_theta(fields);
  config.rope_theta = theta.value_or(10000.0);
  config.rope_scaling = scaling.value_or(RopeScaling{});
}

double Config::attention_scale() const {
  const double scale = 1.0 / std::sqrt(static_cast<double>(nope_dim + rope_dim));
  if (rope_scaling.mscale_all_dim == 0) return scale;
  const double m = yarn_mscale(rope_scaling.factor, rope_scaling.mscale_all_dim);
  return scale * m * m;
}

double Config::rope_attention_factor() const {
  if (rope_scaling.attention_factor != 0) return rope_scaling.attention_factor;
  if (rope_scaling.mscale != 0 && rope_scaling.mscale_all_dim != 0) {
    return yarn_mscale(rope_scaling.factor, rope_scaling.mscale) /
           yarn_mscale(rope_scaling.factor, rope_scaling.mscale_all_dim);
  }
  return yarn_mscale(rope_scaling.factor, 1.0);
}

std::vector<float> Config::rope_inv_freq() const {
  const int32_t num_pairs = rope_dim / 2;
  std::vector<float> inv_freq(static_cast<size_t>(num_pairs));
  const auto [low, high] = ramp_ends(rope_scaling, rope_theta, rope_dim);
  const float ramp_low = static_cast<float>(low);
  const float ramp_width = static_cast<float>(high - low);
  for (int32_t j = 0; j < num_pairs; ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(rope_dim);
    const float frequency = static_cast<float>(std::pow(rope_theta, static_cast<double>(exponent)));
    const float extrapolated = 1.0f / frequency;
    if (rope_scaling.factor == 1.0) {
      inv_freq[static_cast<size_t>(j)] = extrapolated;
      continue;
    }
    const float interpolated = 1.0f / (static_cast<float>(rope_scaling.factor) * frequency);
    const float ramp = std::clamp((static_cast<float>(j) - ramp_low) / ramp_width, 0.0f, 1.0f);
    const float keep = 1.0f - ramp;
    inv_freq[static_cast<size_t>(j)] = interpolated * (1.0f - keep) + extrapolated * keep;
  }
  return inv_freq;
}

}  // namespace tidepool::model
