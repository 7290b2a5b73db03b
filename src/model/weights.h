// The weights of one DSA model (model/config.h), packed for the product kernels, resident in anonymous memory.
//
// Shapes use the symbols of docs/architecture.md: H hidden, nh heads, dn/dr/dv nope/rope/value head widths,
// Rq/Rk q/kv latent ranks, Hi/Di index heads/width, E experts, I expert width, F dense width, V vocabulary.
// Immutable after load; any number of threads may read.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/config.h"
#include "nn/packed_matrix.h"

namespace tidepool::model {

using nn::PackedMatrix;

struct IndexerWeights {                  // full layers only
  PackedMatrix wq_b;                     // [Hi*Di, Rq]
  PackedMatrix wk;                       // [Di, H]
  PackedMatrix weights_proj;             // [Hi, H]
  const float* k_norm_weight = nullptr;  // [Di]
  const float* k_norm_bias = nullptr;    // [Di]
};

struct MlpWeights {
  PackedMatrix gate, up;  // [F, H] (dense), [I, H] (one expert), [I * n_shared, H] (shared expert)
  PackedMatrix down;      // [H, F] ...
};

struct LayerWeights {
  const float* input_norm = nullptr;           // [H]
  const float* post_attention_norm = nullptr;  // [H]
  PackedMatrix q_a;                            // [Rq, H]
  const float* q_a_norm = nullptr;             // [Rq]
  PackedMatrix q_b;                            // [nh*(dn+dr), Rq]
  PackedMatrix kv_a;                           // [Rk+dr, H]
  const float* kv_a_norm = nullptr;            // [Rk]
  std::vector<PackedMatrix> w_uk;              // per head [Rk, dn]: the transpose of kv_b's first dn rows of the head
  std::vector<PackedMatrix> w_uv;              // per head [dv, Rk]
  PackedMatrix o;                              // [H, nh*dv]
  bool is_full = false;                        // owns an indexer
  IndexerWeights indexer;
  bool is_moe = false;
  MlpWeights dense;                    // when !is_moe
  PackedMatrix router;                 // [E, H], when is_moe
  const float* router_bias = nullptr;  // [E] fp32
  std::vector<MlpWeights> experts;     // [E]
  MlpWeights shared;                   // width I * n_shared; n == 0 when the model has none
};

struct MtpWeights {  // layer num_layers of the checkpoint; kept for multi-token prediction
  LayerWeights layer;
  const float* enorm = nullptr;             // [H]
  const float* hnorm = nullptr;             // [H]
  PackedMatrix eh_proj;                     // [H, 2H]
  const float* shared_head_norm = nullptr;  // [H]
};

struct LoadOptions {
  int num_threads = 1;
  bool allow_nan = false;  // otherwise a NaN or infinity in any weight is an error that names the tensor
  bool load_mtp = false;   // MTP tensors are always checked; packed only on request
  // Which part of the experts this rank holds: experts [E*rank/num_ranks, E*(rank+1)/num_ranks). Others stay empty.
  int rank = 0;
  int num_ranks = 1;
  // Called once with the bytes that the weights will take, before they take any; what it throws ends the loading.
  std::function<void(uint64_t resident_bytes)> admit;
  // Called now and then from the loading thread with bytes done and bytes in total; may be empty.
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;
};

class Weights {
 public:
  // Loads the Hugging Face checkpoint in `directory` (config already read from it). Every missing, unexpected,
  // misshapen or truncated tensor is found before any weight is read, and listed in one error. Anonymous memory stays
  // within 1.1 x resident_bytes() + 64 MiB.
  static Weights load(const std::string& directory, const Config& config, const LoadOptions& options);

  Weights(Weights&&) noexcept;
  Weights& operator=(Weights&&) noexcept;
  ~Weights();

  const std::vector<LayerWeights>& layers() const;  // [num_layers]
  const MtpWeights* mtp() const;                    // null when absent or not loaded
  // Embedding rows in their stored type: row i at embedding() + i * H * dtype_bytes(embedding_type()).
  const std::byte* embedding() const;
  DType embedding_type() const;         // kBF16, kF16 or kF32
  const float* final_norm() const;      // [H]
  const PackedMatrix& lm_head() const;  // [V, H]
  uint64_t resident_bytes() const;

 private:
  struct Storage;
  explicit Weights(std::unique_ptr<Storage> storage);
  std::unique_ptr<Storage> storage_;
};

}  // namespace tidepool::model
