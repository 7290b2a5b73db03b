#include "model/presets.h"

#include <algorithm>

#include "base/check.h"

namespace tidepool::model {
namespace {

// Layer i is full when max(i - 2, 0) is a multiple of 4: 0, 1, 2, 6, 10, ..., as in GLM-5.2.
std::vector<bool> shared_by_four(int32_t num_layers) {
  std::vector<bool> is_full;
  for (int32_t i = 0; i < num_layers; ++i) is_full.push_back(std::max(i - 2, 0) % 4 == 0);
  return is_full;
}

Config glm_5() {
  Config c;
  c.architecture = "GlmMoeDsaForCausalLM";
  c.model_type = "glm_moe_dsa";
  c.dtype = "bfloat16";
  c.vocab_size = 154880;
  c.hidden_size = 6144;
  c.intermediate_size = 12288;
  c.moe_intermediate_size = 2048;
  c.num_layers = 78;
  c.num_mtp_layers = 1;
  c.first_dense_layers = 3;
  c.num_heads = 64;
  c.q_lora_rank = 2048;
  c.kv_lora_rank = 512;
  c.nope_dim = 192;
  c.rope_dim = 64;
  c.v_dim = 256;
  c.index_heads = 32;
  c.index_dim = 128;
  c.index_topk = 2048;
  c.is_full.assign(78, true);
  c.rope_theta = 1'000'000;
  c.max_position = 202752;
  c.num_experts = 256;
  c.num_shared_experts = 1;
  c.experts_per_token = 8;
  c.routed_scaling_factor = 2.5;
  c.eos_ids = {154820, 154827, 154829};
  return c;
}

Config glm_5_2() {
  Config c = glm_5();
  c.is_full = shared_by_four(78);
  c.index_share_for_mtp_iteration = true;
  c.rope_theta = 8'000'000;
  c.max_position = 1'048'576;
  return c;
}

Config deepseek_v3_2() {
  Config c = glm_5();
  c.architecture = "DeepseekV32ForCausalLM";
  c.model_type = "deepseek_v32";
  c.vocab_size = 129280;
  c.hidden_size = 7168;
  c.intermediate_size = 18432;
  c.num_layers = 61;
  c.num_heads = 128;
  c.q_lora_rank = 1536;
  c.nope_dim = 128;
  c.v_dim = 128;
  c.index_heads = 64;
  c.is_full.assign(61, true);
  c.indexer_rope_interleave = false;
  c.rope_theta = 10'000;
  c.rope_scaling = {
      .factor = 40, .original_max_position = 4096, .beta_fast = 32, .beta_slow = 1, .mscale = 1, .mscale_all_dim = 1};
  c.max_position = 163840;
  c.num_expert_groups = 8;
  c.expert_groups_kept = 4;
  c.rms_norm_eps = 1e-6;
  c.eos_ids = {1};
  return c;
}

// Eight layers, full at 0, 1, 2, 6; no token ends a text, for random weights say nothing.
Config eight_layers() {
  Config c = glm_5_2();
  c.num_layers = 8;
  c.is_full = shared_by_four(8);
  c.num_experts = 8;
  c.experts_per_token = 2;
  c.eos_ids.clear();
  return c;
}

Config tiny() {
  Config c = eight_layers();
  c.vocab_size = 256;
  c.hidden_size = 64;
  c.intermediate_size = 128;
  c.moe_intermediate_size = 32;
  c.num_heads = 4;
  c.q_lora_rank = 48;
  c.kv_lora_rank = 32;
  c.nope_dim = 24;
  c.rope_dim = 16;
  c.v_dim = 32;
  c.index_heads = 4;
  c.index_dim = 32;
  c.index_topk = 8;
  c.max_position = 65536;
  return c;
}

Config peer_8l(int32_t num_heads) {
  Config c = eight_layers();
  c.vocab_size = 1024;
  c.hidden_size = 512;
  c.intermediate_size = 1024;
  c.moe_intermediate_size = 256;
  c.first_dense_layers = 1;
  c.num_heads = num_heads;
  c.q_lora_rank = 256;
  return c;
}

Config peer_8l_64h() {
  Config c = peer_8l(64);
  c.num_mtp_layers = 0;
  c.index_share_for_mtp_iteration = false;
  return c;
}

}  // namespace

std::vector<std::string> preset_names() {
  return {"tiny", "peer-8l", "peer-8l-64h", "glm-5.2", "glm-5", "deepseek-v3.2"};
}

Config preset_config(const std::string& name) {
  if (name == "tiny") return tiny();
  if (name == "peer-8l") return peer_8l(8);
  if (name == "peer-8l-64h") return peer_8l_64h();
  if (name == "glm-5.2") return glm_5_2();
  if (name == "glm-5") return glm_5();
  if (name == "deepseek-v3.2") return deepseek_v3_2();
  std::string known;
  for (const std::string& preset : preset_names()) known += (known.empty() ? "" : ", ") + preset;
  tidepool_fail("preset \"{}\" is unknown; there are {}", name, known);
}

}  // namespace tidepool::model
