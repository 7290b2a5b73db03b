#include "model/config.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/presets.h"
#include "model/testing.h"

namespace tidepool::model {
namespace {

using base::Json;
using base::JsonArray;
using base::JsonObject;
using testing::error_of;

// A small GLM config.json without indexer fields (so every layer is full).
Json small() {
  return Json::parse(R"({"architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "dtype": "bfloat16",
    "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "moe_intermediate_size": 32, "num_hidden_layers": 12,
    "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 16, "v_head_dim": 32, "head_dim": 192, "index_n_heads": 4, "index_head_dim": 32, "index_topk": 8,
    "first_k_dense_replace": 3, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "eos_token_id": [5, 7], "hidden_act": "silu",
    "scoring_func": "sigmoid", "topk_method": "noaux_tc", "attention_bias": false,
    "rope_parameters": {"rope_theta": 8000000, "rope_type": "default"}})",
                     "small");
}

Json small_deepseek() {
  Json json = small();
  json.set("architectures", JsonArray{"DeepseekV32ForCausalLM"});
  json.set("model_type", "deepseek_v32");
  json.set("n_group", 4);
  json.set("topk_group", 2);
  return json;
}

Json with(const char* key, Json value) {
  Json json = small();
  json.set(key, std::move(value));
  return json;
}

Config read(const Json& json) { return Config::read(json, "DIR/config.json"); }
std::string refusal(const Json& json) {
  return error_of([&] { read(json); });
}

std::vector<int> full_layers(const Config& c) {
  std::vector<int> layers;
  for (size_t i = 0; i < c.is_full.size(); ++i) {
    if (c.is_full[i]) layers.push_back(static_cast<int>(i));
  }
  return layers;
}

TEST(Config, ReadsASmallGlmFile) {
  const Config c = read(small());
  EXPECT_EQ(c.num_layers, 12);
  EXPECT_EQ(c.row_values(), 48);
  EXPECT_EQ(c.rope_theta, 8e6);
  EXPECT_TRUE(c.indexer_rope_interleave);
  EXPECT_EQ(c.eos_ids, (std::vector<int64_t>{5, 7}));
  EXPECT_EQ(c.latent_norm_eps, 1e-6);
  EXPECT_EQ(full_layers(c).size(), 12u);
  EXPECT_FALSE(c.is_moe(2));
  EXPECT_TRUE(c.is_moe(3));
}

TEST(Config, FieldsThatMayBeAbsentHaveTheDefaultsOfTransformers) {
  const Config c = read(small());
  EXPECT_EQ(c.num_expert_groups, 1);
  EXPECT_EQ(c.routed_scaling_factor, 2.5);
  EXPECT_TRUE(c.norm_topk_prob);
  EXPECT_EQ(c.num_mtp_layers, 0);
  EXPECT_FALSE(c.tie_word_embeddings);
  EXPECT_FALSE(read(small_deepseek()).indexer_rope_interleave);
}

TEST(Config, RopeThetaIs10000WhenNoSpellingGivesIt) {
  Json json = small();
  json.set("rope_parameters", nullptr);
  EXPECT_EQ(read(json).rope_theta, 10000.0);
}

TEST(Config, IndexerTypesListIsTakenAsItIs) {
  JsonArray list(12, "shared");
  for (size_t i : {0, 1, 5}) list[i] = "full";
  EXPECT_EQ(full_layers(read(with("indexer_types", list))), (std::vector<int>{0, 1, 5}));
}

TEST(Config, IndexerTypesGoBeforePatternAndPatternBeforeFrequency) {
  Json json = with("index_topk_pattern", "FSSSSSSSSSSS");
  json.set("index_topk_freq", 4);
  EXPECT_EQ(full_layers(read(json)), (std::vector<int>{0}));
  json.set("indexer_types", JsonArray(12, "full"));
  EXPECT_EQ(full_layers(read(json)).size(), 12u);
}

