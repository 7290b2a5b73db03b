#include "model/dsa_model.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "device/copy.h"
#include "model/dsa_buffers.h"
#include "nn/norm_rope.h"
#include "nn/product.h"

namespace tidepool::model {
namespace {

constexpr int64_t kScoreBytes = 64 << 20;  // index scores of a tile of prompt rows: bounded, whatever the context is
constexpr float kIndexNormEps = 1e-6f;     // of the indexer's LayerNorm, independent of rms_norm_eps

std::vector<nn::ExpertMatrices> experts_of(const LayerWeights& layer) {
  std::vector<nn::ExpertMatrices> list;
  for (const auto& e : layer.experts) list.push_back({e.gate, e.up, e.down});
  const MlpWeights& always = layer.is_moe ? layer.shared : layer.dense;
  if (always.gate.n > 0) list.push_back({always.gate, always.up, always.down});
  return list;
}

}  // namespace

DsaModel::Rows::Rows(const ModelLimits& limits)
    : max_rows(limits.max_decode_rows + limits.max_chunk_rows),
      score_stride((static_cast<int64_t>(limits.max_model_len) + nn::kKeyTile - 1) / nn::kKeyTile * nn::kKeyTile) {
  const int64_t fitting = std::max<int64_t>(1, kScoreBytes / (score_stride * static_cast<int64_t>(sizeof(float))));
  score_rows = static_cast<int32_t>(std::min<int64_t>(max_rows, std::max<int64_t>(limits.max_decode_rows, fitting)));
}

uint64_t DsaModel::activation_bytes(const Config& config, const ModelLimits& limits) {
  const Rows rows(limits);
  return Buffers().make(config, limits, rows.max_rows, rows.score_rows, rows.score_stride, nullptr, nullptr).total();
}

DsaModel::DsaModel(const Config& config, const Weights& weights, const ModelLimits& limits, device::Executor& executor)
    : config_(config), weights_(weights), limits_(limits), executor_(executor), buffers_(std::make_unique<Buffers>()) {
  const Rows rows(limits);
  max_rows_ = rows.max_rows;
  score_rows_ = rows.score_rows;
  score_stride_ = rows.score_stride;
  const auto make = [&] {
    return buffers_->make(config, limits, max_rows_, score_rows_, score_stride_, arena_.get(), kept_arena_.get());
  };
  const Buffers::Bytes bytes = make();
  arena_ = std::make_unique<device::Arena>("device activations", bytes.scratch, limits.guard);
  if (bytes.kept > 0)
    kept_arena_ = std::make_unique<device::Arena>("activations kept between passes", bytes.kept, limits.guard);
  make();
  for (device::Arena* arena : {arena_.get(), kept_arena_.get()}) {
    if (arena != nullptr && limits.guard == device::Guard::kProtected) executor.protect(*arena);
  }

  inv_freq_ = config.rope_inv_freq();
  for (const auto& layer : weights.layers()) experts_.push_back(experts_of(layer));
  if (limits.num_draft_tokens > 0) experts_.push_back(experts_of(weights.mtp()->layer));
  for (PassInputs& inputs : inputs_) inputs.allocate(max_rows_, score_rows_, limits.max_logit_rows);
  const auto vocab = static_cast<size_t>(config.vocab_size);
  logits_host_.assign(static_cast<size_t>(limits.max_logit_rows) * vocab, 0.0f);
  if (limits.num_draft_tokens > 0) {
    draft_logits_host_.assign(static_cast<size_t>(limits.max_requests) * vocab, 0.0f);
    last_row_.assign(static_cast<size_t>(limits.max_requests), 0);
  }
}

DsaModel::~DsaModel() { executor_.drain(); }

void DsaModel::PassInputs::allocate(int32_t max_rows, int32_t score_rows, int32_t max_logit_rows) {
  const auto rows = static_cast<size_t>(max_rows);
  for (auto* list : {&token_ids, &positions}) list->assign(rows, 0);
  source_row.assign(rows, 0);
  logit_rows.assign(static_cast<size_t>(max_logit_rows), 0);
  score_tiles.assign(2 * static_cast<size_t>((max_rows + score_rows - 1) / score_rows), 0);
}

// Rows [0, num_decode) decode, rows [chunk_begin, chunk_begin + chunk_count) belong to a chunk; one of both may be
// empty, and only then may there be rows between them that the pass leaves alone.
void DsaModel::set_ranges(PassInputs& p, int32_t num_decode, int32_t chunk_begin, int32_t chunk_count) {
  p.all = {num_decode > 0 ? 0 : chunk_begin, chunk_count > 0 ? chunk_begin + chunk_count : num_decode};
  p.decode = {0, num_decode};
  p.chunk = {chunk_begin, chunk_begin + chunk_count};
  const int32_t num_rows = p.all[1] - p.all[0];
  p.num_score_tiles = (num_rows + score_rows_ - 1) / score_rows_;
  for (int32_t t = 0; t < p.num_score_tiles; ++t) {
    p.score_tiles[static_cast<size_t>(2 * t)] = p.all[0] + t * score_rows_;
    p.score_tiles[static_cast<size_t>(2 * t + 1)] = std::min(p.all[1], p.all[0] + (t + 1) * score_rows_);
  }
}

void DsaModel::begin_step(const cache::StepRows& rows, const StepTokens& tokens) {
  const auto num_decode = static_cast<int32_t>(rows.decode.size()) * (1 + limits_.num_draft_tokens);
  const int32_t num_rows = num_decode + rows.chunk.count;
  tidepool_check(num_rows <= max_rows_ && tokens.token_ids.size() == static_cast<size_t>(num_rows) &&
                     tokens.positions.size() == tokens.token_ids.size() &&
                     tokens.logit_rows.size() <= static_cast<size_t>(limits_.max_logit_rows) &&
                     tokens.mtp_token_ids.size() == static_cast<size_t>(rows.chunk.mtp_count),
                 "model: a step of {} rows ({} ids, {} logit rows) does not fit {} rows, {} logit rows", num_rows,
                 tokens.token_ids.size(), tokens.logit_rows.size(), max_rows_, limits_.max_logit_rows);
  use(cache::Pass::kMain);
  PassInputs& main = in();
  std::copy(tokens.token_ids.begin(), tokens.token_ids.end(), main.token_ids.begin());
  std::copy(tokens.positions.begin(), tokens.positions.end(), main.positions.begin());
  std::copy(tokens.logit_rows.begin(), tokens.logit_rows.end(), main.logit_rows.begin());
  main.logit_range = {0, static_cast<int32_t>(tokens.logit_rows.size())};
  set_ranges(main, num_decode, num_decode, rows.chunk.count);
  if (rows.chunk.mtp_count == 0) return;
  PassInputs& prompt = inputs_[static_cast<size_t>(cache::Pass::kMtpPrompt)];
  for (int32_t i = 0; i < rows.chunk.mtp_count; ++i) {
    const auto m = static_cast<size_t>(num_decode + i);
    prompt.token_ids[m] = tokens.mtp_token_ids[static_cast<size_t>(i)];
    prompt.positions[m] = main.positions[m];
  }
  set_ranges(prompt, 0, num_decode, rows.chunk.mtp_count);
}

const LayerWeights& DsaModel::layer_weights(int32_t layer) const {
  return layer < config_.num_layers ? weights_.layers()[static_cast<size_t>(layer)] : weights_.mtp()->layer;
}

void DsaModel::push_step(cache::KvCache& cache, Taps* taps) {
  auto& b = *buffers_;
  push(nn::embed(limits_.backend),
       nn::EmbedParams{all_rows(), in().token_ids.data(), weights_.embedding(), weights_.embedding_type(),
                       config_.hidden_size, config_.vocab_size, b.x});
  push_rope_table();
  for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
    push_layer(layer, cache);
    if (taps != nullptr) push_taps(layer, *taps);
  }
  push_head();
}

