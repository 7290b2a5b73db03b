// Any text as a config.json: an Error, or a configuration that later code can rely on and that survives a round trip.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "model/config.h"
#include "tidepool/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tidepool::base::Json;
  using tidepool::model::Config;
  try {
    const std::string text(data, data + size);
    const Config config = Config::read(Json::parse(text, "input"), "input");
    if (config.is_full.size() != static_cast<size_t>(config.num_layers) || !config.is_full[0]) std::abort();
    if (config.layer_groups().empty() || !std::isfinite(config.attention_scale())) std::abort();
    if (config.rope_inv_freq().size() * 2 != static_cast<size_t>(config.rope_dim)) std::abort();
    if (Config::read(Json::parse(config.to_json().dump(), "copy"), "copy") != config) std::abort();
  } catch (const tidepool::Error&) {
  }
  return 0;
}
