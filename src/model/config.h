// What a Hugging Face config.json says of a DSA model: GLM-5.2 / GLM-5 (`glm_moe_dsa`) and DeepSeek-V3.2
// (`deepseek_v32`). Plain data; every field is checked by read(), later code relies on it.
//
// Fields that decide tensor shapes, the number of layers or which rows are attended to must be in the file; the others
// have the defaults of transformers' config classes. head_dim is ignored: published files carry a misleading value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace tidepool::model {

struct RopeScaling {  // yarn; factor 1 means none
  double factor = 1.0;
  double original_max_position = 0;
  double beta_fast = 32, beta_slow = 1;
  double mscale = 1, mscale_all_dim = 0;  // 0: not in the file
  double attention_factor = 0;            // overrides the factor on cos/sin; 0: not in the file
  bool truncate = true;                   // round the ends of the ramp outward to whole dimensions
  bool operator==(const RopeScaling&) const = default;
};

struct Config {
  std::string architecture;  // architectures[0]
  std::string model_type;    // "glm_moe_dsa" or "deepseek_v32"
  int32_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, moe_intermediate_size = 0;
  int32_t num_layers = 0;      // without MTP layers
  int32_t num_mtp_layers = 0;  // num_nextn_predict_layers
  int32_t first_dense_layers = 0;
  int32_t moe_layer_freq = 1;
  int32_t num_heads = 0;
  int32_t q_lora_rank = 0, kv_lora_rank = 0, nope_dim = 0, rope_dim = 0, v_dim = 0;
  int32_t index_heads = 0, index_dim = 0, index_topk = 0;
  std::vector<bool> is_full;  // [num_layers] the layer owns an indexer; layer 0 always does
  bool index_share_for_mtp_iteration = false;
  bool indexer_rope_interleave = true;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  int64_t max_position = 0;
  int32_t num_experts = 0, num_shared_experts = 0, experts_per_token = 0;
  int32_t num_expert_groups = 1, expert_groups_kept = 1;
  bool norm_topk_prob = true;
  double routed_scaling_factor = 1.0;
  double rms_norm_eps = 1e-5;
  double latent_norm_eps =
      1e-6;  // of q_a_layernorm and kv_a_layernorm: what transformers uses, whatever rms_norm_eps is
  std::vector<int64_t> eos_ids;
  std::string dtype;         // as the file says; for information
  std::string quantization;  // quantization_config.quant_method or ""
  bool tie_word_embeddings = false;

  bool is_moe(int32_t layer) const {
    return layer >= first_dense_layers && (layer - first_dense_layers) % moe_layer_freq == 0;
  }
  int32_t row_values() const { return kv_lora_rank + rope_dim; }
  // Softmax scale of attention: (nope + rope)^-0.5, times m^2 where yarn has mscale_all_dim;
  // m = 0.1 mscale_all_dim ln(factor) + 1.
  double attention_scale() const;
  // inv_freq [rope_dim / 2], yarn (arXiv 2309.00071) applied, in fp32 steps as transformers computes it.
  std::vector<float> rope_inv_freq() const;
  // yarn's attention factor on cos/sin (1 unless mscale and mscale_all_dim differ).
  double rope_attention_factor() const;
  // Groups of layers that share one indexer: group g = owner layer and its followers, in order.
  std::vector<std::vector<int32_t>> layer_groups() const;

  bool operator==(const Config&) const = default;

  // `what` names the file in errors. Missing, negative, absurd or contradicting fields throw Error.
  static Config read(const base::Json& json, const std::string& what);
  // DIR/config.json; eos ids of DIR/generation_config.json, where that file has some, go before those of config.json.
  static Config read_directory(const std::string& directory);
  base::Json to_json() const;  // a config.json that read() reads back equal, published spelling
};

}  // namespace tidepool::model