TEST(Config, PatternMayBeAList) {
  JsonArray list(12, "shared");
  list[0] = "full";
  EXPECT_EQ(full_layers(read(with("index_topk_pattern", list))), (std::vector<int>{0}));
}

TEST(Config, FrequencyAndOffsetGiveTheFullLayers) {
  Json json = with("index_topk_freq", 4);
  EXPECT_EQ(full_layers(read(json)), (std::vector<int>{0, 1, 5, 9}));  // the default offset is 2
  json.set("index_skip_topk_offset", 3);
  EXPECT_EQ(full_layers(read(json)), (std::vector<int>{0, 1, 2, 6, 10}));
}

TEST(Config, Glm52FrequencyGivesThePublishedList) {
  Json json = preset_config("glm-5.2").to_json();
  json.set("indexer_types", nullptr);
  json.set("index_topk_freq", 4);
  json.set("index_skip_topk_offset", 3);
  EXPECT_EQ(read(json), preset_config("glm-5.2"));
  EXPECT_EQ(full_layers(read(json)).size(), 21u);
}

TEST(Config, LayerGroupsStartAtTheirOwners) {
  Json json = with("index_topk_freq", 4);
  json.set("index_skip_topk_offset", 3);
  const auto groups = read(json).layer_groups();
  ASSERT_EQ(groups.size(), 5u);
  EXPECT_EQ(groups[0], (std::vector<int32_t>{0}));
  EXPECT_EQ(groups[2], (std::vector<int32_t>{2, 3, 4, 5}));
  EXPECT_EQ(groups[4], (std::vector<int32_t>{10, 11}));
}

TEST(Config, OldAndNewRopeSpellingReadAlike) {
  Json fresh = small_deepseek();
  fresh.set("rope_parameters",
            Json::parse(R"({"rope_theta": 10000.0, "rope_type": "yarn", "factor": 40, "beta_fast": 32,
    "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096})",
                        "rope"));
  Json old = small_deepseek();
  old.set("rope_parameters", nullptr);
  old.set("rope_theta", 10000);
  old.set("rope_scaling", Json::parse(R"({"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
    "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096})",
                                      "rope"));
  EXPECT_EQ(read(fresh), read(old));
}

TEST(Config, PlainRopeFrequenciesArePowersOfTheta) {
  const auto inv_freq = read(small()).rope_inv_freq();
  ASSERT_EQ(inv_freq.size(), 8u);
  for (size_t j = 0; j < 8; ++j) {
    const double expected = std::pow(8e6, -2.0 * static_cast<double>(j) / 16);
    EXPECT_NEAR(inv_freq[j], expected, 2e-7 * expected);
  }
  EXPECT_EQ(read(small()).rope_attention_factor(), 1.0);
  EXPECT_DOUBLE_EQ(read(small()).attention_scale(), 1 / std::sqrt(40.0));
}

// Numbers from an independent computation of yarn for DeepSeek-V3.2's published fields.
TEST(Config, YarnFrequenciesAndScaleOfDeepSeek) {
  const Config c = preset_config("deepseek-v3.2");
  const auto inv_freq = c.rope_inv_freq();
  ASSERT_EQ(inv_freq.size(), 32u);
  EXPECT_EQ(inv_freq[0], 1.0f);
  EXPECT_NEAR(inv_freq[10], 0.056234132519034905, 1e-8);   // the last that yarn leaves alone
  EXPECT_NEAR(inv_freq[15], 0.008334508951020777, 2e-9);   // on the ramp
  EXPECT_NEAR(inv_freq[23], 3.33380358040831e-05, 1e-11);  // the first that is divided by the factor
  EXPECT_NEAR(inv_freq[31], 3.33380358040831e-06, 1e-12);
  EXPECT_NEAR(c.attention_scale(), 0.1352337788608801, 1e-15);
  EXPECT_EQ(c.rope_attention_factor(), 1.0);  // mscale == mscale_all_dim
}

