#include "model/tensor_list.h"

#include <algorithm>
#include <unordered_set>

#include "base/check.h"
#include "base/text.h"
#include "nn/packed_matrix.h"

namespace tidepool::model {
namespace {

constexpr size_t kMaxListed = 20;

// Appends the specs of one layer after the other; `prefix_` is the layer's.
class ListBuilder {
 public:
  explicit ListBuilder(const Config& config) : config_(config) {}

  void top(const char* name, std::vector<int64_t> shape, TensorRole role, bool optional = false) {
    list.push_back({name, std::move(shape), role, optional, false, false});
  }

  void layer(int32_t layer) {
    const Config& c = config_;
    is_mtp_ = layer >= c.num_layers;
    prefix_ = layer_tensor(layer, "");
    norm("input_layernorm.weight", c.hidden_size);
    attention();
    const bool is_full = is_mtp_ || c.is_full[static_cast<size_t>(layer)];
    const size_t first = list.size();
    indexer();
    for (size_t i = first; i < list.size() && !is_full; ++i) list[i].optional = list[i].ignored = true;
    norm("post_attention_layernorm.weight", c.hidden_size);
    if (is_mtp_ || c.is_moe(layer)) {
      experts();
    } else {
      mlp("mlp.", c.intermediate_size);
    }
    if (is_mtp_) mtp();
  }

  std::vector<TensorSpec> list;

 private:
  void add(const char* suffix, std::vector<int64_t> shape, TensorRole role) {
    list.push_back({prefix_ + suffix, std::move(shape), role, false, false, is_mtp_});
  }
  void norm(const char* suffix, int64_t width) { add(suffix, {width}, TensorRole::kNorm); }
  void matrix(const char* suffix, int64_t out, int64_t in) { add(suffix, {out, in}, TensorRole::kMatrix); }

  void attention() {
    const Config& c = config_;
    matrix("self_attn.q_a_proj.weight", c.q_lora_rank, c.hidden_size);
    norm("self_attn.q_a_layernorm.weight", c.q_lora_rank);
    matrix("self_attn.q_b_proj.weight", c.num_heads * (c.nope_dim + c.rope_dim), c.q_lora_rank);
    matrix("self_attn.kv_a_proj_with_mqa.weight", c.kv_lora_rank + c.rope_dim, c.hidden_size);
    norm("self_attn.kv_a_layernorm.weight", c.kv_lora_rank);
    matrix("self_attn.kv_b_proj.weight", c.num_heads * (c.nope_dim + c.v_dim), c.kv_lora_rank);
    matrix("self_attn.o_proj.weight", c.hidden_size, c.num_heads * c.v_dim);
  }

  void indexer() {
    const Config& c = config_;
    matrix("self_attn.indexer.wq_b.weight", c.index_heads * c.index_dim, c.q_lora_rank);
    matrix("self_attn.indexer.wk.weight", c.index_dim, c.hidden_size);
    add("self_attn.indexer.weights_proj.weight", {c.index_heads, c.hidden_size}, TensorRole::kPlainMatrix);
    norm("self_attn.indexer.k_norm.weight", c.index_dim);
    add("self_attn.indexer.k_norm.bias", {c.index_dim}, TensorRole::kNormBias);
  }

  void mlp(const std::string& name, int64_t width) {
    const Config& c = config_;
    matrix((name + "gate_proj.weight").c_str(), width, c.hidden_size);
    matrix((name + "up_proj.weight").c_str(), width, c.hidden_size);
    matrix((name + "down_proj.weight").c_str(), c.hidden_size, width);
  }

  void experts() {
    const Config& c = config_;
    add("mlp.gate.weight", {c.num_experts, c.hidden_size}, TensorRole::kPlainMatrix);
    add("mlp.gate.e_score_correction_bias", {c.num_experts}, TensorRole::kRouterBias);
    for (int32_t e = 0; e < c.num_experts; ++e) mlp(fmt::format("mlp.experts.{}.", e), c.moe_intermediate_size);
    if (c.num_shared_experts > 0)
      mlp("mlp.shared_experts.", int64_t{1} * c.moe_intermediate_size * c.num_shared_experts);
  }

  void mtp() {
    const Config& c = config_;
    norm("enorm.weight", c.hidden_size);
    norm("hnorm.weight", c.hidden_size);
    add("eh_proj.weight", {c.hidden_size, 2 * c.hidden_size}, TensorRole::kPlainMatrix);
    norm("shared_head.norm.weight", c.hidden_size);
    for (const char* copy : {"embed_tokens.weight", "shared_head.head.weight"}) {
      add(copy, {c.vocab_size, c.hidden_size}, TensorRole::kPlainMatrix);
      list.back().optional = list.back().ignored = true;
    }
  }

