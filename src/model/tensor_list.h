// Which tensors a checkpoint of a given Config holds: names, shapes and roles, in checkpoint order; and the check of a
// directory against that list. Names are those of the published Hugging Face files. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/safetensors.h"

namespace tidepool::model {

enum class TensorRole {
  kEmbedding,    // [V, H]
  kMatrix,       // [out, in]; bf16, fp16, fp32, or fp8 with a scale tensor
  kPlainMatrix,  // [out, in]; as kMatrix, but kept in 16 or 32 bits by fp8 releases (router, weights_proj, eh_proj,
                 // lm_head)
  kNorm,         // [width], near 1
  kNormBias,     // [width], of the index key's LayerNorm
  kRouterBias,   // [E]; no parameter of the model: training sets it by expert load
};

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  TensorRole role = TensorRole::kMatrix;
  bool optional = false;  // may be absent
  bool ignored = false;   // never read: copies and indexers that the model does not use
  bool is_mtp = false;    // absent all together in checkpoints stored without their MTP layer
};

// Everything that may stand in the checkpoint but scale tensors. Optional beside the model's own tensors: indexers on
// shared layers (GLM-5 files have one on every layer), the MTP layer's copies of embedding and head (DeepSeek files).
std::vector<TensorSpec> tensor_list(const Config& config);

// The tensor that holds the [ceil(out/128), ceil(in/128)] block scales of an fp8 matrix: NAME_scale_inv.
std::string scale_name(const std::string& weight_name);
std::vector<int64_t> scale_shape(const std::vector<int64_t>& weight_shape);

struct ParameterCount {
  uint64_t parameters = 0;  // MTP layers included, router biases and ignored tensors not
  uint64_t router_bias_values = 0;
};
ParameterCount count_parameters(const Config& config);

// Names of layer `layer`: "model.layers.3." + suffix.
std::string layer_tensor(int32_t layer, const std::string& suffix);

// Throws one Error that lists every missing, unexpected and misshapen tensor (at most 20 by name, then a count).
// A type that the role does not allow, and an fp8 matrix without scales, count as misshapen.
void check_tensors(const Checkpoint& checkpoint, const Config& config);

// Whether the checkpoint holds the MTP layer's tensors at all.
bool has_mtp_tensors(const Checkpoint& checkpoint, const Config& config);

}  // namespace tidepool::model