TEST(Config, YarnWithoutMscaleAllDimScalesTheTablesInstead) {
  Json json = small();
  json.set("rope_parameters", Json::parse(R"({"rope_theta": 10000, "rope_type": "yarn", "factor": 4,
    "original_max_position_embeddings": 1024})",
                                          "rope"));
  const Config c = read(json);
  EXPECT_DOUBLE_EQ(c.attention_scale(), 1 / std::sqrt(40.0));
  EXPECT_DOUBLE_EQ(c.rope_attention_factor(), 0.1 * std::log(4.0) + 1);
}

TEST(Config, YarnWithoutAFactorIsRefused) {
  Json json = small();
  json.set("rope_scaling", Json::parse(R"({"type": "yarn", "original_max_position_embeddings": 1024})", "rope"));
  EXPECT_SAYS(refusal(json), "rope_scaling: factor is missing");
}

TEST(Config, ATextOfTheFileCannotBreakTheSentence) {
  const std::string said = refusal(with("model_type", "glm\n" + std::string(5000, 'x')));
  EXPECT_EQ(said.find('\n'), std::string::npos);
  EXPECT_LT(said.size(), 400u);
}

TEST(Config, EveryPresetReadsBackFromItsOwnJson) {
  for (const std::string& name : preset_names()) {
    const Config c = preset_config(name);
    EXPECT_EQ(Config::read(Json::parse(c.to_json().dump_pretty(), name), name), c) << name;
  }
}

TEST(Config, GenerationConfigGivesTheEosIds) {
  testing::TemporaryDirectory directory;
  testing::write_file(directory / "config.json", small().dump());
  EXPECT_EQ(Config::read_directory(directory.path()).eos_ids, (std::vector<int64_t>{5, 7}));
  testing::write_file(directory / "generation_config.json", R"({"eos_token_id": 9})");
  EXPECT_EQ(Config::read_directory(directory.path()).eos_ids, (std::vector<int64_t>{9}));
}

TEST(Config, AbsentDirectoryOrFileIsRefused) {
  testing::TemporaryDirectory directory;
  EXPECT_SAYS(error_of([&] { Config::read_directory(directory / "none"); }), "none", "no such directory");
  EXPECT_SAYS(error_of([&] { Config::read_directory(directory.path()); }), "config.json");
}

TEST(Config, EveryFieldThatDecidesShapesMustBeThere) {
  for (const char* key :
       {"architectures", "vocab_size", "hidden_size", "intermediate_size", "moe_intermediate_size", "num_hidden_layers",
        "num_attention_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
        "index_n_heads", "index_head_dim", "index_topk", "n_routed_experts", "num_experts_per_tok"}) {
    const std::string said = refusal(with(key, nullptr));
    EXPECT_NE(said.find(std::string(key) + " is missing"), std::string::npos) << key << ": " << said;
    EXPECT_NE(said.find("DIR/config.json"), std::string::npos) << key << ": " << said;
  }
}

TEST(Config, NegativeZeroAndAbsurdSizesAreRefusedByName) {
  for (const char* key : {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "kv_lora_rank",
                          "index_topk", "n_routed_experts", "max_position_embeddings"}) {
    for (int64_t bad : {int64_t{-1}, int64_t{0}, int64_t{1} << 40}) {
      EXPECT_SAYS(refusal(with(key, bad)), "DIR/config.json", key, std::to_string(bad), "must lie in");
    }
    EXPECT_SAYS(refusal(with(key, "64")), key, "expected an integer");
    EXPECT_SAYS(refusal(with(key, 64.5)), key, "expected an integer");
  }
}

struct BadField {
  const char* name;
  const char* key;
  Json value;
  const char* says;
};

