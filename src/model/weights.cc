#include "model/weights.h"

#include "base/check.h"
#include "model/safetensors.h"
#include "model/tensor_list.h"
#include "model/weight_loader.h"

namespace tidepool::model {

// Nothing in it moves after the loader has been given addresses.
struct Weights::Storage {
  AnonymousRegion region;
  std::vector<LayerWeights> layers;
  std::unique_ptr<MtpWeights> mtp;
  const std::byte* embedding = nullptr;
  DType embedding_type = DType::kBF16;
  const float* final_norm = nullptr;
  PackedMatrix lm_head;
  uint64_t resident_bytes = 0;
};

namespace {

// Asks the loader for every array of one layer.
class LayerRequest {
 public:
  LayerRequest(WeightLoader& loader, const Config& config, const LoadOptions& options, int32_t layer, LayerWeights& out)
      : loader_(loader), config_(config), options_(options), layer_(layer), out_(out) {}

  void request() {
    const Config& c = config_;
    const bool is_mtp = layer_ >= c.num_layers;
    floats("input_layernorm.weight", &out_.input_norm);
    floats("post_attention_layernorm.weight", &out_.post_attention_norm);
    matrix("self_attn.q_a_proj.weight", &out_.q_a);
    floats("self_attn.q_a_layernorm.weight", &out_.q_a_norm);
    matrix("self_attn.q_b_proj.weight", &out_.q_b);
    matrix("self_attn.kv_a_proj_with_mqa.weight", &out_.kv_a);
    floats("self_attn.kv_a_layernorm.weight", &out_.kv_a_norm);
    loader_.split_kv_b(name("self_attn.kv_b_proj.weight"), c.num_heads, c.nope_dim, c.v_dim, &out_.w_uk, &out_.w_uv);
    matrix("self_attn.o_proj.weight", &out_.o);
    out_.is_full = is_mtp || c.is_full[static_cast<size_t>(layer_)];
    if (out_.is_full) indexer();
    out_.is_moe = is_mtp || c.is_moe(layer_);
    if (out_.is_moe) {
      experts();
    } else {
      mlp("mlp.", &out_.dense);
    }
  }

 private:
  std::string name(const std::string& suffix) const { return layer_tensor(layer_, suffix); }
  void floats(const std::string& suffix, const float** out) { loader_.floats(name(suffix), out); }
  void matrix(const std::string& suffix, PackedMatrix* out) { loader_.matrix(name(suffix), out); }

  void indexer() {
    IndexerWeights& w = out_.indexer;
    matrix("self_attn.indexer.wq_b.weight", &w.wq_b);
    matrix("self_attn.indexer.wk.weight", &w.wk);
    matrix("self_attn.indexer.weights_proj.weight", &w.weights_proj);
    floats("self_attn.indexer.k_norm.weight", &w.k_norm_weight);
    floats("self_attn.indexer.k_norm.bias", &w.k_norm_bias);
  }

  void mlp(const std::string& prefix, MlpWeights* out) {
    matrix(prefix + "gate_proj.weight", &out->gate);
    matrix(prefix + "up_proj.weight", &out->up);
    matrix(prefix + "down_proj.weight", &out->down);
  }

  void experts() {
    const int64_t num_experts = config_.num_experts;
    const int64_t first = num_experts * options_.rank / options_.num_ranks;
    const int64_t last = num_experts * (options_.rank + 1) / options_.num_ranks;
    matrix("mlp.gate.weight", &out_.router);
    floats("mlp.gate.e_score_correction_bias", &out_.router_bias);
    out_.experts.resize(static_cast<size_t>(num_experts));
    for (int64_t e = first; e < last; ++e)
      mlp(fmt::format("mlp.experts.{}.", e), &out_.experts[static_cast<size_t>(e)]);
    if (config_.num_shared_experts > 0) mlp("mlp.shared_experts.", &out_.shared);
  }

  WeightLoader& loader_;
  const Config& config_;
  const LoadOptions& options_;
  int32_t layer_;
  LayerWeights& out_;
};

void request_mtp(WeightLoader& loader, const Config& config, const LoadOptions& options, MtpWeights& out) {
  const int32_t layer = config.num_layers;
  LayerRequest(loader, config, options, layer, out.layer).request();
  loader.floats(layer_tensor(layer, "enorm.weight"), &out.enorm);
  loader.floats(layer_tensor(layer, "hnorm.weight"), &out.hnorm);
  loader.matrix(layer_tensor(layer, "eh_proj.weight"), &out.eh_proj);
  loader.floats(layer_tensor(layer, "shared_head.norm.weight"), &out.shared_head_norm);
}

}  // namespace

Weights Weights::load(const std::string& directory, const Config& config, const LoadOptions& options) {
  tidepool_check(options.num_threads >= 1, "num_threads is {}, it must be at least 1", options.num_threads);
  tidepool_check(options.num_ranks >= 1 && options.rank >= 0 && options.rank < options.num_ranks,
                 "rank is {} of {}, it must lie in 0..{}", options.rank, options.num_ranks, options.num_ranks - 1);
  const Checkpoint checkpoint(directory);
  check_tensors(checkpoint, config);
  auto storage = std::make_unique<Storage>();
  WeightLoader loader(checkpoint, options.allow_nan);
  const std::string embedding = "model.embed_tokens.weight";
  storage->embedding_type = checkpoint.find(embedding)->type;
  loader.raw(embedding, &storage->embedding);
  loader.matrix(config.tie_word_embeddings ? embedding : "lm_head.weight", &storage->lm_head);
  loader.floats("model.norm.weight", &storage->final_norm);
  storage->layers.resize(static_cast<size_t>(config.num_layers));
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    LayerRequest(loader, config, options, layer, storage->layers[static_cast<size_t>(layer)]).request();
  }
  if (options.load_mtp && has_mtp_tensors(checkpoint, config)) {
    storage->mtp = std::make_unique<MtpWeights>();
    request_mtp(loader, config, options, *storage->mtp);
  }
  storage->resident_bytes = loader.resident_bytes();
  if (options.admit) options.admit(storage->resident_bytes);
  storage->region = loader.load(options.num_threads, options.progress);
  return Weights(std::move(storage));
}

Weights::Weights(std::unique_ptr<Storage> storage) : storage_(std::move(storage)) {}
Weights::Weights(Weights&&) noexcept = default;
Weights& Weights::operator=(Weights&&) noexcept = default;
Weights::~Weights() = default;

const std::vector<LayerWeights>& Weights::layers() const { return storage_->layers; }
const MtpWeights* Weights::mtp() const { return storage_->mtp.get(); }
const std::byte* Weights::embedding() const { return storage_->embedding; }
DType Weights::embedding_type() const { return storage_->embedding_type; }
const float* Weights::final_norm() const { return storage_->final_norm; }
const PackedMatrix& Weights::lm_head() const { return storage_->lm_head; }
uint64_t Weights::resident_bytes() const { return storage_->resident_bytes; }

}  // namespace tidepool::model
