#include "model/dsa_model.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "device/copy.h"
#include "nn/norm_rope.h"
#include "nn/product.h"
#include "nn/sparse_attention.h"

namespace tidepool::model {
namespace {

constexpr int64_t kScoreBytes = 64 << 20;  // index scores of a tile of prompt rows: bounded, whatever the context is
constexpr float kIndexNormEps = 1e-6f;     // of the indexer's LayerNorm, independent of rms_norm_eps

}  // namespace

// Activations of a step, fp32. Shapes: docs/architecture.md.
struct DsaModel::Buffers {
  float *x, *a, *qr, *q, *qa, *z, *cos, *sin, *qi, *ki, *wi, *scores, *u, *o, *partial;
  float *router, *expert_weight, *inner, *shared_inner, *out, *shared_out, *g, *logits;
  int32_t *topk, *num_selected, *expert, *expert_offset, *expert_entry;

  // Counts with arena null, allocates otherwise; returns bytes.
  uint64_t make(const Config& c, const ModelLimits& limits, int64_t rows, int64_t score_rows, int64_t score_stride,
                device::Arena* arena) {
    uint64_t total = 0;
    const auto array = [&]<typename T>(T*& p, int64_t count, const char* what) {
      const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(T);
      total += (bytes + 63) / 64 * 64;
      p = arena == nullptr || bytes == 0 ? nullptr : reinterpret_cast<T*>(arena->allocate(bytes, what));
    };
    const int64_t heads = c.num_heads, row_values = c.row_values();
    const int64_t width =
        std::max<int64_t>(c.intermediate_size, static_cast<int64_t>(c.moe_intermediate_size) * c.num_shared_experts);
    const int64_t blocks = (c.index_topk + nn::kAttentionBlock - 1) / nn::kAttentionBlock;
    array(x, rows * c.hidden_size, "residual stream");
    array(a, rows * c.hidden_size, "normed rows");
    array(qr, rows * c.q_lora_rank, "query latents");
    array(q, rows * heads * (c.nope_dim + c.rope_dim), "queries");
    array(qa, rows * heads * row_values, "absorbed queries");
    array(z, rows * row_values, "raw cache rows");
    array(cos, rows * c.rope_dim / 2, "cos table");
    array(sin, rows * c.rope_dim / 2, "sin table");
    array(qi, rows * c.index_heads * c.index_dim, "index queries");
    array(ki, rows * c.index_dim, "raw index keys");
    array(wi, rows * c.index_heads, "index head weights");
    array(scores, score_rows * score_stride, "index scores");
    array(topk, rows * c.index_topk, "topk_indices");
    array(num_selected, rows, "list lengths");
    array(u, rows * heads * c.kv_lora_rank, "attention latents");
    array(o, rows * heads * c.v_dim, "attention values");
    array(partial, limits.max_decode_rows * blocks * heads * (c.kv_lora_rank + 2), "attention blocks");
    array(router, rows * c.num_experts, "router logits");
    array(expert, rows * c.experts_per_token, "chosen experts");
    array(expert_weight, rows * c.experts_per_token, "expert weights");
    array(expert_offset, c.num_experts + 1, "expert list offsets");
    array(expert_entry, rows * c.experts_per_token, "expert lists");
    array(inner, rows * c.experts_per_token * c.moe_intermediate_size, "expert inner rows");
    array(shared_inner, rows * width, "mlp inner rows");
    array(out, rows * c.experts_per_token * c.hidden_size, "expert rows");
    array(shared_out, rows * c.hidden_size, "mlp rows");
    array(g, limits.max_logit_rows * static_cast<int64_t>(c.hidden_size), "final rows");
    array(logits, limits.max_logit_rows * static_cast<int64_t>(c.vocab_size), "logits");
    return total;
  }
};

DsaModel::Rows::Rows(const ModelLimits& limits)
    : max_rows(limits.max_decode_rows + limits.max_chunk_rows),
      score_stride((static_cast<int64_t>(limits.max_model_len) + nn::kKeyTile - 1) / nn::kKeyTile * nn::kKeyTile) {
  const int64_t fitting = std::max<int64_t>(1, kScoreBytes / (score_stride * static_cast<int64_t>(sizeof(float))));
  score_rows = static_cast<int32_t>(std::min<int64_t>(max_rows, std::max<int64_t>(limits.max_decode_rows, fitting)));
}

uint64_t DsaModel::activation_bytes(const Config& config, const ModelLimits& limits) {
  const Rows rows(limits);
  return Buffers().make(config, limits, rows.max_rows, rows.score_rows, rows.score_stride, nullptr);
}

DsaModel::DsaModel(const Config& config, const Weights& weights, const ModelLimits& limits, device::Executor& executor)
    : config_(config), weights_(weights), limits_(limits), executor_(executor), buffers_(std::make_unique<Buffers>()) {
  const Rows rows(limits);
  max_rows_ = rows.max_rows;
  score_rows_ = rows.score_rows;
  score_stride_ = rows.score_stride;
  const uint64_t bytes = buffers_->make(config, limits, max_rows_, score_rows_, score_stride_, nullptr);
  arena_ = std::make_unique<device::Arena>("device activations", bytes, limits.guard);
  buffers_->make(config, limits, max_rows_, score_rows_, score_stride_, arena_.get());
  if (limits.guard == device::Guard::kProtected) executor.protect(*arena_);

  inv_freq_ = config.rope_inv_freq();
  for (const auto& layer : weights.layers()) {
    std::vector<nn::ExpertMatrices> list;
    for (const auto& e : layer.experts) list.push_back({e.gate, e.up, e.down});
    const MlpWeights& always = layer.is_moe ? layer.shared : layer.dense;
    if (always.gate.n > 0) list.push_back({always.gate, always.up, always.down});
    experts_.push_back(std::move(list));
  }
  for (auto* list : {&token_ids_, &positions_}) list->assign(static_cast<size_t>(max_rows_), 0);
  logit_rows_.assign(static_cast<size_t>(limits.max_logit_rows), 0);
  for (auto* range : {&all_, &decode_, &chunk_, &logit_range_}) range->assign(2, 0);
  score_tiles_.assign(2 * static_cast<size_t>((max_rows_ + score_rows_ - 1) / score_rows_), 0);
  logits_host_.assign(static_cast<size_t>(limits.max_logit_rows) * static_cast<size_t>(config.vocab_size), 0.0f);
}

DsaModel::~DsaModel() { executor_.drain(); }

void DsaModel::begin_step(const cache::StepRows& rows, const StepTokens& tokens) {
  const auto num_decode = static_cast<int32_t>(rows.decode.size());
  const int32_t num_rows = num_decode + rows.chunk.count;
  tidepool_check(num_rows <= max_rows_ && tokens.token_ids.size() == static_cast<size_t>(num_rows) &&
                     tokens.positions.size() == tokens.token_ids.size() &&
                     tokens.logit_rows.size() <= logit_rows_.size(),
                 "model: a step of {} rows ({} ids, {} logit rows) does not fit {} rows, {} logit rows", num_rows,
                 tokens.token_ids.size(), tokens.logit_rows.size(), max_rows_, logit_rows_.size());
  std::copy(tokens.token_ids.begin(), tokens.token_ids.end(), token_ids_.begin());
  std::copy(tokens.positions.begin(), tokens.positions.end(), positions_.begin());
  std::copy(tokens.logit_rows.begin(), tokens.logit_rows.end(), logit_rows_.begin());
  all_ = {0, num_rows};
  decode_ = {0, num_decode};
  chunk_ = {num_decode, num_rows};
  logit_range_ = {0, static_cast<int32_t>(tokens.logit_rows.size())};
  num_score_tiles_ = (num_rows + score_rows_ - 1) / score_rows_;
  for (int32_t t = 0; t < num_score_tiles_; ++t) {
    score_tiles_[static_cast<size_t>(2 * t)] = t * score_rows_;
    score_tiles_[static_cast<size_t>(2 * t + 1)] = std::min(num_rows, (t + 1) * score_rows_);
  }
}

void DsaModel::push_step(cache::KvCache& cache, Taps* taps) {
  const auto backend = limits_.backend;
  auto& b = *buffers_;
  push(nn::embed(backend), nn::EmbedParams{all_rows(), token_ids_.data(), weights_.embedding(),
                                           weights_.embedding_type(), config_.hidden_size, config_.vocab_size, b.x});
  push(nn::rope_table(backend),
       nn::RopeTableParams{all_rows(), positions_.data(), inv_freq_.data(), config_.rope_dim / 2,
                           static_cast<float>(config_.rope_attention_factor()), b.cos, b.sin});
  for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
    push_attention_inputs(layer, cache);
    if (weights_.layers()[static_cast<size_t>(layer)].is_full) push_indexer(layer, cache);
    push_attention(layer, cache);
    push_mlp(layer);
    if (taps != nullptr) push_taps(layer, *taps);
  }
  push_head();
}

