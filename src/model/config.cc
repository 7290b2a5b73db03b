#include "model/config.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "base/text.h"
#include "model/config_rope.h"
#include "model/json_fields.h"

namespace tidepool::model {
namespace {

// Wide enough for any model of this family for years, small enough that no product of two overflows int64.
constexpr int32_t kMaxWidth = 1 << 20;
constexpr int32_t kMaxHeads = 4096;
constexpr int32_t kMaxLayers = 1024;
constexpr int32_t kMaxExperts = 16384;
constexpr int64_t kMaxLayerExperts = int64_t{1} << 18;  // keeps the list of tensors of a hostile file small
constexpr int32_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxPosition = (int64_t{1} << 31) - 1;  // positions are int32
constexpr int64_t kMaxMatrixSide = int64_t{1} << 28;      // heads x head width
constexpr double kMinEps = 1e-12, kMaxEps = 0.1;

bool is_glm(const Config& c) { return c.model_type == "glm_moe_dsa"; }

void read_architecture(const JsonFields& f, Config& c) {
  c.model_type = f.string_or("model_type", "");
  tidepool_check(c.model_type == "glm_moe_dsa" || c.model_type == "deepseek_v32",
                 "{}: model_type is \"{}\", only \"glm_moe_dsa\" and \"deepseek_v32\" are supported", f.what(),
                 base::shown(c.model_type));
  const char* expected = is_glm(c) ? "GlmMoeDsaForCausalLM" : "DeepseekV32ForCausalLM";
  const base::Json* list = f.find("architectures");
  tidepool_check(list != nullptr, "{}: architectures is missing", f.what());
  const auto& names = list->as_array(f.name("architectures"));
  tidepool_check(names.size() == 1, "{}: architectures has {} entries, it must have one", f.what(), names.size());
  c.architecture = names[0].as_string(f.name("architectures"));
  tidepool_check(c.architecture == expected, "{}: architectures is \"{}\", model_type \"{}\" goes with \"{}\"",
                 f.what(), base::shown(c.architecture), c.model_type, expected);
}

void read_sizes(const JsonFields& f, Config& c) {
  c.vocab_size = f.int32("vocab_size", 1, kMaxVocab);
  c.hidden_size = f.int32("hidden_size", 1, kMaxWidth);
  c.intermediate_size = f.int32("intermediate_size", 1, kMaxWidth);
  c.moe_intermediate_size = f.int32("moe_intermediate_size", 1, kMaxWidth);
  c.num_layers = f.int32("num_hidden_layers", 1, kMaxLayers);
  c.num_mtp_layers = f.int32_or("num_nextn_predict_layers", 0, 0, 1);
  c.num_heads = f.int32("num_attention_heads", 1, kMaxHeads);
  f.require_integer("num_key_value_heads", c.num_heads, "num_attention_heads");
  c.q_lora_rank = f.int32("q_lora_rank", 1, kMaxWidth);
  c.kv_lora_rank = f.int32("kv_lora_rank", 1, kMaxWidth);
  c.nope_dim = f.int32("qk_nope_head_dim", 1, kMaxWidth);
  c.rope_dim = f.int32("qk_rope_head_dim", 2, kMaxWidth);
  tidepool_check(c.rope_dim % 2 == 0, "{}: qk_rope_head_dim is {}, it must be even", f.what(), c.rope_dim);
  c.v_dim = f.int32("v_head_dim", 1, kMaxWidth);
  f.require_integer("qk_head_dim", c.nope_dim + c.rope_dim, "qk_nope_head_dim + qk_rope_head_dim");
  c.index_heads = f.int32("index_n_heads", 1, kMaxHeads);
  c.index_dim = f.int32("index_head_dim", 1, kMaxWidth);
  tidepool_check(c.index_dim >= c.rope_dim, "{}: index_head_dim is {}, it must be at least qk_rope_head_dim = {}",
                 f.what(), c.index_dim, c.rope_dim);
  c.index_topk = f.int32("index_topk", 1, kMaxVocab);
  c.max_position = f.integer_or("max_position_embeddings", is_glm(c) ? 202752 : 163840, 1, kMaxPosition);
  const int64_t widest = int64_t{1} * c.num_heads * std::max({c.nope_dim + c.rope_dim, c.nope_dim + c.v_dim});
  tidepool_check(widest <= kMaxMatrixSide, "{}: num_attention_heads x head width is {}, the limit is {}", f.what(),
                 widest, kMaxMatrixSide);
  const int64_t index_width = int64_t{1} * c.index_heads * c.index_dim;
  tidepool_check(index_width <= kMaxMatrixSide, "{}: index_n_heads x index_head_dim is {}, the limit is {}", f.what(),
                 index_width, kMaxMatrixSide);
}

void read_experts(const JsonFields& f, Config& c) {
  c.num_experts =
      f.int32(f.has("num_experts") && !f.has("n_routed_experts") ? "num_experts" : "n_routed_experts", 1, kMaxExperts);
  f.require_integer("num_experts", c.num_experts, "n_routed_experts");
  tidepool_check(int64_t{1} * c.num_layers * c.num_experts <= kMaxLayerExperts,
                 "{}: num_hidden_layers x n_routed_experts is {}, the limit is {}", f.what(),
                 int64_t{1} * c.num_layers * c.num_experts, kMaxLayerExperts);
  c.num_shared_experts = f.int32_or("n_shared_experts", 1, 0, 256);
  tidepool_check(int64_t{1} * c.num_shared_experts * c.moe_intermediate_size <= kMaxWidth,
                 "{}: n_shared_experts x moe_intermediate_size is above {}", f.what(), kMaxWidth);
  c.experts_per_token = f.int32("num_experts_per_tok", 1, kMaxExperts);
  c.num_expert_groups = f.int32_or("n_group", is_glm(c) ? 1 : 8, 1, kMaxExperts);
  c.expert_groups_kept = f.int32_or("topk_group", is_glm(c) ? 1 : 4, 1, kMaxExperts);
  tidepool_check(c.num_experts % c.num_expert_groups == 0, "{}: n_routed_experts is {}, not a multiple of n_group = {}",
                 f.what(), c.num_experts, c.num_expert_groups);
  const int32_t per_group = c.num_experts / c.num_expert_groups;
  // A group's score is the sum of its two largest.
  tidepool_check(c.num_expert_groups == 1 || per_group >= 2,
                 "{}: n_group is {}, which leaves {} expert in a group, not 2", f.what(), c.num_expert_groups,
                 per_group);
  tidepool_check(c.expert_groups_kept <= c.num_expert_groups, "{}: topk_group is {}, the limit is n_group = {}",
                 f.what(), c.expert_groups_kept, c.num_expert_groups);
  tidepool_check(c.experts_per_token <= c.expert_groups_kept * per_group,
                 "{}: num_experts_per_tok is {}, the limit is the {} experts of topk_group = {} groups", f.what(),
                 c.experts_per_token, c.expert_groups_kept * per_group, c.expert_groups_kept);
  c.norm_topk_prob = f.boolean_or("norm_topk_prob", true);
  c.routed_scaling_factor = f.number_or("routed_scaling_factor", 2.5, 1e-6, 1e6);
  f.require_string("scoring_func", "sigmoid");
  f.require_string("topk_method", "noaux_tc");
}

// mlp_layer_types and first_k_dense_replace say the same thing; either may be absent, both must agree.
void read_dense_layers(const JsonFields& f, Config& c) {
  f.require_integer("moe_layer_freq", 1, "other spacings of MoE layers are not supported");
  const bool has_count = f.has("first_k_dense_replace");
  c.first_dense_layers = std::min(f.int32_or("first_k_dense_replace", 3, 0, kMaxLayers), c.num_layers);
  const base::Json* list = f.find("mlp_layer_types");
  if (list == nullptr) return;
  const auto& types = list->as_array(f.name("mlp_layer_types"));
  tidepool_check(types.size() == static_cast<size_t>(c.num_layers),
                 "{}: mlp_layer_types has {} entries, num_hidden_layers is {}", f.what(), types.size(), c.num_layers);
  int32_t num_dense = 0;
  bool past_dense = false;
  for (size_t i = 0; i < types.size(); ++i) {
    const std::string& type = types[i].as_string(f.name("mlp_layer_types"));
    tidepool_check(type == "dense" || type == "sparse",
                   "{}: mlp_layer_types[{}] is \"{}\", it must be \"dense\" or \"sparse\"", f.what(), i,
                   base::shown(type));
    past_dense |= type == "sparse";
    tidepool_check(type == "sparse" || !past_dense,
                   "{}: mlp_layer_types[{}] is \"dense\" after a \"sparse\" layer, which is not supported", f.what(),
                   i);
    num_dense += type == "dense";
  }
  tidepool_check(!has_count || num_dense == c.first_dense_layers,
                 "{}: mlp_layer_types has {} dense layers, first_k_dense_replace is {}", f.what(), num_dense,
                 c.first_dense_layers);
  c.first_dense_layers = num_dense;
}

std::vector<bool> full_from_list(const JsonFields& f, const char* key, const base::JsonArray& list) {
  std::vector<bool> is_full;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string& type = list[i].as_string(f.name(key));
    tidepool_check(type == "full" || type == "shared", "{}: {}[{}] is \"{}\", it must be \"full\" or \"shared\"",
                   f.what(), key, i, base::shown(type));
    is_full.push_back(type == "full");
  }
  return is_full;
}

std::vector<bool> full_from_pattern(const JsonFields& f, const std::string& pattern) {
  std::vector<bool> is_full;
  for (char letter : pattern) {
    tidepool_check(letter == 'F' || letter == 'S', "{}: index_topk_pattern is \"{}\", its letters must be F or S",
                   f.what(), base::shown(pattern));
    is_full.push_back(letter == 'F');
  }
  return is_full;
}

// indexer_types, else index_topk_pattern, else layer i is full when max(i - offset + 1, 0) is a multiple of freq.
void read_indexer_types(const JsonFields& f, Config& c) {
  const char* key = f.has("indexer_types") ? "indexer_types" : "index_topk_pattern";
  const base::Json* value = f.find(key);
  if (value != nullptr) {
    c.is_full = value->is_string() && std::string(key) == "index_topk_pattern"
                    ? full_from_pattern(f, value->as_string())
                    : full_from_list(f, key, value->as_array(f.name(key)));
  } else {
    key = "index_topk_freq";
    const int64_t freq = std::max<int64_t>(f.integer_or("index_topk_freq", 1, 0, kMaxLayers), 1);
    const int64_t offset = f.integer_or("index_skip_topk_offset", 2, 0, kMaxLayers);
    for (int64_t i = 0; i < c.num_layers; ++i) c.is_full.push_back(std::max<int64_t>(i - offset + 1, 0) % freq == 0);
  }
  tidepool_check(c.is_full.size() == static_cast<size_t>(c.num_layers),
                 "{}: {} has {} entries, num_hidden_layers is {}", f.what(), key, c.is_full.size(), c.num_layers);
  tidepool_check(c.is_full[0], "{}: {} makes layer 0 a shared layer, but no layer before it owns an indexer", f.what(),
                 key);
}

std::vector<int64_t> read_eos(const JsonFields& f, int32_t vocab_size) {
  std::vector<int64_t> ids;
  const base::Json* value = f.find("eos_token_id");
  if (value == nullptr) return ids;
  const base::JsonArray list = value->is_array() ? value->as_array() : base::JsonArray{*value};
  for (const base::Json& id : list) {
    ids.push_back(id.as_int(f.name("eos_token_id")));
    tidepool_check(ids.back() >= 0 && ids.back() < vocab_size, "{}: eos_token_id is {}, it must lie in 0..{}", f.what(),
                   ids.back(), vocab_size - 1);
  }
  return ids;
}

void read_quantization(const JsonFields& f, Config& c) {
  const base::Json* value = f.find("quantization_config");
  if (value == nullptr) return;
  const JsonFields q(*value, f.name("quantization_config"));
  c.quantization = q.string_or("quant_method", "");
  tidepool_check(c.quantization == "fp8", "{}: quant_method is \"{}\", only \"fp8\" is supported", q.what(),
                 base::shown(c.quantization));
  q.require_string("fmt", "e4m3");
  if (const base::Json* block = q.find("weight_block_size")) {
    const auto& sides = block->as_array(q.name("weight_block_size"));
    for (const base::Json& side : sides) {
      const int64_t width = side.as_int(q.name("weight_block_size"));
      tidepool_check(sides.size() == 2 && width == 128, "{}: weight_block_size must be [128, 128], it holds {}",
                     q.what(), width);
    }
  }
}

void read_rest(const JsonFields& f, Config& c) {
  f.require_string("hidden_act", "silu");
  f.require_bool("attention_bias", false);
  f.require_bool("mlp_bias", false);
  f.require_bool("rope_interleave", true);
  c.indexer_rope_interleave = f.boolean_or("indexer_rope_interleave", is_glm(c));
  c.index_share_for_mtp_iteration = f.boolean_or("index_share_for_mtp_iteration", false);
  c.rms_norm_eps = f.number_or("rms_norm_eps", is_glm(c) ? 1e-5 : 1e-6, kMinEps, kMaxEps);
  c.latent_norm_eps = f.number_or("latent_norm_eps", 1e-6, kMinEps, kMaxEps);
  c.tie_word_embeddings = f.boolean_or("tie_word_embeddings", false);
  c.dtype = f.string_or(f.has("dtype") ? "dtype" : "torch_dtype", "");
  c.eos_ids = read_eos(f, c.vocab_size);
}

base::Json indexer_types_json(const Config& c) {
  base::Json list = base::Json::array();
  for (bool full : c.is_full) list.push_back(full ? "full" : "shared");
  return list;
}

base::Json rope_json(const Config& c) {
  base::Json rope = base::Json::object();
  rope.set("rope_theta", c.rope_theta);
  const RopeScaling& yarn = c.rope_scaling;
  rope.set("rope_type", yarn == RopeScaling{} ? "default" : "yarn");
  if (yarn == RopeScaling{}) return rope;
  rope.set("factor", yarn.factor);
  rope.set("original_max_position_embeddings", yarn.original_max_position);
  rope.set("beta_fast", yarn.beta_fast);
  rope.set("beta_slow", yarn.beta_slow);
  if (yarn.mscale != 0) rope.set("mscale", yarn.mscale);
  if (yarn.mscale_all_dim != 0) rope.set("mscale_all_dim", yarn.mscale_all_dim);
  if (yarn.attention_factor != 0) rope.set("attention_factor", yarn.attention_factor);
  if (!yarn.truncate) rope.set("truncate", false);
  return rope;
}

base::Json eos_json(const std::vector<int64_t>& ids) {
  if (ids.empty()) return nullptr;
  if (ids.size() == 1) return ids[0];
  base::Json list = base::Json::array();
  for (int64_t id : ids) list.push_back(id);
  return list;
}

base::Json fp8_json() {
  base::Json q = base::Json::object();
  q.set("quant_method", "fp8");
  q.set("fmt", "e4m3");
  q.set("activation_scheme", "dynamic");
  q.set("weight_block_size", base::JsonArray{128, 128});
  return q;
}

}  // namespace

