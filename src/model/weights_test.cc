#include "model/weights.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "model/tensor_list.h"
#include "model/testing_checkpoint.h"

namespace tidepool::model {
namespace {

using testing::error_of;
using testing::Tensor;

// Element (row, column) of a packed matrix, by the definition of the layout.
float value_at(const PackedMatrix& m, int32_t row, int32_t column) {
  const size_t at = (static_cast<size_t>(row / nn::kPanelRows) * m.k + column) * nn::kPanelRows + row % nn::kPanelRows;
  uint32_t bits = 0;
  std::memcpy(&bits, m.data + at * dtype_bytes(m.type), dtype_bytes(m.type));
  if (m.type == DType::kBF16) return bf16_to_f32(static_cast<uint16_t>(bits));
  if (m.type == DType::kF32) return std::bit_cast<float>(bits);
  const int32_t scale_columns = (m.k + nn::kScaleBlock - 1) / nn::kScaleBlock;
  return f8e4m3_to_f32(static_cast<uint8_t>(bits)) *
         m.scale[row / nn::kScaleBlock * scale_columns + column / nn::kScaleBlock];
}

class WeightsTest : public ::testing::Test {
 protected:
  void make(bool fp8) {
    made = directory / "made";
    MakeModelOptions options;
    options.fp8 = fp8;
    make_model(config, made, options);
    config = Config::read_directory(made);
    tensors = testing::read_tensors(made);
  }
  // Writes the (changed) tensors to a directory of their own.
  void rewrite() {
    made = directory / "changed";
    std::filesystem::create_directory(made);
    testing::write_checkpoint(made, config, tensors);
  }
  Weights load(LoadOptions options = {}) {
    options.load_mtp = true;
    return Weights::load(made, config, options);
  }
  // The effective weight [row, column] as the checkpoint has it.
  float source(const std::string& name, int64_t row, int64_t column) {
    if (source_name != name) {  // looked up once per tensor
      source_name = name;
      source_tensor = &testing::find(tensors, name);
      const bool is_fp8 = source_tensor->info.type == DType::kF8E4M3;
      source_scale = is_fp8 ? &testing::find(tensors, scale_name(name)) : nullptr;
    }
    const Tensor& t = *source_tensor;
    const float value = testing::value_of(t, static_cast<size_t>(row * t.info.shape[1] + column));
    if (source_scale == nullptr) return value;
    const Tensor& scale = *source_scale;
    return value * testing::value_of(scale, static_cast<size_t>(row / 128 * scale.info.shape[1] + column / 128));
  }
  void expect_matrix(const PackedMatrix& m, const std::string& name) {
    const Tensor& t = testing::find(tensors, name);
    ASSERT_EQ(m.n, t.info.shape[0]) << name;
    ASSERT_EQ(m.k, t.info.shape[1]) << name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(m.data) % 64, 0u) << name;
    for (int32_t r = 0; r < m.n; ++r) {
      for (int32_t c = 0; c < m.k; ++c)
        ASSERT_EQ(value_at(m, r, c), source(name, r, c)) << name << " " << r << ", " << c;
    }
  }
  void expect_floats(const float* floats, const std::string& name) {
    const Tensor& t = testing::find(tensors, name);
    for (size_t i = 0; i < static_cast<size_t>(t.info.shape[0]); ++i)
      ASSERT_EQ(floats[i], testing::value_of(t, i)) << name;
  }
  void expect_mlp(const MlpWeights& w, const std::string& prefix) {
    expect_matrix(w.gate, prefix + "gate_proj.weight");
    expect_matrix(w.up, prefix + "up_proj.weight");
    expect_matrix(w.down, prefix + "down_proj.weight");
  }
  void expect_kv_b(const LayerWeights& w, const std::string& name) {
    const int32_t rows = config.nope_dim + config.v_dim;
    for (int32_t h = 0; h < config.num_heads; ++h) {
      const PackedMatrix& uk = w.w_uk[static_cast<size_t>(h)];
      const PackedMatrix& uv = w.w_uv[static_cast<size_t>(h)];
      ASSERT_EQ(uk.n, config.kv_lora_rank);
      ASSERT_EQ(uk.k, config.nope_dim);
      ASSERT_EQ(uv.n, config.v_dim);
      ASSERT_EQ(uv.k, config.kv_lora_rank);
      for (int32_t r = 0; r < config.kv_lora_rank; ++r) {
        for (int32_t d = 0; d < config.nope_dim; ++d) ASSERT_EQ(value_at(uk, r, d), source(name, h * rows + d, r));
        for (int32_t d = 0; d < config.v_dim; ++d) {
          ASSERT_EQ(value_at(uv, d, r), source(name, h * rows + config.nope_dim + d, r));
        }
      }
    }
  }
  void expect_layer(const LayerWeights& w, int32_t layer) {
    const std::string prefix = layer_tensor(layer, "");
    expect_floats(w.input_norm, prefix + "input_layernorm.weight");
    expect_floats(w.post_attention_norm, prefix + "post_attention_layernorm.weight");
    expect_matrix(w.q_a, prefix + "self_attn.q_a_proj.weight");
    expect_floats(w.q_a_norm, prefix + "self_attn.q_a_layernorm.weight");
    expect_matrix(w.q_b, prefix + "self_attn.q_b_proj.weight");
    expect_matrix(w.kv_a, prefix + "self_attn.kv_a_proj_with_mqa.weight");
    expect_floats(w.kv_a_norm, prefix + "self_attn.kv_a_layernorm.weight");
    expect_kv_b(w, prefix + "self_attn.kv_b_proj.weight");
    expect_matrix(w.o, prefix + "self_attn.o_proj.weight");
    if (w.is_full) {
      expect_matrix(w.indexer.wq_b, prefix + "self_attn.indexer.wq_b.weight");
      expect_matrix(w.indexer.wk, prefix + "self_attn.indexer.wk.weight");
      expect_matrix(w.indexer.weights_proj, prefix + "self_attn.indexer.weights_proj.weight");
      expect_floats(w.indexer.k_norm_weight, prefix + "self_attn.indexer.k_norm.weight");
      expect_floats(w.indexer.k_norm_bias, prefix + "self_attn.indexer.k_norm.bias");
    }
    if (!w.is_moe) return expect_mlp(w.dense, prefix + "mlp.");
    expect_matrix(w.router, prefix + "mlp.gate.weight");
    expect_floats(w.router_bias, prefix + "mlp.gate.e_score_correction_bias");
    for (size_t e = 0; e < w.experts.size(); ++e)
      expect_mlp(w.experts[e], prefix + "mlp.experts." + std::to_string(e) + ".");
    expect_mlp(w.shared, prefix + "mlp.shared_experts.");
  }
  void expect_everything(const Weights& w) {
    ASSERT_EQ(w.layers().size(), static_cast<size_t>(config.num_layers));
    for (int32_t layer = 0; layer < config.num_layers; ++layer)
      expect_layer(w.layers()[static_cast<size_t>(layer)], layer);
    ASSERT_NE(w.mtp(), nullptr);
    expect_layer(w.mtp()->layer, config.num_layers);
    expect_floats(w.mtp()->enorm, layer_tensor(config.num_layers, "enorm.weight"));
    expect_floats(w.mtp()->hnorm, layer_tensor(config.num_layers, "hnorm.weight"));
    expect_matrix(w.mtp()->eh_proj, layer_tensor(config.num_layers, "eh_proj.weight"));
    expect_floats(w.mtp()->shared_head_norm, layer_tensor(config.num_layers, "shared_head.norm.weight"));
    expect_floats(w.final_norm(), "model.norm.weight");
    expect_matrix(w.lm_head(), config.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight");
    const Tensor& embedding = testing::find(tensors, "model.embed_tokens.weight");
    EXPECT_EQ(w.embedding_type(), embedding.info.type);
    EXPECT_EQ(std::memcmp(w.embedding(), embedding.bytes.data(), embedding.bytes.size()), 0);
  }

  Config config = preset_config("tiny");
  testing::TemporaryDirectory directory;
  std::string made;
  std::vector<Tensor> tensors;

 private:
  std::string source_name;
  const Tensor* source_tensor = nullptr;
  const Tensor* source_scale = nullptr;
};

TEST_F(WeightsTest, EveryValueOfABf16CheckpointIsInItsPlace) {
  make(false);
  const Weights w = load();
  EXPECT_EQ(w.layers()[3].is_full, false);
  EXPECT_EQ(w.mtp()->layer.is_full, true);
  EXPECT_EQ(w.lm_head().type, DType::kBF16);
  expect_everything(w);
}

TEST_F(WeightsTest, EveryValueOfAnFp8CheckpointIsInItsPlace) {
  config.hidden_size = 160;  // partial scale blocks
  config.kv_lora_rank = 144;
  config.num_heads = 5;  // heads of 56 rows end inside scale blocks
  make(true);
  EXPECT_EQ(config.quantization, "fp8");
  const Weights w = load();
  EXPECT_EQ(w.layers()[0].o.type, DType::kF8E4M3);
  EXPECT_EQ(w.layers()[0].w_uk[0].type, DType::kF32);
  EXPECT_EQ(w.layers()[3].router.type, DType::kBF16);
  expect_everything(w);
}

TEST_F(WeightsTest, Fp32StaysAndFp16IsWidened) {
  make(false);
  for (Tensor& tensor : tensors) testing::widen(tensor);
  Tensor& head = testing::find(tensors, "lm_head.weight");
  head.info.type = DType::kF16;  // any bits will do, but not the exponent of infinity
  head.bytes.resize(head.info.bytes());
  for (size_t i = 1; i < head.bytes.size(); i += 2) head.bytes[i] &= std::byte{0xbb};
  rewrite();
  const Weights w = load();
  EXPECT_EQ(w.layers()[0].q_a.type, DType::kF32);
  EXPECT_EQ(w.lm_head().type, DType::kF32);
  expect_everything(w);
}

TEST_F(WeightsTest, TiedEmbeddingsServeAsTheHead) {
  make(false);
  config.tie_word_embeddings = true;
  std::erase_if(tensors, [](const Tensor& t) { return t.info.name == "lm_head.weight"; });
  rewrite();
  expect_everything(load());
}

TEST_F(WeightsTest, ShardsAndThreadsDoNotMatter) {
  MakeModelOptions options;
  options.shard_bytes = 100'000;
  options.num_threads = 3;
  made = directory / "sharded";
  make_model(config, made, options);
  tensors = testing::read_tensors(made);
  EXPECT_GT(Checkpoint(made).files().size(), 10u);
  LoadOptions load_options;
  load_options.num_threads = 4;
  expect_everything(load(load_options));
}

TEST_F(WeightsTest, MtpTensorsAreLoadedOnRequestOnly) {
  make(false);
  const Weights without = Weights::load(made, config, {});
  EXPECT_EQ(without.mtp(), nullptr);
  EXPECT_LT(without.resident_bytes(), load().resident_bytes());
}

TEST_F(WeightsTest, ARankHoldsItsPartOfTheExperts) {
  make(false);
  std::set<size_t> held;
  for (int rank = 0; rank < 3; ++rank) {
    LoadOptions options;
    options.rank = rank;
    options.num_ranks = 3;
    const Weights w = load(options);
    const auto& experts = w.layers()[5].experts;
    ASSERT_EQ(experts.size(), 8u);
    for (size_t e = 0; e < experts.size(); ++e) {
      if (experts[e].gate.n == 0) continue;
      EXPECT_TRUE(held.insert(e).second);
      expect_mlp(experts[e], "model.layers.5.mlp.experts." + std::to_string(e) + ".");
    }
    EXPECT_GT(w.layers()[5].shared.gate.n, 0);
  }
  EXPECT_EQ(held.size(), 8u);
  LoadOptions options;
  options.rank = 3;
  options.num_ranks = 3;
  EXPECT_SAYS(error_of([&] { load(options); }), "rank is 3 of 3");
}

// One bad value in one tensor at a time; among several the first in the file is named.
TEST_F(WeightsTest, ANaNIsNamedWithItsIndexAndRefused) {
  make(false);
  const std::vector<Tensor> good = tensors;
  const struct {
    const char* name;
    size_t index;
  } cases[] = {{"model.embed_tokens.weight", 777},
               {"lm_head.weight", 16383},
               {"model.norm.weight", 5},
               {"model.layers.2.self_attn.kv_b_proj.weight", 3001},
               {"model.layers.4.mlp.experts.7.down_proj.weight", 1},
               {"model.layers.4.mlp.gate.e_score_correction_bias", 0},
               {"model.layers.8.eh_proj.weight", 64}};
  for (const auto& c : cases) {
    tensors = good;
    Tensor& tensor = testing::find(tensors, c.name);
    const uint32_t infinity = 0x7f800000u;
    const size_t size = dtype_bytes(tensor.info.type);
    std::memcpy(&tensor.bytes[c.index * size], reinterpret_cast<const char*>(&infinity) + 4 - size, size);
    rewrite();
    const std::string index = "index " + std::to_string(c.index) + " ";
    EXPECT_SAYS(error_of([&] { load(); }), c.name, index, "--allow-nan");
    LoadOptions options;
    options.allow_nan = true;
    EXPECT_EQ(error_of([&] { load(options); }), "") << c.name;
  }
}

TEST_F(WeightsTest, TheFirstOfSeveralNaNsIsNamedWhateverTheThreads) {
  make(false);
  for (const char* name :
       {"model.layers.6.self_attn.o_proj.weight", "model.layers.1.mlp.up_proj.weight", "model.norm.weight"}) {
    std::memset(testing::find(tensors, name).bytes.data(), 0xff, 2);
  }
  rewrite();
  LoadOptions options;
  options.num_threads = 4;
  for (int i = 0; i < 20; ++i)
    EXPECT_SAYS(error_of([&] { load(options); }), "model.layers.1.mlp.up_proj.weight", "index 0 ");
}

TEST_F(WeightsTest, NaNsInFp8ValuesAndScalesAreNamed) {
  make(true);
  const std::vector<Tensor> good = tensors;
  for (const char* name : {"model.layers.0.self_attn.o_proj.weight", "model.layers.0.self_attn.kv_b_proj.weight"}) {
    tensors = good;
    testing::find(tensors, name).bytes[70] = std::byte{0xff};
    rewrite();
    EXPECT_SAYS(error_of([&] { load(); }), name, "index 70 ");
    tensors = good;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(testing::find(tensors, scale_name(name)).bytes.data(), &nan, 4);
    rewrite();
    EXPECT_SAYS(error_of([&] { load(); }), scale_name(name), "index 0 ");
  }
}

TEST_F(WeightsTest, TensorsAreCheckedBeforeAnyWeightIsRead) {
  make(false);
  std::erase_if(tensors, [](const Tensor& t) { return t.info.name == "model.norm.weight"; });
  std::memset(testing::find(tensors, "lm_head.weight").bytes.data(), 0xff, 2);
  rewrite();
  EXPECT_SAYS(error_of([&] { load(); }), "missing: model.norm.weight");
}

TEST_F(WeightsTest, ProgressCountsUpToTheTotal) {
  make(false);
  LoadOptions options;
  uint64_t last = 0, all = 0;
  options.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_GE(done, last);
    last = done;
    all = total;
  };
  load(options);
  EXPECT_EQ(last, all);
  EXPECT_GT(all, 0u);
}

// Sanitizers keep shadow memory of their own, which the system counts too.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kShadowFactor = 10;
#else
constexpr uint64_t kShadowFactor = 1;
#endif

uint64_t anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  uint64_t kilobytes = 0;
  while (status >> word) {
    if (word == "RssAnon:") status >> kilobytes;
  }
  return kilobytes * 1024;
}

TEST_F(WeightsTest, LoadingTakesLittleMoreAnonymousMemoryThanTheWeights) {
  config = preset_config("peer-8l");
  made = directory / "made";
  MakeModelOptions make_options;
  make_options.sparse = true;  // zeros load as any other weights do
  make_model(config, made, make_options);
  const uint64_t before = anonymous_bytes();
  uint64_t most = 0;
  LoadOptions options;
  options.num_threads = 2;
  options.progress = [&](uint64_t, uint64_t) { most = std::max(most, anonymous_bytes()); };
  const Weights w = Weights::load(made, config, options);
  most = std::max(most, anonymous_bytes());
  EXPECT_GT(w.resident_bytes(), 120'000'000u);
  EXPECT_GT(most - before, w.resident_bytes() / 2);
  EXPECT_LE(most - before, kShadowFactor * (w.resident_bytes() + w.resident_bytes() / 10 + (uint64_t{64} << 20)));
}

}  // namespace
}  // namespace tidepool::model
