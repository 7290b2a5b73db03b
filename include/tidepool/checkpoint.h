// Checkpoints without an engine: describing and making them; and the file format they are stored in.
// Errors: tidepool::Error. Thread safe for different paths.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tidepool/dtype.h"
#include "tidepool/error.h"

namespace tidepool {

struct CheckpointInfo {
  std::string architecture;
  int32_t num_layers = 0;
  std::vector<std::string> indexer_types;  // "full" / "shared" per layer
  std::vector<std::vector<int32_t>> layer_groups;
  int64_t parameters = 0;                 // MTP included, router biases not
  int64_t weight_bytes = 0;               // tensor bytes in the files
  int64_t row_bytes = 0;                  // one cache row, bf16
  int64_t kv_bytes_per_token = 0;         // all layers, without MTP
  int64_t index_key_bytes_per_token = 0;  // full layers
  int32_t mtp_layers = 0;
  std::string quantization;  // "none", or "fp8" when a matrix is stored so
  int64_t vocab_size = 0, hidden_size = 0, index_topk = 0, max_position = 0;
};

// Reads config.json and the headers of the safetensors files; checks every tensor's presence and shape, reads no
// weight.
CheckpointInfo describe_checkpoint(const std::string& directory);

// The names that MakeModelOptions::preset may have.
std::vector<std::string> model_presets();

struct MakeModelOptions {
  std::string preset;       // one of model_presets(); empty: config_path
  std::string config_path;  // a config.json
  std::string out;          // directory to make; must not exist or be empty; has this name only when complete
  uint64_t seed = 0;
  bool sparse = false;  // headers and holes only
  int num_threads = 0;  // 0: all
  // Called now and then on the calling thread. What it throws ends the work, leaving nothing behind.
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;
};
struct MadeModel {
  int64_t parameters = 0;
  int64_t bytes = 0;
};
MadeModel make_model(const MakeModelOptions& options);

// A tensor to write. Borrows `data`, row-major, [product of shape]; may be null when that is 0.
struct NamedTensor {
  std::string name;
  DType type = DType::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
};

// Writes a safetensors file under a temporary name and renames it when it is complete; replaces an existing file.
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors);

}  // namespace tidepool