void DsaModel::push_attention_inputs(int32_t layer, cache::KvCache& cache) {
  const auto backend = limits_.backend;
  const auto& c = config_;
  const auto& w = weights_.layers()[static_cast<size_t>(layer)];
  auto& b = *buffers_;
  const auto eps = static_cast<float>(c.rms_norm_eps), latent_eps = static_cast<float>(c.latent_norm_eps);
  const int32_t head = c.nope_dim + c.rope_dim, row = c.row_values();

  push(nn::rms_norm(backend), nn::RmsNormParams{all_rows(), b.x, c.hidden_size, nullptr, 0, w.input_norm, c.hidden_size,
                                                eps, b.a, c.hidden_size});
  nn::ProductParams down{all_rows(), b.a, c.hidden_size, 2, {}};
  down.segments[0] = {w.q_a, b.qr, c.q_lora_rank, 0};
  down.segments[1] = {w.kv_a, b.z, row, 0};
  if (w.is_full) {
    down.segments[2] = {w.indexer.wk, b.ki, c.index_dim, 0};
    down.segments[3] = {w.indexer.weights_proj, b.wi, c.index_heads, 0};
    down.num_segments = 4;
  }
  push(nn::product(backend, device::Part::kProjection), down);
  push(nn::rms_norm(backend), nn::RmsNormParams{all_rows(), b.qr, c.q_lora_rank, nullptr, 0, w.q_a_norm, c.q_lora_rank,
                                                latent_eps, b.qr, c.q_lora_rank});

  const RowFormat format = cache.options().format;
  cache.before_write(layer);
  push(nn::write_row(backend), nn::WriteRowParams{all_rows(), b.z, w.kv_a_norm, latent_eps, b.cos, b.sin, format,
                                                  cache.row_dest(), cache.write_places(layer)});
  cache.after_write(layer);

  nn::ProductParams up{all_rows(), b.qr, c.q_lora_rank, 1, {}};
  up.segments[0] = {w.q_b, b.q, c.num_heads * head, 0};
  if (w.is_full) {
    up.segments[1] = {w.indexer.wq_b, b.qi, c.index_heads * c.index_dim, 0};
    up.num_segments = 2;
  }
  push(nn::product(backend, device::Part::kProjection), up);
  push(nn::head_product(backend), nn::HeadProductParams{all_rows(), c.num_heads, w.w_uk.data(), b.q, c.num_heads * head,
                                                        head, b.qa, c.num_heads * row, row});
  push(nn::query_rope(backend),
       nn::QueryRopeParams{all_rows(), c.num_heads, c.nope_dim, c.rope_dim, c.kv_lora_rank, b.q, b.cos, b.sin, b.qa});
}

