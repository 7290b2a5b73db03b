// The program with files of the published system: the samples of configs/, options that win over the file, data sets,
// and what is reported of the timed run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/dataset.h"
#include "program.h"

namespace tidepool::testing {
namespace {

using Arguments = std::vector<std::string>;
using base::Json;
namespace fs = std::filesystem;

const std::string kSource = std::getenv("TIDEPOOL_SOURCE_DIR") != nullptr ? std::getenv("TIDEPOOL_SOURCE_DIR") : ".";
const Arguments kSamples{"glm_5_2_offload", "glm_5_2_offload_mtp", "glm_5_2_ci_a3", "glm_5_2_ci_950"};

std::string sample_path(const std::string& name) { return kSource + "/configs/" + name + ".yaml"; }

std::string sample(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(sample_path(name)).rdbuf();
  return text.str();
}

// `text` with the value of `key` replaced, which must be there.
std::string with(std::string text, const std::string& key, const std::string& value) {
  const size_t at = text.find(key + ": ");
  EXPECT_NE(at, std::string::npos) << key;
  const size_t end = text.find('\n', at);
  return text.replace(at, end - at, key + ": " + value);
}

// What a user with one rank changes.
std::string on_one_rank(std::string text, const std::string& model) {
  text = with(with(text, "model_path", model), "world_size", "1");
  return with(with(text, "embed_tp_size", "1"), "lmhead_tp_size", "1");
}

// A file for the tiny model; `model_config` and `data_config` are the lines of these sections.
std::string tiny_config(const std::string& model_config, const std::string& data_config, const std::string& top = "") {
  return "model_path: " + tiny_model() + "\n" + top + "model_config:\n  with_ckpt: True\n" + model_config +
         "data_config:\n  dataset: default\n" + data_config;
}

Arguments generate(const std::string& config, const Arguments& more = {}) {
  Arguments arguments{"generate", "--config", config, "--ignore-eos", "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Json run_json(const Arguments& arguments) {
  const ProgramResult result = run_program(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.json();
}

TEST(CliConfig, UnchangedSamplesAreRefusedForTheirRanksBeforeTheModelIsLookedFor) {
  for (const std::string& name : kSamples) {
    expect_refused(generate(sample_path(name)), 2, {name + ".yaml", "world_size 32", "one rank is available"});
  }
}

TEST(CliConfig, TheOffloadSamplesRunOnOneRank) {
  const TemporaryFolder folder;
  for (const bool has_drafts : {false, true}) {
    const std::string name = has_drafts ? "glm_5_2_offload_mtp" : "glm_5_2_offload";
    const std::string config = folder.file(name, on_one_rank(sample(name), kSource + "/models/demo"));
    const ProgramResult result = run_program(generate(config, {"--batch", "3", "--max-tokens", "40"}));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const Json out = result.json();
    EXPECT_EQ(out.at("offload").at("route").as_string(), has_drafts ? "select" : "gather");
    EXPECT_EQ(out.at("requests").as_array().size(), 3u);
    EXPECT_EQ(out.at("generated_tokens").as_int(), 40);
    const Json& published = out.at("published");
    EXPECT_EQ(published.at("exe_mode").as_string(), "npugraph_ex");
    EXPECT_EQ(published.at("pool_size").as_int(), has_drafts ? 8192 : 0);
    EXPECT_EQ(published.at("num_draft_tokens").as_int(), has_drafts ? 3 : 0);
    EXPECT_EQ(published.at("batch").as_int(), 3);
    EXPECT_EQ(published.at("assumed_accept_length").as_double(), has_drafts ? 2.7 : 1.0);
    EXPECT_EQ(published.at("accept_length").as_double(), out.at("accept_length").as_double());
    EXPECT_EQ(published.at("decoding_requests").as_int(), 3);
    EXPECT_GT(published.at("latency_ms").as_double(), 0);
    EXPECT_GT(published.at("measured_tokens_per_s").as_double(), 0);
    const std::string line =
        "no effect on this device: prefill_mini_batch_size, enable_weight_nz, enable_multi_streams, "
        "enable_online_split_weight\n";
    EXPECT_NE(result.err.find(line), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find(line), result.err.rfind(line)) << "once";
  }
}

TEST(CliConfig, OffloadSamplesKeepRowsInHostMemory) {
  const TemporaryFolder folder;
  for (const std::string name : {"glm_5_2_offload", "glm_5_2_offload_mtp"}) {
    const std::string config = folder.file(name, on_one_rank(sample(name), kSource + "/models/demo"));
    const Json out = run_json(generate(config, {"--batch", "2", "--max-tokens", "4"}));
    EXPECT_GT(out.at("offload").at("host_kv_bytes").as_int(), 0) << name;
  }
}

TEST(CliConfig, DraftsOfTheSampleAreAcceptedAndChangeNoText) {
  const TemporaryFolder folder;
  const std::string config =
      folder.file("f.yaml", on_one_rank(sample("glm_5_2_offload_mtp"), kSource + "/models/demo"));
  const Arguments more{"--batch", "2", "--max-tokens", "40"};
  const Json drafted = run_json(generate(config, more));
  Arguments plain = more;
  plain.insert(plain.end(), {"--num-draft-tokens", "0", "--exec", "eager"});
  EXPECT_EQ(drafted.at("generated_ids").dump(), run_json(generate(config, plain)).at("generated_ids").dump());
  EXPECT_GT(drafted.at("accept_length").as_double(), 1.05);
}

TEST(CliConfig, SamplesWithOtherParallelSizesAreRefusedByTheirNames) {
  const TemporaryFolder folder;
  std::string text = on_one_rank(sample("glm_5_2_ci_a3"), tiny_model());
  expect_refused(generate(folder.file("f.yaml", text)), 2, {"oproj_tp_size 16", "world_size 1"});
  text = with(text, "oproj_tp_size", "1");
  expect_refused(generate(folder.file("f.yaml", text)), 2, {"dense_tp_size 16", "world_size 1"});
  text = with(text, "dense_tp_size", "1");
  EXPECT_EQ(run_program(generate(folder.file("f.yaml", text), {"--prompt", "x"})).exit_code, 0);
  const std::string other = folder.file("g.yaml", on_one_rank(sample("glm_5_2_ci_950"), tiny_model()));
  expect_refused(generate(other), 2, {"dataset InfiniteBench", "dataset_path"});
  const ProgramResult result = run_program(generate(other, {"--prompt", "x", "--batch", "1"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("platform_version"), std::string::npos) << result.err;
  EXPECT_EQ(result.json().at("offload").at("route").as_string(), "off");
}

TEST(CliConfig, OptionsOnTheCommandLineWin) {
  const TemporaryFolder folder;
  const std::string config = folder.file(
      "f.yaml", tiny_config("  enable_offload: True\n  shared_indexer_offload: True\n  enlarge_pool_size: True\n",
                            "  max_new_tokens: 6\n  batch_size: 2\n", "exe_mode: ge_graph\n"));
  const Json file = run_json(generate(config)),
             other = run_json(
                 generate(config, {"--offload", "gather", "--exec", "eager", "--batch", "1", "--max-tokens", "3"}));
  EXPECT_EQ(file.at("published").at("exe_mode").as_string(), "ge_graph");
  EXPECT_EQ(file.at("offload").at("pool_size").as_int(), 16384);
  EXPECT_EQ(file.at("generated_tokens").as_int(), 6);
  EXPECT_EQ(file.at("requests").as_array().size(), 2u);
  EXPECT_EQ(other.at("published").at("exe_mode").as_string(), "eager");
  EXPECT_EQ(other.at("offload").at("route").as_string(), "gather");
  EXPECT_EQ(other.at("generated_tokens").as_int(), 3);
  EXPECT_EQ(other.find("requests"), nullptr);
  EXPECT_EQ(run_json(generate(config, {"--pool-size", "16"})).at("offload").at("pool_size").as_int(), 16);
}

TEST(CliConfig, TheWarmUpIsNotCounted) {
  const TemporaryFolder folder;
  const std::string config =
      folder.file("f.yaml", tiny_config("  enable_offload: True\n  shared_indexer_offload: True\n", ""));
  const std::string prompt(100, 'a');
  const Arguments same{"--prompt", prompt, "--max-tokens", "20", "--pool-size", "16"};
  const Json with_file = run_json(generate(config, same));
  Arguments plain{"generate", "--model", tiny_model(), "--offload", "select", "--ignore-eos", "--json"};
  plain.insert(plain.end(), same.begin(), same.end());
  const Json without = run_json(plain);
  EXPECT_EQ(with_file.at("generated_ids").dump(), without.at("generated_ids").dump());
  EXPECT_GT(without.at("offload").at("misses").as_int(), 0);
  for (const char* count : {"hits", "misses", "window", "installed_rows", "spilled_bytes"}) {
    EXPECT_EQ(with_file.at("offload").at(count).as_int(), without.at("offload").at(count).as_int()) << count;
  }
  EXPECT_EQ(without.find("published"), nullptr);
}

TEST(CliConfig, ComparesWithTheRunWithoutOffload) {
  const TemporaryFolder folder;
  const std::string config = folder.file(
      "f.yaml", tiny_config("  enable_offload: True\n  next_n: 2\n", "  batch_size: 2\n  max_new_tokens: 20\n"));
  const Json out = run_json(generate(config, {"--compare-offload"}));
  EXPECT_TRUE(out.at("compare").at("identical").as_bool());
}

TEST(CliConfig, AModelThatIsMissingOrW8A8IsRefused) {
  const TemporaryFolder folder;
  expect_refused(generate(folder.file("a.yaml", "world_size: 1\n")), 2, {"a.yaml", "model_path", "--model DIR"});
  expect_refused(generate(folder.file("b.yaml", "model_path: gone\n")), 2,
                 {"b.yaml:1:13: model_path " + folder.path() + "/gone", "no such directory"});
  fs::create_directory(folder.path() + "/w8a8");
  folder.file("w8a8/config.json", R"({"quantization_config": {"quant_method": "compressed-tensors"}})");
  expect_refused(generate(folder.file("c.yaml", "model_path: w8a8\n")), 2,
                 {"c.yaml:1:13: model_path", "W8A8 checkpoints are not available yet"});
}

TEST(CliConfig, AModelPathCountsFromTheFolderOfTheFile) {
  const TemporaryFolder folder;
  fs::create_directory_symlink(tiny_model(), folder.path() + "/here");
  const std::string config = folder.file("f.yaml", "model_path: here\n");
  EXPECT_EQ(run_json(generate(config, {"--max-tokens", "2"})).at("generated_tokens").as_int(), 2);
}

TEST(CliConfig, ARequestThatTheModelCannotHoldIsRefusedWithTheNumbers) {
  const TemporaryFolder folder;
  const std::string config = folder.file("f.yaml", tiny_config("", "  input_max_len: 65536\n"));
  expect_refused(generate(config), 2, {"f.yaml:6:18: input_max_len 65536", "65664 positions", "65536"});
  EXPECT_EQ(run_program(generate(config, {"--max-model-len", "400"})).exit_code, 0);
}

TEST(CliConfig, OtherCommandsTakeTheOptionsThatTheyShare) {
  const TemporaryFolder folder;
  const std::string config = folder.file(
      "f.yaml", tiny_config("  enable_offload: True\n  shared_indexer_offload: True\n  perfect_eplb: True\n",
                            "  batch_size: 2\n"));
  const std::string ids = folder.file("ids.json", "[1, 2, 3]"), no_effect = "no effect on this device: perfect_eplb\n";
  const ProgramResult dump = run_program(
      {"dump", "--config", config, "--ids", ids, "--num-tokens", "2", "--out", folder.path() + "/out.safetensors"});
  EXPECT_EQ(dump.exit_code, 0) << dump.err;
  EXPECT_NE(dump.err.find(no_effect), std::string::npos) << dump.err;
  for (const std::string kind : {"decode", "prefill", "ops"}) {
    expect_refused({"bench", kind, "--config", sample_path(kSamples[0])}, 2, {"world_size 32"});
  }
}

// Data sets. A byte of text is a token of the tiny model.

const size_t kSystemTokens = cli::system_prompt().size();

std::string dataset_config(const TemporaryFolder& folder, const std::string& dataset, size_t input_max_len,
                           const std::string& batch, const std::string& path = "d.jsonl") {
  std::string text = tiny_config("", "  dataset_path: " + path + "\n  input_max_len: " + std::to_string(input_max_len) +
                                         "\n  batch_size: " + batch + "\n");
  return folder.file("f.yaml", with(text, "dataset", dataset));
}

std::vector<int64_t> prompt_lengths(const Json& out) {
  std::vector<int64_t> lengths;
  for (const Json& request : out.at("requests").as_array()) lengths.push_back(request.at("prompt_tokens").as_int());
  return lengths;
}

TEST(CliDataset, ContextsAreCutBehindTheSystemPrompt) {
  const TemporaryFolder folder;
  folder.file("d.jsonl", R"({"context": "abc"})"
                         "\n\n"
                         R"({"input": 1, "context": "defghijklmn"})"
                         "\n");
  for (const std::string dataset : {"LongBench", "InfiniteBench"}) {
    const std::string config = dataset_config(folder, dataset, kSystemTokens + 5, "2");
    const Json out = run_json(generate(config, {"--max-tokens", "3"}));
    const auto tokens = static_cast<int64_t>(kSystemTokens);
    EXPECT_EQ(prompt_lengths(out), (std::vector<int64_t>{tokens + 3, tokens + 5}));
    const std::string prompt = std::string(cli::system_prompt()) + "defgh";
    const Json same = run_json(generate(config, {"--max-tokens", "3", "--prompt", prompt, "--batch", "1"}));
    EXPECT_EQ(out.at("requests").as_array()[1].at("generated_ids").dump(), same.at("generated_ids").dump());
  }
}

TEST(CliDataset, FewerPromptsThanTheBatchAreRepeated) {
  const TemporaryFolder folder;
  folder.file("d.jsonl", R"({"context": "a"})"
                         "\n"
                         R"({"context": "bc"})");
  const Json out = run_json(generate(dataset_config(folder, "LongBench", 1000, "5"), {"--max-tokens", "2"}));
  const auto tokens = static_cast<int64_t>(kSystemTokens);
  EXPECT_EQ(prompt_lengths(out), (std::vector<int64_t>{tokens + 1, tokens + 2, tokens + 1, tokens + 2, tokens + 1}));
}

TEST(CliDataset, DefaultPromptsAreCutAndNotFilledUp) {
  const TemporaryFolder folder;
  const auto first = static_cast<int64_t>(cli::default_prompts()[0].size());
  const std::string config = folder.file("f.yaml", tiny_config("", "  input_max_len: 90\n  batch_size: 9\n"));
  const std::vector<int64_t> lengths = prompt_lengths(run_json(generate(config, {"--max-tokens", "2"})));
  ASSERT_EQ(lengths.size(), 9u);
  EXPECT_EQ(lengths[0], first);
  EXPECT_EQ(lengths[8], first) << "the ninth is the first again";
  EXPECT_EQ(*std::max_element(lengths.begin(), lengths.end()), 90);
}

TEST(CliDataset, AListOfTextsTakesThePlaceOfTheDefaultPrompts) {
  const TemporaryFolder folder;
  folder.file("list.json", R"(["one", "three"])");
  const Json out = run_json(generate(dataset_config(folder, "default", 4, "2", "list.json"), {"--max-tokens", "2"}));
  EXPECT_EQ(prompt_lengths(out), (std::vector<int64_t>{3, 4}));
  folder.file("list.json", R"(["one", 2])");
  expect_refused(generate(dataset_config(folder, "default", 4, "2", "list.json")), 1, {"list.json", "item 1"});
}

TEST(CliDataset, BadLinesAreNamed) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& bytes, const Arguments& parts) {
    folder.file("d.jsonl", bytes);
    expect_refused(generate(dataset_config(folder, "LongBench", 1000, "5")), 1, parts);
  };
  const std::string good = R"({"context": "a"})"
                           "\n";
  refused(good + "{\"context\": \"b\"\n", {"d.jsonl:2"});
  refused(good + "\n[1]\n", {"d.jsonl:3", "must be an object"});
  refused(good + R"({"text": "b"})", {"d.jsonl:2", "no \"context\""});
  refused(good + R"({"context": 3})", {"d.jsonl:2", "must be a text", "integer"});
  refused(good + R"({"context": ""})", {"d.jsonl:2", "is empty"});
  refused(good + "{\"context\": \"\xff\"}", {"d.jsonl:2"});
  refused("\n \n", {"d.jsonl", "no line"});
  folder.file("d.jsonl", good + "nonsense\n");
  EXPECT_EQ(run_program(generate(dataset_config(folder, "LongBench", 1000, "1"))).exit_code, 0)
      << "only as many lines as the batch wants are read";
}

TEST(CliDataset, PathsAndLengthsThatCannotBeAreRefused) {
  const TemporaryFolder folder;
  expect_refused(generate(dataset_config(folder, "LongBench", 1000, "1", "gone.jsonl")), 2,
                 {"f.yaml", "dataset_path " + folder.path() + "/gone.jsonl", "no such file"});
  expect_refused(generate(dataset_config(folder, "LongBench", 1000, "1", ".")), 2, {"dataset_path", "a directory"});
  folder.file("d.jsonl", R"({"context": "a"})");
  expect_refused(generate(dataset_config(folder, "LongBench", kSystemTokens - 1, "1")), 2,
                 {"input_max_len " + std::to_string(kSystemTokens - 1), std::to_string(kSystemTokens) + " tokens"});
}

}  // namespace
}  // namespace tidepool::testing
