#include "model/tensor_list.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/testing_checkpoint.h"

namespace tidepool::model {
namespace {

using testing::error_of;
using testing::Tensor;

TEST(TensorList, Glm52HasThePublishedParameterCount) {
  const ParameterCount count = count_parameters(preset_config("glm-5.2"));
  EXPECT_EQ(count.parameters, 753'329'921'024u);
  EXPECT_EQ(count.router_bias_values, 76u * 256u);
}

TEST(TensorList, NamesAndShapesOfGlm52) {
  const auto list = tensor_list(preset_config("glm-5.2"));
  auto shape = [&](const std::string& name) {
    const auto it = std::find_if(list.begin(), list.end(), [&](const TensorSpec& spec) { return spec.name == name; });
    return it == list.end() ? std::vector<int64_t>{} : it->shape;
  };
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(shape("model.layers.0.self_attn.q_b_proj.weight"), (Shape{16384, 2048}));
  EXPECT_EQ(shape("model.layers.77.self_attn.kv_a_proj_with_mqa.weight"), (Shape{576, 6144}));
  EXPECT_EQ(shape("model.layers.3.self_attn.kv_b_proj.weight"), (Shape{28672, 512}));
  EXPECT_EQ(shape("model.layers.6.self_attn.indexer.wq_b.weight"), (Shape{4096, 2048}));
  EXPECT_EQ(shape("model.layers.2.mlp.gate_proj.weight"), (Shape{12288, 6144}));
  EXPECT_EQ(shape("model.layers.3.mlp.experts.255.down_proj.weight"), (Shape{6144, 2048}));
  EXPECT_EQ(shape("model.layers.78.eh_proj.weight"), (Shape{6144, 12288}));
  EXPECT_EQ(shape("lm_head.weight"), (Shape{154880, 6144}));
  EXPECT_EQ(scale_shape({576, 6144}), (Shape{5, 48}));
}

// A complete tiny checkpoint to change.
class TensorCheck : public ::testing::Test {
 protected:
  void SetUp() override {
    make_model(config, directory / "made", {});
    tensors = testing::read_tensors(directory / "made");
    std::filesystem::create_directory(directory / "changed");
  }
  std::string refusal() {
    testing::write_checkpoint(directory / "changed", config, tensors);
    return error_of([&] { check_tensors(Checkpoint(directory / "changed"), config); });
  }
  void drop(const std::string& part) {
    std::erase_if(tensors, [&](const Tensor& t) { return t.info.name.find(part) != std::string::npos; });
  }
  void add(const std::string& name, DType type, std::vector<int64_t> shape) {
    Tensor tensor{{name, type, std::move(shape)}, {}};
    tensor.bytes.resize(tensor.info.bytes());
    tensors.push_back(tensor);
  }
  Config config = preset_config("tiny");
  testing::TemporaryDirectory directory;
  std::vector<Tensor> tensors;
};

TEST_F(TensorCheck, ACompleteCheckpointPasses) { EXPECT_EQ(refusal(), ""); }

TEST_F(TensorCheck, OneErrorListsMissingMisshapenAndUnexpectedTensors) {
  drop("model.norm.weight");
  drop("layers.4.mlp.experts.3.up_proj");
  add("model.layers.0.self_attn.q_a_proj.bias", DType::kBF16, {48});
  Tensor& wk = testing::find(tensors, "model.layers.0.self_attn.indexer.wk.weight");
  std::swap(wk.info.shape[0], wk.info.shape[1]);
  EXPECT_SAYS(refusal(), "2 missing: ", "model.norm.weight", "model.layers.4.mlp.experts.3.up_proj.weight",
              "1 misshapen: ", "wk.weight: shape [64, 32], expected [32, 64]", "1 unexpected: ", "q_a_proj.bias");
}

TEST_F(TensorCheck, ALongListIsCut) {
  drop("experts");
  const std::string said = refusal();
  EXPECT_SAYS(said, "missing: ", " more");
  EXPECT_LT(said.size(), 2500u);
}

TEST_F(TensorCheck, TypesThatARoleDoesNotAllowAreNamed) {
  Tensor& norm = testing::find(tensors, "model.norm.weight");
  norm.info.type = DType::kI8;
  norm.bytes.resize(64);
  EXPECT_SAYS(refusal(), "model.norm.weight: type int8");
}

TEST_F(TensorCheck, Float8NeedsScalesOfTheRightShape) {
  const std::string name = "model.layers.0.self_attn.o_proj.weight";
  Tensor& o = testing::find(tensors, name);
  o.info.type = DType::kF8E4M3;
  o.bytes.resize(o.info.bytes());
  EXPECT_SAYS(refusal(), "o_proj.weight: float8 without model.layers.0.self_attn.o_proj.weight_scale_inv");
  add(scale_name(name), DType::kF32, {2, 2});
  EXPECT_SAYS(refusal(), "o_proj.weight_scale_inv: shape [2, 2], expected [1, 1]");
  tensors.pop_back();
  add(scale_name(name), DType::kF32, {1, 1});
  EXPECT_EQ(refusal(), "");
}

TEST_F(TensorCheck, AScaleWithoutAFloat8MatrixIsUnexpected) {
  add("model.layers.0.self_attn.o_proj.weight_scale_inv", DType::kF32, {1, 1});
  EXPECT_SAYS(refusal(), "1 unexpected: model.layers.0.self_attn.o_proj.weight_scale_inv");
}

TEST_F(TensorCheck, AnEmbeddingInFloat8IsRefused) {
  Tensor& embedding = testing::find(tensors, "model.embed_tokens.weight");
  embedding.info.type = DType::kF8E4M3;
  embedding.bytes.resize(embedding.info.bytes());
  EXPECT_SAYS(refusal(), "model.embed_tokens.weight: type float8_e4m3");
}

TEST_F(TensorCheck, IndexersOnSharedLayersAndMtpCopiesAreTolerated) {
  add("model.layers.3.self_attn.indexer.wk.weight", DType::kBF16, {32, 64});
  add("model.layers.8.embed_tokens.weight", DType::kBF16, {256, 64});
  add("model.layers.8.shared_head.head.weight", DType::kBF16, {256, 64});
  EXPECT_EQ(refusal(), "");
  tensors.back().info.shape = {64, 256};
  EXPECT_SAYS(refusal(), "shared_head.head.weight: shape");
}

TEST_F(TensorCheck, AnMtpLayerMayBeAbsentWholeButNotInPart) {
  drop("layers.8.eh_proj");
  EXPECT_SAYS(refusal(), "1 missing: model.layers.8.eh_proj.weight");
  drop("layers.8.");
  EXPECT_EQ(refusal(), "");
  EXPECT_FALSE(has_mtp_tensors(Checkpoint(directory / "changed"), config));
}

TEST_F(TensorCheck, AnMtpLayerThatTheConfigDoesNotNameIsUnexpected) {
  config.num_mtp_layers = 0;
  EXPECT_SAYS(refusal(), "unexpected", "model.layers.8.");
}

TEST_F(TensorCheck, TiedEmbeddingsNeedNoHead) {
  drop("lm_head");
  EXPECT_SAYS(refusal(), "1 missing: lm_head.weight");
  config.tie_word_embeddings = true;
  EXPECT_EQ(refusal(), "");
}

}  // namespace
}  // namespace tidepool::model