void DsaModel::push_indexer(int32_t layer, cache::KvCache& cache) {
  const auto backend = limits_.backend;
  const auto& c = config_;
  const auto& w = weights_.layers()[static_cast<size_t>(layer)].indexer;
  auto& b = *buffers_;
  const nn::KeyTiles keys{cache.index_keys(layer), cache.options().key_type, c.index_dim};
  const nn::KeyTable table{positions_.data(), cache.row_cache_slot(), cache.key_block_table(), cache.max_blocks(),
                           cache.options().block_size};

  nn::IndexPrepareParams prepare;
  prepare.rows = all_rows();
  prepare.num_heads = c.index_heads;
  prepare.rope_dim = c.rope_dim;
  prepare.interleave = c.indexer_rope_interleave ? 1 : 0;
  prepare.q = b.qi;
  prepare.k = b.ki;
  prepare.w = b.wi;
  prepare.w_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.index_heads)) /
                                       std::sqrt(static_cast<double>(c.index_dim)));
  prepare.norm_weight = w.k_norm_weight;
  prepare.norm_bias = w.k_norm_bias;
  prepare.norm_eps = kIndexNormEps;
  prepare.cos_table = b.cos;
  prepare.sin_table = b.sin;
  prepare.keys = keys;
  prepare.loc = cache.key_loc();
  push(nn::index_prepare(backend), prepare);

  for (int32_t t = 0; t < num_score_tiles_; ++t) {
    const nn::Rows rows{&score_tiles_[static_cast<size_t>(2 * t)], max_rows_};
    push(nn::index_score(backend), nn::IndexScoreParams{rows, c.index_heads, c.index_topk, b.qi, b.wi, keys, table,
                                                        b.scores, score_stride_, score_rows_});
    push(nn::topk(backend), nn::TopkParams{rows, c.index_topk, table, b.scores, score_stride_, b.topk, b.num_selected});
  }
  if (topk_source_ != nullptr && decode_[1] > 0) {
    if (const int32_t* lists = topk_source_(topk_context_, layer)) {
      push(device::copy_rows(), device::CopyParams{decode_.data(), reinterpret_cast<const std::byte*>(lists),
                                                   reinterpret_cast<std::byte*>(b.topk),
                                                   c.index_topk * static_cast<int64_t>(sizeof(int32_t))});
    }
  }
  const auto group = std::find_if(cache.options().layer_groups.begin(), cache.options().layer_groups.end(),
                                  [&](const auto& layers) { return layers[0] == layer; });
  cache.select(static_cast<int32_t>(group - cache.options().layer_groups.begin()), b.topk);
}

