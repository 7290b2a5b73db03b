// The public functions of checkpoint.h, in terms of this layer.
#include "base/check.h"
#include "base/parallel.h"
#include "model/info.h"
#include "model/make_model.h"
#include "model/presets.h"
#include "model/safetensors_writer.h"
#include "tidepool/checkpoint.h"

namespace tidepool {

CheckpointInfo describe_checkpoint(const std::string& directory) {
  const model::ModelInfo info = model::describe(directory);
  const model::Config& config = info.config;
  CheckpointInfo out;
  out.architecture = config.architecture;
  out.num_layers = config.num_layers;
  for (const bool full : config.is_full) out.indexer_types.push_back(full ? "full" : "shared");
  for (const auto& group : config.layer_groups()) out.layer_groups.emplace_back(group.begin(), group.end());
  out.parameters = static_cast<int64_t>(info.parameters);
  out.weight_bytes = static_cast<int64_t>(info.weight_bytes);
  out.row_bytes = static_cast<int64_t>(info.row_bytes);
  out.kv_bytes_per_token = static_cast<int64_t>(info.kv_bytes_per_token);
  out.index_key_bytes_per_token = static_cast<int64_t>(info.index_key_bytes_per_token);
  out.mtp_layers = info.mtp_layers;
  out.quantization = info.quantization;
  out.vocab_size = config.vocab_size;
  out.hidden_size = config.hidden_size;
  out.index_topk = config.index_topk;
  out.max_position = config.max_position;
  return out;
}

std::vector<std::string> model_presets() { return model::preset_names(); }

MadeModel make_model(const MakeModelOptions& options) {
  tidepool_check(options.preset.empty() != options.config_path.empty(), "make_model takes a preset or a config.json");
  const std::string& file = options.config_path;
  const model::Config config = options.preset.empty() ? model::Config::read(base::Json::parse_file(file), file)
                                                      : model::preset_config(options.preset);
  model::MakeModelOptions inner;
  inner.seed = options.seed;
  inner.sparse = options.sparse;
  inner.fp8 = config.quantization == "fp8";
  inner.num_threads = options.num_threads > 0 ? options.num_threads : base::available_threads();
  inner.progress = options.progress;
  const model::MadeModel made = model::make_model(config, options.out, inner);
  return {static_cast<int64_t>(made.parameters), static_cast<int64_t>(made.bytes)};
}

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
  std::vector<model::TensorInfo> infos;
  std::vector<const void*> data;
  for (const NamedTensor& tensor : tensors) {
    infos.push_back({tensor.name, tensor.type, tensor.shape});
    data.push_back(tensor.data);
  }
  model::write_safetensors(path, infos, data);
}

}  // namespace tidepool
