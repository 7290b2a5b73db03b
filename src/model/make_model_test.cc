#include "model/make_model.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>

#include "model/info.h"
#include "model/tensor_list.h"
#include "model/testing_checkpoint.h"

namespace tidepool::model {
namespace {

using testing::error_of;
using testing::read_file;
using testing::TemporaryDirectory;
using testing::Tensor;

TEST(MakeModel, TheResultDependsOnTheSeedAndNotOnThreads) {
  TemporaryDirectory directory;
  MakeModelOptions options;
  make_model(preset_config("tiny"), directory / "a", options);
  options.num_threads = 4;
  make_model(preset_config("tiny"), directory / "b", options);
  options.seed = 1;
  make_model(preset_config("tiny"), directory / "c", options);
  EXPECT_EQ(read_file(directory / "a/model.safetensors"), read_file(directory / "b/model.safetensors"));
  EXPECT_NE(read_file(directory / "a/model.safetensors"), read_file(directory / "c/model.safetensors"));
  EXPECT_EQ(read_file(directory / "a/config.json"), read_file(directory / "c/config.json"));
}

TEST(MakeModel, WhatIsMadeIsACheckpointOfItsConfig) {
  TemporaryDirectory directory;
  const Config config = preset_config("tiny");
  const MadeModel made = make_model(config, directory / "m", {});
  EXPECT_EQ(made.parameters, count_parameters(config).parameters);
  EXPECT_EQ(made.bytes, std::filesystem::file_size(directory / "m/model.safetensors"));
  EXPECT_EQ(Config::read_directory(directory / "m"), config);
  EXPECT_EQ(error_of([&] { check_tensors(Checkpoint(directory / "m"), config); }), "");
  EXPECT_EQ(directory.num_entries(), 1u);  // no temporary file left
}

TEST(MakeModel, ValuesHaveTheSpreadThatKeepsActivationsInRange) {
  TemporaryDirectory directory;
  for (bool fp8 : {false, true}) {
    const std::string path = directory / (fp8 ? "fp8" : "bf16");
    MakeModelOptions options;
    options.fp8 = fp8;
    make_model(preset_config("tiny"), path, options);
    for (const Tensor& tensor : testing::read_tensors(path)) {
      const size_t count = tensor.bytes.size() / dtype_bytes(tensor.info.type);
      double sum = 0, squares = 0;
      for (size_t i = 0; i < count; ++i) {
        sum += testing::value_of(tensor, i);
        squares += std::pow(testing::value_of(tensor, i), 2);
      }
      const double mean = sum / static_cast<double>(count), rms = std::sqrt(squares / static_cast<double>(count));
      const std::string& name = tensor.info.name;
      if (name.ends_with("norm.weight")) {
        EXPECT_NEAR(mean, 1, 0.1) << name;
      } else if (name.ends_with("bias")) {
        EXPECT_GT(rms, 0.03) << name;
      } else if (count >= 1000 && tensor.info.type == DType::kBF16 && name != "model.embed_tokens.weight") {
        EXPECT_NEAR(rms * std::sqrt(static_cast<double>(tensor.info.shape[1])), 1, 0.1) << name;
      }
    }
  }
}

TEST(MakeModel, ABigModelIsCutIntoShardsWithTheSameValues) {
  TemporaryDirectory directory;
  MakeModelOptions options;
  make_model(preset_config("tiny"), directory / "one", options);
  options.shard_bytes = 200'000;
  make_model(preset_config("tiny"), directory / "many", options);
  EXPECT_FALSE(std::filesystem::exists(directory / "many/model.safetensors"));
  const auto one = testing::read_tensors(directory / "one"), many = testing::read_tensors(directory / "many");
  ASSERT_EQ(one.size(), many.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].bytes, many[i].bytes) << one[i].info.name;
  const Checkpoint sharded(directory / "many");
  for (const std::string& file : sharded.files()) {
    EXPECT_LT(std::filesystem::file_size(directory / "many/" + file), 220'000u);
  }
}

TEST(MakeModel, PublishedModelsAreRefusedWhereTheDiskIsTooSmallForThem) {
  TemporaryDirectory directory;
  EXPECT_SAYS(error_of([&] { make_model(preset_config("glm-5.2"), directory / "m", {}); }), "1506659919872 bytes",
              "bytes free");
  EXPECT_EQ(directory.num_entries(), 0u);
}

TEST(MakeModel, ADirectoryThatHoldsSomethingIsNotTouched) {
  TemporaryDirectory directory;
  testing::write_file(directory / "file", "kept");
  EXPECT_SAYS(error_of([&] { make_model(preset_config("tiny"), directory.path(), {}); }), "not an empty directory");
  EXPECT_SAYS(error_of([&] { make_model(preset_config("tiny"), directory / "file", {}); }), "not an empty directory");
  EXPECT_SAYS(error_of([&] { make_model(preset_config("tiny"), directory / "no/such", {}); }), "no/such",
              "cannot be created");
  EXPECT_EQ(read_file(directory / "file"), "kept");
  EXPECT_EQ(directory.num_entries(), 1u);
  std::filesystem::create_directory(directory / "empty");
  make_model(preset_config("tiny"), directory / "empty/", {});
  EXPECT_TRUE(std::filesystem::exists(directory / "empty/config.json"));
}

TEST(MakeModel, AFullDiskLeavesNothingBehind) {
  TemporaryDirectory directory;
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const rlimit limit{100'000, old.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  const std::string said = error_of([&] { make_model(preset_config("tiny"), directory / "m", {}); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_SAYS(said, "model.safetensors", "cannot be written");
  EXPECT_EQ(directory.num_entries(), 0u);
}

TEST(MakeModel, AnUnknownPresetIsRefusedWithTheKnownOnes) {
  EXPECT_SAYS(error_of([] { preset_config("huge"); }), "\"huge\"", "tiny", "deepseek-v3.2");
}

TEST(MakeModel, TheTokenizerHasOneTokenPerByte) {
  const base::Json json = base::Json::parse(byte_tokenizer_json(300), "tokenizer.json");
  const auto& vocab = json.at("model").at("vocab").as_object();
  ASSERT_EQ(vocab.size(), 300u);
  EXPECT_EQ(json.at("model").at("vocab").at("A").as_int(), 65);
  EXPECT_EQ(json.at("model").at("vocab").at("\u0120").as_int(), 32);    // the space
  EXPECT_EQ(json.at("model").at("vocab").at("\u010a").as_int(), 10);    // the newline
  EXPECT_EQ(json.at("model").at("vocab").at("\u0143").as_int(), 0xad);  // the last byte without a printable character
  EXPECT_EQ(json.at("model").at("vocab").at("\u00ff").as_int(), 0xff);
  EXPECT_EQ(json.at("model").at("merges").as_array().size(), 0u);
  EXPECT_SAYS(error_of([] { byte_tokenizer_json(255); }), "256");
}

TEST(Info, DescribesATinyModel) {
  TemporaryDirectory directory;
  make_model(preset_config("tiny"), directory / "m", {});
  const ModelInfo info = describe(directory / "m");
  EXPECT_EQ(info.parameters, count_parameters(preset_config("tiny")).parameters);
  EXPECT_EQ(info.row_bytes, 96u);
  EXPECT_EQ(info.kv_bytes_per_token, 768u);
  EXPECT_EQ(info.index_key_bytes_per_token, 256u);
  EXPECT_EQ(info.mtp_layers, 1);
  EXPECT_EQ(info.quantization, "none");
  const std::string json = info.to_json().dump();
  EXPECT_SAYS(json, "\"layer_groups\":[[0],[1],[2,3,4,5],[6,7]]",
              "\"indexer_types\":[\"full\",\"full\",\"full\",\"shared\"");
}

TEST(Info, SeesFp8InTheFiles) {
  TemporaryDirectory directory;
  MakeModelOptions options;
  options.fp8 = true;
  make_model(preset_config("tiny"), directory / "m", options);
  EXPECT_EQ(describe(directory / "m").quantization, "fp8");
  EXPECT_EQ(describe(directory / "m").parameters, count_parameters(preset_config("tiny")).parameters);
}

TEST(Info, DescribesThePublishedModelsFromHeadersAndHoles) {
  TemporaryDirectory directory;
  MakeModelOptions options;
  options.sparse = true;
  const struct {
    const char* name;
    uint64_t parameters, kv, index_keys;
  } cases[] = {{"glm-5.2", 753'329'921'024, 89'856, 5'376},
               {"glm-5", 753'864'119'552, 89'856, 19'968},
               {"deepseek-v3.2", 683'501'956'608, 70'272, 15'616}};
  for (const auto& c : cases) {
    const MadeModel made = make_model(preset_config(c.name), directory / c.name, options);
    const ModelInfo info = describe(directory / c.name);
    EXPECT_EQ(info.parameters, c.parameters) << c.name;
    EXPECT_EQ(made.parameters, c.parameters) << c.name;
    EXPECT_EQ(info.kv_bytes_per_token, c.kv) << c.name;
    EXPECT_EQ(info.index_key_bytes_per_token, c.index_keys) << c.name;
    EXPECT_GT(info.num_files, 200) << c.name;
  }
}

}  // namespace
}  // namespace tidepool::model