void DsaModel::push_attention(int32_t layer, cache::KvCache& cache) {
  const auto backend = limits_.backend;
  const auto& c = config_;
  const auto& w = weights_.layers()[static_cast<size_t>(layer)];
  auto& b = *buffers_;
  nn::SparseAttentionParams p;
  p.num_heads = c.num_heads;
  p.topk = c.index_topk;
  p.scale = static_cast<float>(c.attention_scale());
  p.format = cache.options().format;
  p.qa = b.qa;
  p.num_selected = b.num_selected;
  p.places = cache.decode_places(layer);
  p.u = b.u;
  p.partial = b.partial;
  p.split_rows = limits_.max_decode_rows;

  cache.serve(layer);
  if (decode_[1] > 0) {
    p.rows = {decode_.data(), max_rows_};
    p.locations = cache.decode_locations(layer);
    push(nn::attention_split(backend), p);
    push(nn::attention_merge(backend), p);
  }
  cache.install(layer);
  if (chunk_[1] > chunk_[0]) {
    p.places = cache.chunk_places(layer);
    if (cache.options().offload) {
      p.locations = cache.chunk_locations();
      p.location_begin = chunk_[0];
      for (const cache::Tile& tile : cache.tiles()) {
        cache.stage(layer, tile);
        p.rows = {tile.rows, max_rows_};
        push(nn::attention_whole(backend), p);
      }
    } else {
      p.rows = {chunk_.data(), max_rows_};
      p.locations = cache.decode_locations(layer);
      push(nn::attention_whole(backend), p);
    }
  }
  push(nn::head_product(backend),
       nn::HeadProductParams{all_rows(), c.num_heads, w.w_uv.data(), b.u, c.num_heads * c.kv_lora_rank, c.kv_lora_rank,
                             b.o, c.num_heads * c.v_dim, c.v_dim});
  nn::ProductParams out{all_rows(), b.o, c.num_heads * c.v_dim, 1, {}};
  out.segments[0] = {w.o, b.x, c.hidden_size, 1};
  push(nn::product(backend, device::Part::kProjection), out);
}