Config Config::read(const base::Json& json, const std::string& what) {
  const JsonFields fields(json, what);
  Config config;
  read_architecture(fields, config);
  read_sizes(fields, config);
  read_experts(fields, config);
  read_dense_layers(fields, config);
  read_indexer_types(fields, config);
  read_rope(fields, config);
  read_quantization(fields, config);
  read_rest(fields, config);
  return config;
}

Config Config::read_directory(const std::string& directory) {
  const std::string path = directory + "/config.json";
  std::error_code error;
  tidepool_check(std::filesystem::is_directory(directory, error), "{}: no such directory", directory);
  tidepool_check(base::path_exists(path), "{}: config.json is missing, so this is no Hugging Face checkpoint",
                 directory);
  Config config = read(base::Json::parse_file(path), path);
  const std::string generation = directory + "/generation_config.json";
  if (base::path_exists(generation)) {
    const base::Json json = base::Json::parse_file(generation);
    const auto ids = read_eos(JsonFields(json, generation), config.vocab_size);
    if (!ids.empty()) config.eos_ids = ids;
  }
  return config;
}

std::vector<std::vector<int32_t>> Config::layer_groups() const {
  std::vector<std::vector<int32_t>> groups;
  for (int32_t layer = 0; layer < num_layers; ++layer) {
    if (is_full[static_cast<size_t>(layer)]) groups.emplace_back();
    groups.back().push_back(layer);
  }
  return groups;
}

