#include "model/info.h"

#include "model/safetensors.h"
#include "model/tensor_list.h"

namespace tidepool::model {

ModelInfo describe(const std::string& directory) {
  ModelInfo info;
  info.config = Config::read_directory(directory);
  const Config& config = info.config;
  const Checkpoint checkpoint(directory);
  check_tensors(checkpoint, config);
  info.quantization = "none";
  for (const TensorSpec& spec : tensor_list(config)) {
    const TensorView* view = checkpoint.find(spec.name);
    if (view == nullptr || spec.ignored) continue;
    (spec.role == TensorRole::kRouterBias ? info.router_bias_values : info.parameters) += view->num_values();
    if (view->type == DType::kF8E4M3) info.quantization = "fp8";
  }
  constexpr uint64_t kBytesOfBf16 = 2;
  const uint64_t num_full = config.layer_groups().size();
  info.weight_bytes = checkpoint.tensor_bytes();
  info.row_bytes = static_cast<uint64_t>(config.row_values()) * kBytesOfBf16;
  info.kv_bytes_per_token = info.row_bytes * static_cast<uint64_t>(config.num_layers);
  info.index_key_bytes_per_token = num_full * static_cast<uint64_t>(config.index_dim) * kBytesOfBf16;
  info.mtp_layers = has_mtp_tensors(checkpoint, config) ? config.num_mtp_layers : 0;
  info.num_files = static_cast<int32_t>(checkpoint.files().size());
  return info;
}

base::Json ModelInfo::to_json() const {
  base::Json types = base::Json::array();
  for (bool full : config.is_full) types.push_back(full ? "full" : "shared");
  base::Json groups = base::Json::array();
  for (const auto& group : config.layer_groups()) {
    base::Json layers = base::Json::array();
    for (int32_t layer : group) layers.push_back(layer);
    groups.push_back(std::move(layers));
  }
  base::Json j = base::Json::object();
  j.set("architecture", config.architecture);
  j.set("num_layers", config.num_layers);
  j.set("indexer_types", std::move(types));
  j.set("layer_groups", std::move(groups));
  j.set("parameters", parameters);
  j.set("router_bias_values", router_bias_values);
  j.set("weight_bytes", weight_bytes);
  j.set("row_bytes", row_bytes);
  j.set("kv_bytes_per_token", kv_bytes_per_token);
  j.set("index_key_bytes_per_token", index_key_bytes_per_token);
  j.set("mtp_layers", mtp_layers);
  j.set("quantization", quantization);
  j.set("num_files", num_files);
  j.set("max_position_tokens", config.max_position);
  return j;
}

}  // namespace tidepool::model