void DsaModel::push_mlp(int32_t layer) {
  const auto backend = limits_.backend;
  const auto& c = config_;
  const auto& w = weights_.layers()[static_cast<size_t>(layer)];
  auto& b = *buffers_;
  push(nn::rms_norm(backend), nn::RmsNormParams{all_rows(), b.x, c.hidden_size, nullptr, 0, w.post_attention_norm,
                                                c.hidden_size, static_cast<float>(c.rms_norm_eps), b.a, c.hidden_size});
  const int32_t chosen = w.is_moe ? c.experts_per_token : 0;
  if (w.is_moe) {
    nn::ProductParams router{all_rows(), b.a, c.hidden_size, 1, {}};
    router.segments[0] = {w.router, b.router, c.num_experts, 0};
    push(nn::product(backend, device::Part::kExperts), router);
    push(nn::route(backend),
         nn::RouteParams{all_rows(), c.num_experts, c.experts_per_token, c.num_expert_groups, c.expert_groups_kept,
                         c.norm_topk_prob ? 1 : 0, static_cast<float>(c.routed_scaling_factor), b.router, w.router_bias,
                         b.expert, b.expert_weight});
    push(nn::expert_list(backend), nn::ExpertListParams{all_rows(), c.num_experts, c.experts_per_token, b.expert,
                                                        b.expert_offset, b.expert_entry});
  }
  nn::ExpertParams e;
  e.rows = all_rows();
  e.num_experts = w.is_moe ? c.num_experts : 0;
  e.experts_per_token = chosen;
  const auto& always = w.is_moe ? w.shared : w.dense;
  e.has_shared = always.gate.n > 0 ? 1 : 0;
  e.hidden = c.hidden_size;
  e.width = c.moe_intermediate_size;
  e.shared_width = always.gate.n;
  e.experts = experts_[static_cast<size_t>(layer)].data();
  e.offset = b.expert_offset;
  e.entry = b.expert_entry;
  e.x = b.a;
  e.inner = b.inner;
  e.shared_inner = b.shared_inner;
  e.out = b.out;
  e.shared_out = b.shared_out;
  push(nn::expert_up(backend), e);
  push(nn::expert_down(backend), e);
  push(nn::combine(backend),
       nn::CombineParams{all_rows(), c.hidden_size, chosen, e.has_shared, b.expert_weight, b.out, b.shared_out, b.x});
}

void DsaModel::push_head() {
  const auto backend = limits_.backend;
  const auto& c = config_;
  auto& b = *buffers_;
  if (logit_range_[1] == 0) return;
  const nn::Rows rows{logit_range_.data(), limits_.max_logit_rows};
  push(nn::rms_norm(backend),
       nn::RmsNormParams{rows, b.x, c.hidden_size, logit_rows_.data(), max_rows_, weights_.final_norm(), c.hidden_size,
                         static_cast<float>(c.rms_norm_eps), b.g, c.hidden_size});
  nn::ProductParams head{rows, b.g, c.hidden_size, 1, {}};
  head.segments[0] = {weights_.lm_head(), b.logits, c.vocab_size, 0};
  push(nn::product(backend, device::Part::kHead), head);
  push(device::copy_rows(), device::CopyParams{logit_range_.data(), reinterpret_cast<const std::byte*>(b.logits),
                                               reinterpret_cast<std::byte*>(logits_host_.data()),
                                               c.vocab_size * static_cast<int64_t>(sizeof(float))});
}

void DsaModel::push_taps(int32_t layer, Taps& taps) {
  auto& b = *buffers_;
  const auto l = static_cast<size_t>(layer);
  if (!taps.hidden.empty()) {
    push(device::copy_rows(), device::CopyParams{all_.data(), reinterpret_cast<const std::byte*>(b.x),
                                                 reinterpret_cast<std::byte*>(taps.hidden[l].data()),
                                                 config_.hidden_size * static_cast<int64_t>(sizeof(float))});
  }
  if (!taps.topk.empty() && weights_.layers()[l].is_full) {
    push(device::copy_rows(), device::CopyParams{all_.data(), reinterpret_cast<const std::byte*>(b.topk),
                                                 reinterpret_cast<std::byte*>(taps.topk[l].data()),
                                                 config_.index_topk * static_cast<int64_t>(sizeof(int32_t))});
  }
}

void DsaModel::set_topk_source(TopkSource source, void* context) {
  topk_source_ = source;
  topk_context_ = context;
}

}  // namespace tidepool::model
