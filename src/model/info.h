// What a checkpoint is and costs, from its config.json and the headers of its files; no weight is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/config.h"

namespace tidepool::model {

struct ModelInfo {
  Config config;
  uint64_t parameters = 0;  // of the tensors that are there: MTP layer included, scales and router biases not
  uint64_t router_bias_values = 0;
  uint64_t weight_bytes = 0;               // of all tensors in the files
  uint64_t row_bytes = 0;                  // one KV row in bf16: (Rk + dr) x 2
  uint64_t kv_bytes_per_token = 0;         // rows of all layers but MTP
  uint64_t index_key_bytes_per_token = 0;  // index keys in bf16: Di x 2 for each full layer but MTP
  int32_t mtp_layers = 0;                  // 0 when the files hold none, whatever config.json says
  std::string quantization;                // "none", or "fp8" when a matrix is stored so
  int32_t num_files = 0;

  // Keys of `tidepool info --json`.
  base::Json to_json() const;
};

// Throws as Weights::load does before it reads weights: bad config, bad headers, tensors that do not fit.
ModelInfo describe(const std::string& directory);

}  // namespace tidepool::model