TEST(Config, ContradictionsAndUnknownValuesAreRefused) {
  const BadField cases[] = {
      {"odd rope", "qk_rope_head_dim", 15, "even"},
      {"index head below rope", "index_head_dim", 8, "at least qk_rope_head_dim = 16"},
      {"experts not a multiple of groups", "n_group", 3, "not a multiple of n_group = 3"},
      {"one expert a group", "n_group", 8, "1 expert in a group"},
      {"more groups kept than there are", "topk_group", 2, "limit is n_group = 1"},
      {"more experts chosen than there are", "num_experts_per_tok", 9, "the limit is the 8 experts"},
      {"key heads differ", "num_key_value_heads", 2, "must be 4"},
      {"qk_head_dim differs", "qk_head_dim", 41, "must be 40"},
      {"unknown model type", "model_type", "llama", "glm_moe_dsa"},
      {"architecture of another type", "architectures", JsonArray{"DeepseekV32ForCausalLM"}, "goes with"},
      {"activation", "hidden_act", "gelu", "only \"silu\""},
      {"attention bias", "attention_bias", true, "only false"},
      {"scoring", "scoring_func", "softmax", "only \"sigmoid\""},
      {"top-k method", "topk_method", "greedy", "only \"noaux_tc\""},
      {"half-split attention rope", "rope_interleave", false, "only true"},
      {"MoE spacing", "moe_layer_freq", 2, "must be 1"},
      {"two MTP layers", "num_nextn_predict_layers", 2, "must lie in 0..1"},
      {"first layer shared", "index_topk_pattern", "SFFFFFFFFFFF", "layer 0"},
      {"pattern letter", "index_topk_pattern", "FXFFFFFFFFFF", "F or S"},
      {"pattern length", "index_topk_pattern", "FS", "2 entries"},
      {"list length", "indexer_types", JsonArray{"full"}, "1 entries"},
      {"list word", "indexer_types", JsonArray(12, "none"), "\"full\" or \"shared\""},
      {"frequency", "index_topk_freq", -4, "must lie in"},
      {"dense layers differ", "mlp_layer_types", JsonArray(12, "sparse"), "0 dense layers, first_k_dense_replace is 3"},
      {"eos outside", "eos_token_id", 256, "must lie in 0..255"},
      {"eos negative", "eos_token_id", JsonArray{-1}, "must lie in 0..255"},
      {"eps", "rms_norm_eps", -1e-5, "must lie in"},
      {"scale", "routed_scaling_factor", 0, "must lie in"},
      {"rope type", "rope_parameters", JsonObject{{"rope_theta", 1e4}, {"rope_type", "linear"}}, "\"linear\""},
      {"theta", "rope_parameters", JsonObject{{"rope_theta", -1}, {"rope_type", "default"}}, "rope_theta is -1"},
      {"two thetas", "rope_theta", 10000, "in one place"},
      {"quantization", "quantization_config", JsonObject{{"quant_method", "awq"}, {"bits", 4}}, "\"awq\""},
      {"block", "quantization_config", Json::parse(R"({"quant_method": "fp8", "weight_block_size": [64, 64]})", "q"),
       "64"},
  };
  for (const BadField& bad : cases) {
    const std::string said = refusal(with(bad.key, bad.value));
    EXPECT_NE(said.find(bad.says), std::string::npos) << bad.name << ": \"" << said << "\"";
    EXPECT_NE(said.find("DIR/config.json"), std::string::npos) << bad.name << ": " << said;
  }
}

TEST(Config, DenseLayersMustComeFirst) {
  JsonArray types(12, "sparse");
  types[3] = "dense";
  Json json = with("mlp_layer_types", types);
  json.set("first_k_dense_replace", nullptr);
  EXPECT_SAYS(refusal(json), "mlp_layer_types[3]", "after a \"sparse\" layer");
}

TEST(Config, LayerTypesAloneGiveTheDenseLayers) {
  JsonArray types(12, "sparse");
  types[0] = types[1] = "dense";
  Json json = with("mlp_layer_types", types);
  json.set("first_k_dense_replace", nullptr);
  EXPECT_EQ(read(json).first_dense_layers, 2);
}

TEST(Config, ATopLevelArrayIsNoConfig) { EXPECT_SAYS(refusal(Json::array()), "expected a JSON object"); }

}  // namespace
}  // namespace tidepool::model