void DsaModel::push_rope_table() {
  auto& b = *buffers_;
  push(nn::rope_table(limits_.backend),
       nn::RopeTableParams{all_rows(), in().positions.data(), inv_freq_.data(), config_.rope_dim / 2,
                           static_cast<float>(config_.rope_attention_factor()), b.cos, b.sin});
}

void DsaModel::push_layer(int32_t layer, cache::KvCache& cache) {
  push_attention_inputs(layer, cache);
  if (layer_weights(layer).is_full) push_indexer(layer, cache);
  push_attention(layer, cache);
  push_mlp(layer);
}

void DsaModel::push_attention_inputs(int32_t layer, cache::KvCache& cache) {
  const auto backend = limits_.backend;
  const auto& c = config_;
  const auto& w = layer_weights(layer);
  auto& b = *buffers_;
  const auto eps = static_cast<float>(c.rms_norm_eps), latent_eps = static_cast<float>(c.latent_norm_eps);
  const int32_t head = c.nope_dim + c.rope_dim, row = c.row_values();

  push(nn::rms_norm(backend), nn::RmsNormParams{all_rows(), b.x, c.hidden_size, nullptr, 0, w.input_norm, c.hidden_size,
                                                eps, b.a, c.hidden_size});
  nn::ProductParams down{all_rows(), b.a, c.hidden_size, 2, {}};
  down.segments[0] = {w.q_a, b.qr, c.q_lora_rank, 0};
  down.segments[1] = {w.kv_a, b.z, row, 0};
  if (runs_indexer(layer)) {
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
  if (runs_indexer(layer)) {
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
  const auto& w = layer_weights(layer).indexer;
  auto& b = *buffers_;
  const nn::KeyTiles keys{cache.index_keys(layer), cache.options().key_type, c.index_dim};
  const nn::KeyTable table{in().positions.data(), cache.row_cache_slot(), cache.key_block_table(), cache.max_blocks(),
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

  for (int32_t t = 0; t < in().num_score_tiles; ++t) {
    const nn::Rows rows{&in().score_tiles[static_cast<size_t>(2 * t)], max_rows_};
    push(nn::index_score(backend), nn::IndexScoreParams{rows, c.index_heads, c.index_topk, b.qi, b.wi, keys, table,
                                                        b.scores, score_stride_, score_rows_});
    push(nn::topk(backend), nn::TopkParams{rows, c.index_topk, table, b.scores, score_stride_, b.topk, b.num_selected});
  }
  if (topk_source_ != nullptr && in().decode[1] > 0) {
    if (const int32_t* lists = topk_source_(topk_context_, layer)) {
      push(device::copy_rows(), device::CopyParams{in().decode.data(), reinterpret_cast<const std::byte*>(lists),
                                                   reinterpret_cast<std::byte*>(b.topk),
                                                   c.index_topk * static_cast<int64_t>(sizeof(int32_t))});
    }
  }
  const auto group = std::find_if(cache.options().layer_groups.begin(), cache.options().layer_groups.end(),
                                  [&](const auto& layers) { return layers[0] == layer; });
  cache.select(static_cast<int32_t>(group - cache.options().layer_groups.begin()), b.topk);
}

nn::SparseAttentionParams DsaModel::attention_params(int32_t layer, cache::KvCache& cache) const {
  auto& b = *buffers_;
  nn::SparseAttentionParams p;
  p.num_heads = config_.num_heads;
  p.topk = config_.index_topk;
  p.scale = static_cast<float>(config_.attention_scale());
  p.format = cache.options().format;
  p.qa = b.qa;
  p.num_selected = b.num_selected;
  p.places = cache.decode_places(layer);
  p.u = b.u;
  p.partial = b.partial;
  p.split_rows = limits_.max_decode_rows;
  return p;
}

void DsaModel::push_attention(int32_t layer, cache::KvCache& cache) {
  const auto backend = limits_.backend;
  nn::SparseAttentionParams p = attention_params(layer, cache);
  cache.serve(layer);
  if (in().decode[1] > 0) {
    p.rows = {in().decode.data(), max_rows_};
    p.locations = cache.decode_locations(layer);
    if (limits_.num_draft_tokens > 0 && pass_ != cache::Pass::kMtpDraft) {
      p.q_len = 1 + limits_.num_draft_tokens;
      p.positions = buffers_->topk;
    }
    push(nn::attention_split(backend), p);
    push(nn::attention_merge(backend), p);
    p.q_len = 1;
    p.positions = nullptr;
  }
  if (installs_after_serve()) cache.install(layer);
  if (in().chunk[1] > in().chunk[0]) {
    p.places = cache.chunk_places(layer);
    if (cache.options().offload()) {
      p.locations = cache.chunk_locations();
      p.location_begin = in().chunk[0];
      for (const cache::Tile& tile : cache.tiles()) {
        cache.stage(layer, tile);
        p.rows = {tile.rows, max_rows_};
        push(nn::attention_whole(backend), p);
      }
    } else {
      p.rows = {in().chunk.data(), max_rows_};
      p.locations = cache.decode_locations(layer);
      push(nn::attention_whole(backend), p);
    }
  }
  push_attention_output(layer);
}

void DsaModel::push_attention_output(int32_t layer) {
  const auto backend = limits_.backend;
  const auto& c = config_;
  const auto& w = layer_weights(layer);
  auto& b = *buffers_;
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
  const auto& w = layer_weights(layer);
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
  if (in().logit_range[1] == 0) return;
  const nn::Rows rows{in().logit_range.data(), limits_.max_logit_rows};
  push(nn::rms_norm(backend),
       nn::RmsNormParams{rows, b.x, c.hidden_size, in().logit_rows.data(), max_rows_, weights_.final_norm(),
                         c.hidden_size, static_cast<float>(c.rms_norm_eps), b.g, c.hidden_size});
  nn::ProductParams head{rows, b.g, c.hidden_size, 1, {}};
  head.segments[0] = {weights_.lm_head(), b.logits, c.vocab_size, 0};
  push(nn::product(backend, device::Part::kHead), head);
  push(device::copy_rows(), device::CopyParams{in().logit_range.data(), reinterpret_cast<const std::byte*>(b.logits),
                                               reinterpret_cast<std::byte*>(logits_host_.data()),
                                               c.vocab_size * static_cast<int64_t>(sizeof(float))});
}

void DsaModel::push_taps(int32_t layer, Taps& taps) {
  auto& b = *buffers_;
  const auto l = static_cast<size_t>(layer);
  if (!taps.hidden.empty()) {
    push(device::copy_rows(), device::CopyParams{in().all.data(), reinterpret_cast<const std::byte*>(b.x),
                                                 reinterpret_cast<std::byte*>(taps.hidden[l].data()),
                                                 config_.hidden_size * static_cast<int64_t>(sizeof(float))});
  }
  if (!taps.topk.empty() && weights_.layers()[l].is_full) {
    push(device::copy_rows(), device::CopyParams{in().all.data(), reinterpret_cast<const std::byte*>(b.topk),
                                                 reinterpret_cast<std::byte*>(taps.topk[l].data()),
                                                 config_.index_topk * static_cast<int64_t>(sizeof(int32_t))});
  }
}

void DsaModel::set_topk_source(TopkSource source, void* context) {
  topk_source_ = source;
  topk_context_ = context;
}

}  // namespace tidepool::model
