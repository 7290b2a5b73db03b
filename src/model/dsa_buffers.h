// The activations of a DSA model: one layout, counted first and allocated then.
#pragma once

#include <algorithm>

#include "model/dsa_model.h"
#include "nn/sparse_attention.h"

namespace tidepool::model {

// Activations of a step, fp32. Shapes: docs/architecture.md.
struct DsaModel::Buffers {
  float *x, *a, *qr, *q, *qa, *z, *cos, *sin, *qi, *ki, *wi, *scores, *u, *o, *partial;
  float *router, *expert_weight, *inner, *shared_inner, *out, *shared_out, *g, *logits, *eh = nullptr, *hn = nullptr;
  int32_t *topk, *num_selected, *expert, *expert_offset, *expert_entry, *draft_selected = nullptr;
  RowLocation* draft_locations = nullptr;

  struct Bytes {
    uint64_t scratch = 0, kept = 0;
    uint64_t total() const { return scratch + kept; }
  };
  // Counts with the arenas null, allocates otherwise. `kept` is for what one pass leaves for the next: nothing without
  // drafts.
  Bytes make(const Config& c, const ModelLimits& limits, int64_t rows, int64_t score_rows, int64_t score_stride,
             device::Arena* scratch, device::Arena* kept) {
    Bytes total;
    const auto take = [&]<typename T>(T*& p, int64_t count, const char* what, device::Arena* arena, uint64_t& sum) {
      const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(T);
      sum += (bytes + 63) / 64 * 64;
      p = arena == nullptr || bytes == 0 ? nullptr : reinterpret_cast<T*>(arena->allocate(bytes, what));
    };
    const auto array = [&](auto*& p, int64_t count, const char* what) { take(p, count, what, scratch, total.scratch); };
    const auto kept_array = [&](auto*& p, int64_t count, const char* what) {
      limits.num_draft_tokens > 0 ? take(p, count, what, kept, total.kept) : array(p, count, what);
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
    kept_array(topk, rows * c.index_topk, "topk_indices");
    kept_array(num_selected, rows, "list lengths");
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
    kept_array(g, limits.max_logit_rows * static_cast<int64_t>(c.hidden_size), "final rows");
    array(logits, limits.max_logit_rows * static_cast<int64_t>(c.vocab_size), "logits");
    if (limits.num_draft_tokens > 0) {
      const int64_t lists = limits.max_requests * c.index_topk;
      array(eh, rows * 2 * c.hidden_size, "embeddings beside hidden states");
      kept_array(hn, limits.max_requests * static_cast<int64_t>(c.hidden_size), "normed rows of the MTP layer");
      kept_array(draft_locations, lists, "locations of draft steps");
      kept_array(draft_selected, limits.max_requests, "list lengths of draft steps");
    }
    return total;
  }
};

}  // namespace tidepool::model