  const Config& config_;
  std::string prefix_;
  bool is_mtp_ = false;
};

bool type_fits(TensorRole role, DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16:
      return true;
    case DType::kF8E4M3:
      return role == TensorRole::kMatrix || role == TensorRole::kPlainMatrix;
    default:
      return false;
  }
}

// Empty when the tensor is as expected.
std::string what_is_wrong(const Checkpoint& checkpoint, const TensorSpec& spec, const TensorView& view) {
  if (view.shape != spec.shape) {
    return fmt::format("{}: shape {}, expected {}", spec.name, shape_text(view.shape), shape_text(spec.shape));
  }
  if (!type_fits(spec.role, view.type)) {
    return fmt::format("{}: type {}, which is not supported here", spec.name, dtype_name(view.type));
  }
  if (view.type != DType::kF8E4M3) return "";
  const std::string name = scale_name(spec.name);
  const TensorView* scale = checkpoint.find(name);
  if (scale == nullptr) return fmt::format("{}: float8 without {}", spec.name, name);
  const auto shape = scale_shape(spec.shape);
  if (scale->shape != shape) {
    return fmt::format("{}: shape {}, expected {}", name, shape_text(scale->shape), shape_text(shape));
  }
  if (!type_fits(TensorRole::kNorm, scale->type)) {
    return fmt::format("{}: type {}, which is not supported here", name, dtype_name(scale->type));
  }
  return "";
}

void append_problems(std::string& sentence, size_t& listed, const char* kind,
                     const std::vector<std::string>& problems) {
  if (problems.empty()) return;
  sentence += fmt::format("; {} {}:", problems.size(), kind);
  size_t shown = 0;
  for (; shown < problems.size() && listed < kMaxListed; ++shown, ++listed) {
    sentence += (shown == 0 ? " " : ", ") + base::shown(problems[shown]);
  }
  if (shown == 0) {
    sentence += " not listed";
  } else if (shown < problems.size()) {
    sentence += fmt::format(" and {} more", problems.size() - shown);
  }
}

}  // namespace

std::string layer_tensor(int32_t layer, const std::string& suffix) {
  return fmt::format("model.layers.{}.{}", layer, suffix);
}

std::vector<TensorSpec> tensor_list(const Config& config) {
  ListBuilder builder(config);
  builder.top("model.embed_tokens.weight", {config.vocab_size, config.hidden_size}, TensorRole::kEmbedding);
  for (int32_t layer = 0; layer < config.num_layers + config.num_mtp_layers; ++layer) builder.layer(layer);
  builder.top("model.norm.weight", {config.hidden_size}, TensorRole::kNorm);
  builder.top("lm_head.weight", {config.vocab_size, config.hidden_size}, TensorRole::kPlainMatrix,
              config.tie_word_embeddings);
  if (config.tie_word_embeddings) builder.list.back().ignored = true;
  return std::move(builder.list);
}

std::string scale_name(const std::string& weight_name) { return weight_name + "_scale_inv"; }

std::vector<int64_t> scale_shape(const std::vector<int64_t>& weight_shape) {
  std::vector<int64_t> shape;
  for (int64_t side : weight_shape) shape.push_back((side + nn::kScaleBlock - 1) / nn::kScaleBlock);
  return shape;
}

ParameterCount count_parameters(const Config& config) {
  ParameterCount count;
  for (const TensorSpec& spec : tensor_list(config)) {
    if (spec.ignored) continue;
    uint64_t values = 1;
    for (int64_t side : spec.shape) values *= static_cast<uint64_t>(side);
    (spec.role == TensorRole::kRouterBias ? count.router_bias_values : count.parameters) += values;
  }
  return count;
}

bool has_mtp_tensors(const Checkpoint& checkpoint, const Config& config) {
  if (config.num_mtp_layers == 0) return false;
  const std::string prefix = layer_tensor(config.num_layers, "");
  const auto it = checkpoint.tensors().lower_bound(prefix);
  return it != checkpoint.tensors().end() && it->first.starts_with(prefix);
}

void check_tensors(const Checkpoint& checkpoint, const Config& config) {
  const bool has_mtp = has_mtp_tensors(checkpoint, config);
  std::vector<std::string> missing, unexpected, misshapen;
  std::unordered_set<std::string> known;
  for (const TensorSpec& spec : tensor_list(config)) {
    known.insert(spec.name);
    const TensorView* view = checkpoint.find(spec.name);
    if (view == nullptr) {
      if (!spec.optional && (has_mtp || !spec.is_mtp)) missing.push_back(spec.name);
      continue;
    }
    if (view->type == DType::kF8E4M3) known.insert(scale_name(spec.name));
    const std::string problem = what_is_wrong(checkpoint, spec, *view);
    if (!problem.empty()) misshapen.push_back(problem);
  }
  for (const auto& [name, view] : checkpoint.tensors()) {
    if (!known.contains(name)) unexpected.push_back(name);
  }
  if (missing.empty() && unexpected.empty() && misshapen.empty()) return;
  std::string sentence = fmt::format("{}: the tensors do not fit config.json", checkpoint.directory());
  size_t listed = 0;
  append_problems(sentence, listed, "missing", missing);
  append_problems(sentence, listed, "misshapen", misshapen);
  append_problems(sentence, listed, "unexpected", unexpected);
  throw Error(sentence);
}

}  // namespace tidepool::model