base::Json Config::to_json() const {
  base::Json j = base::Json::object();
  j.set("architectures", base::JsonArray{architecture});
  j.set("model_type", model_type);
  if (!dtype.empty()) j.set("dtype", dtype);
  const std::pair<const char*, int64_t> integers[] = {{"vocab_size", vocab_size},
                                                      {"hidden_size", hidden_size},
                                                      {"intermediate_size", intermediate_size},
                                                      {"moe_intermediate_size", moe_intermediate_size},
                                                      {"num_hidden_layers", num_layers},
                                                      {"num_nextn_predict_layers", num_mtp_layers},
                                                      {"first_k_dense_replace", first_dense_layers},
                                                      {"moe_layer_freq", moe_layer_freq},
                                                      {"num_attention_heads", num_heads},
                                                      {"num_key_value_heads", num_heads},
                                                      {"q_lora_rank", q_lora_rank},
                                                      {"kv_lora_rank", kv_lora_rank},
                                                      {"qk_nope_head_dim", nope_dim},
                                                      {"qk_rope_head_dim", rope_dim},
                                                      {"qk_head_dim", nope_dim + rope_dim},
                                                      {"v_head_dim", v_dim},
                                                      {"index_n_heads", index_heads},
                                                      {"index_head_dim", index_dim},
                                                      {"index_topk", index_topk},
                                                      {"max_position_embeddings", max_position},
                                                      {"n_routed_experts", num_experts},
                                                      {"n_shared_experts", num_shared_experts},
                                                      {"num_experts_per_tok", experts_per_token},
                                                      {"n_group", num_expert_groups},
                                                      {"topk_group", expert_groups_kept}};
  for (const auto& [key, value] : integers) j.set(key, value);
  j.set("indexer_types", indexer_types_json(*this));
  j.set("index_share_for_mtp_iteration", index_share_for_mtp_iteration);
  j.set("indexer_rope_interleave", indexer_rope_interleave);
  j.set("rope_parameters", rope_json(*this));
  j.set("norm_topk_prob", norm_topk_prob);
  j.set("routed_scaling_factor", routed_scaling_factor);
  j.set("scoring_func", "sigmoid");
  j.set("topk_method", "noaux_tc");
  j.set("hidden_act", "silu");
  j.set("rms_norm_eps", rms_norm_eps);
  if (latent_norm_eps != 1e-6) j.set("latent_norm_eps", latent_norm_eps);
  j.set("attention_bias", false);
  j.set("tie_word_embeddings", tie_word_embeddings);
  j.set("eos_token_id", eos_json(eos_ids));
  if (!quantization.empty()) j.set("quantization_config", fp8_json());
  return j;
}

}  // namespace tidepool::model
