// Files of the published system as the program reads them: what is taken, what is computed, and every refusal with its
// sentence.
#include "cli/published_config.h"

#include <gtest/gtest.h>

#include "base/flags.h"
#include "cli/published_rules.h"

namespace tidepool::testing {
namespace {

using cli::PublishedConfig;

// What the published offload samples say, but for `model_config`.
std::string sample(const std::string& model_config, const std::string& parallel_config = "  embed_tp_size: 32\n",
                   const std::string& top = "world_size: 32\n") {
  return "model_name: \"GLM-5.2\"\nmodel_path: \"/models/GLM-5.2-W8A8\"\nexe_mode: \"npugraph_ex\"\n" + top +
         "model_config:\n" + model_config + "data_config:\n  input_max_len: 4096\n  max_new_tokens: 64\n" +
         "  batch_size: 32\nparallel_config:\n" + parallel_config;
}

PublishedConfig parse(const std::string& text) { return cli::parse_published_config(text, "f.yaml"); }

// The sentence that the file is refused with, by the schema or by the rules; "" when it is not.
std::string refusal(const std::string& text) {
  try {
    const PublishedConfig config = parse(text);
    cli::check_published_rules(config);
    cli::check_one_rank(config);
  } catch (const base::UsageError& error) {
    return error.what();
  }
  return "";
}

void expect_refusals(const std::vector<std::pair<std::string, std::string>>& cases) {
  for (const auto& [text, sentence] : cases) EXPECT_EQ(refusal(text), sentence) << text.substr(0, 500);
}

TEST(PublishedConfig, AFileThatSaysNothingHasThePublishedDefaults) {
  const PublishedConfig c = parse("model_path: m\n");
  EXPECT_EQ(c.exe_mode, "eager");
  EXPECT_EQ(c.world_size, 1);
  EXPECT_FALSE(c.enable_offload || c.shared_indexer_offload || c.enlarge_pool_size);
  EXPECT_TRUE(c.enable_mtp_gather_reuse && c.with_ckpt);
  EXPECT_EQ(c.next_n, 0);
  EXPECT_EQ(c.pa_block_size, 128);
  EXPECT_EQ(c.prefill_mini_batch_size, 0);
  EXPECT_EQ(c.platform_version, "A3");
  EXPECT_EQ(c.dataset, "default");
  EXPECT_EQ(c.dataset_path, "");
  EXPECT_EQ(std::vector<int32_t>({c.input_max_len, c.max_new_tokens, c.batch_size}), std::vector<int32_t>({32, 32, 1}));
  EXPECT_EQ(c.lmhead_tp_size, 1);
  EXPECT_EQ(cli::options_without_effect(c), std::vector<std::string>{});
  EXPECT_EQ(refusal("model_path: m\n"), "");
}

TEST(PublishedConfig, EveryKeyIsReadIntoItsOwnPlace) {
  const PublishedConfig c =
      parse(sample("  enable_offload: True\n  shared_indexer_offload: true\n  next_n: 3\n"
                   "  enable_mtp_gather_reuse: False\n  with_ckpt: false\n"
                   "  pa_block_size: 256\n  platform_version: 950\n"));
  EXPECT_EQ(c.model_name, "GLM-5.2");
  EXPECT_EQ(c.model_path, "/models/GLM-5.2-W8A8");
  EXPECT_EQ(c.exe_mode, "npugraph_ex");
  EXPECT_TRUE(c.enable_offload && c.shared_indexer_offload);
  EXPECT_FALSE(c.enable_mtp_gather_reuse || c.with_ckpt || c.enlarge_pool_size);
  EXPECT_EQ(c.next_n, 3);
  EXPECT_EQ(c.pa_block_size, 256);
  EXPECT_EQ(c.platform_version, "950");
  EXPECT_EQ(c.lmhead_tp_size, 32) << "as embed_tp_size, where nothing else is said";
  EXPECT_TRUE(c.given("next_n"));
  EXPECT_FALSE(c.given("lmhead_tp_size"));
  EXPECT_EQ(c.at("next_n"), "f.yaml:8:11: next_n");
  EXPECT_EQ(c.at("lmhead_tp_size"), "f.yaml: lmhead_tp_size");
}

TEST(PublishedConfig, RelativePathsCountFromTheFolderOfTheFile) {
  const std::string text = "model_path: ../models/demo\ndata_config:\n  dataset_path: d.jsonl\n";
  const PublishedConfig c = cli::parse_published_config(text, "/a/configs/f.yaml");
  EXPECT_EQ(c.model_path, "/a/configs/../models/demo");
  EXPECT_EQ(c.dataset_path, "/a/configs/d.jsonl");
  EXPECT_EQ(parse("model_path: demo\n").model_path, "demo");
}

TEST(PublishedConfig, ComputesWhatThePublishedRunnerComputes) {
  const PublishedConfig c = parse(sample("  next_n: 3\n"));
  EXPECT_EQ(c.pa_max_length(), 4352);  // 4096 + 64 * 4 = 34 blocks of 128
  EXPECT_EQ(c.attn_dp_size(), 32);
  EXPECT_EQ(c.batch_size_per_rank(), 1);
  EXPECT_EQ(c.moe_dp_size(), 32);
  EXPECT_EQ(c.moe_ep_size(), 32);
  EXPECT_EQ(c.embed_dp_size(), 1);
  EXPECT_EQ(c.bs_per_cp_group(), 0);
  EXPECT_EQ(parse(sample("  next_n: 0\n")).pa_max_length(), 4224);  // 4160 is 32.5 blocks
  EXPECT_EQ(parse(sample("  pa_block_size: 256\n")).pa_max_length(), 4352);
  const PublishedConfig split =
      parse(sample("  next_n: 0\n", "  attn_tp_size: 4\n  moe_tp_size: 8\n  embed_tp_size: 16\n"));
  EXPECT_EQ(split.attn_dp_size(), 8);
  EXPECT_EQ(split.batch_size_per_rank(), 4);
  EXPECT_EQ(split.moe_ep_size(), 4);
  EXPECT_EQ(split.embed_dp_size(), 2);
}

TEST(PublishedConfig, ContextParallelPromptsAreCutIntoEqualPieces) {
  PublishedConfig c = parse(sample("  next_n: 0\n", "  cp_size: 32\n  embed_tp_size: 32\n"));
  c.input_max_len = 4000;
  EXPECT_EQ(c.input_len(), 4032);      // a multiple of 64
  EXPECT_EQ(c.pa_max_length(), 4096);  // 4032 + 64
  EXPECT_EQ(c.bs_per_cp_group(), 32);
}

TEST(PublishedConfig, UnknownKeysComeWithTheNearestKnownOne) {
  expect_refusals(
      {{"model_pth: x\n", "f.yaml:1:1: unknown key model_pth at the top; the nearest known one is model_path"},
       {"model_config:\n  enable_ofload: True\n",
        "f.yaml:2:3: unknown key enable_ofload in model_config; the nearest known one is enable_offload"},
       {"data_confg:\n  batch_size: 1\n",
        "f.yaml:1:1: unknown key data_confg at the top; the nearest known one is data_config"},
       {"data_config:\n  next_n: 1\n", "f.yaml:2:3: next_n stands in data_config; it belongs in model_config"},
       {"next_n: 1\n", "f.yaml:1:1: next_n stands at the top; it belongs in model_config"},
       {"model_config:\n  world_size: 1\n", "f.yaml:2:3: world_size stands in model_config; it belongs at the top"}});
}

TEST(PublishedConfig, AKeyMayStandOnce) {
  expect_refusals(
      {{"world_size: 1\nworld_size: 2\n", "f.yaml:2:1: world_size stands here a second time; the first is at 1:13"},
       {"model_config:\n  next_n: 1\n  next_n: 1\n",
        "f.yaml:3:3: next_n stands here a second time; the first is at 2:11"},
       {"data_config: {}\ndata_config: {}\n",
        "f.yaml:2:1: data_config stands here a second time; the first is at 1:1"}});
}

TEST(PublishedConfig, ValuesOfTheWrongKindSayWhatIsWanted) {
  expect_refusals(
      {{"model_config:\n  next_n: three\n", "f.yaml:2:11: next_n three: the value must be an integer, 0 to 3"},
       {"model_config:\n  next_n: 1.0\n", "f.yaml:2:11: next_n 1.0: the value must be an integer, 0 to 3"},
       {"model_config:\n  next_n: \"1\"\n", "f.yaml:2:11: next_n \"1\": the value must be an integer, 0 to 3"},
       {"model_config:\n  next_n: 01\n", "f.yaml:2:11: next_n 01: the value must be an integer, 0 to 3"},
       {"model_config:\n  next_n: +1\n", "f.yaml:2:11: next_n +1: the value must be an integer, 0 to 3"},
       {"model_config:\n  next_n: 4\n", "f.yaml:2:11: next_n 4: the value must be an integer, 0 to 3"},
       {"model_config:\n  next_n: -1\n", "f.yaml:2:11: next_n -1: the value must be an integer, 0 to 3"},
       {"model_config:\n  next_n: [1]\n", "f.yaml:2:11: next_n a list: the value must be an integer, 0 to 3"},
       {"model_config:\n  next_n: {a: 1}\n", "f.yaml:2:11: next_n a map: the value must be an integer, 0 to 3"},
       {"model_config:\n  enable_offload: 1\n", "f.yaml:2:19: enable_offload 1: the value must be True or False"},
       {"model_config:\n  enable_offload: \"True\"\n",
        "f.yaml:2:19: enable_offload \"True\": the value must be True or False"},
       {"model_config:\n  enable_offload: yes\n", "f.yaml:2:19: enable_offload yes: the value must be True or False"},
       {"data_config:\n  batch_size: 99999999999999999999\n",
        "f.yaml:2:15: batch_size 99999999999999999999: the value must be an integer, 1 to 1048576"},
       {"data_config:\n  input_max_len: 0\n",
        "f.yaml:2:18: input_max_len 0: the value must be an integer, 1 to 1073741824"},
       {"model_config:\n  pa_block_size: 64\n",
        "f.yaml:2:18: pa_block_size 64: the value must be one of the integers 128, 256"},
       {"exe_mode: graph\n", "f.yaml:1:11: exe_mode graph: the value must be one of eager, npugraph_ex, ge_graph"},
       {"data_config:\n  dataset: Wiki\n",
        "f.yaml:2:12: dataset Wiki: the value must be one of default, LongBench, InfiniteBench"},
       {"model_path: [a]\n", "f.yaml:1:13: model_path a list: the value must be a text of one line"},
       {"model_path: \"a\\0b\"\n", "f.yaml:1:13: model_path \"a\\x00b\": the value must be a text of one line"},
       {"model_config: 3\n", "f.yaml:1:15: model_config 3: the value must be a map"},
       {"model_config:\n  - next_n\n", "f.yaml:2:3: model_config a list: the value must be a map"},
       {"- next_n\n", "f.yaml:1:1: the file is a list, not a map of options"},
       {"next_n\n", "f.yaml:1:1: the file is a text, not a map of options"}});
  EXPECT_NE(refusal("model_config:\n  next_n:\n").find("next_n no value: the value must be an integer"),
            std::string::npos);
  EXPECT_EQ(refusal("data_config:\n  dataset_path:\n"), "") << "no value is the empty path";
}

TEST(PublishedConfig, WhatIsNoYamlOrMoreThanIsNeededIsRefused) {
  const std::string not_available = " not available in a configuration";
  expect_refusals(
      {{"", "f.yaml: there is no option in it"},
       {"# nothing\n", "f.yaml: there is no option in it"},
       {"---\n...\n", "f.yaml: there is no option in it"},
       {"model_path: 'm\nworld_size: 2\n", "f.yaml:4:1: not YAML: illegal document indicator in scalar"},
       {"{model_path: m\n", "f.yaml:1:1: a map is a key here, or is not closed; a key must be a text"},
       {"a: b: c\n", "f.yaml:1:5: not YAML: illegal map value"},
       {"model_path: m\n---\nmodel_path: n\n", "f.yaml:2:1: a second document begins; a configuration is one document"},
       {"model_path: &p m\n", "f.yaml:1:13: anchors (&name) are" + not_available},
       {"<<: {model_path: m}\n", "f.yaml:1:1: merge keys (<<) are" + not_available + "; write the values out"},
       {"model_path: !!str m\n", "f.yaml:1:13: the tag tag:yaml.org,2002:str: tags are" + not_available},
       {"[a, b]: m\n", "f.yaml:1:1: a list is a key here, or is not closed; a key must be a text"},
       {std::string("model_path: m\nx\0y: 1\n", 21), "f.yaml:2:2: not a text in UTF-8: byte 0x00"},
       {"\xff\xfe"
        "m",
        "f.yaml:1:1: not a text in UTF-8: byte 0xff"},
       {"model_path: m\nx: \x1b[2J\n", "f.yaml:2:4: not a text in UTF-8: byte 0x1b"}});
}

TEST(PublishedConfig, DeepAndLongFilesAreRefusedAtOnce) {
  EXPECT_EQ(refusal(std::string(10 << 20, '[')),
            "f.yaml: 10485760 bytes, more than the 64.0 KiB that a configuration may have");
  for (const char* part : {"[", "{", "- ", "? ", "[a,", "a: ", "{a: "}) {
    std::string text;
    while (text.size() < (64 << 10) - 8) text += part;
    EXPECT_NE(refusal(text), "") << part;
  }
  EXPECT_EQ(refusal("a: [[[[[[[[[1]]]]]]]]]\n"), "f.yaml:1:11: nested deeper than the 8 levels that are read");
}

TEST(PublishedRules, OffloadOptionsThatTheRunnerWouldIgnoreAreRefused) {
  expect_refusals(
      {{"model_config:\n  shared_indexer_offload: True\n",
        "f.yaml:2:27: shared_indexer_offload True: needs enable_offload True; the published runner ignores it "
        "otherwise"},
       {"model_config:\n  enable_offload: True\n  enlarge_pool_size: True\n",
        "f.yaml:3:22: enlarge_pool_size True: needs shared_indexer_offload True, the only route with a pool; the "
        "published runner ignores it otherwise"},
       {"model_config:\n  enable_offload: True\n  shared_indexer_offload: True\n  pa_block_size: 256\n",
        "f.yaml:4:18: pa_block_size 256: with shared_indexer_offload it is at most 128, as the published operators "
        "take "
        "no larger block"}});
  EXPECT_EQ(refusal("model_config:\n  enable_offload: True\n  pa_block_size: 256\n"), "");
  EXPECT_EQ(refusal("model_config:\n  pa_block_size: 256\n"), "");
}

TEST(PublishedRules, EagerExcludesWhatNeedsAGraph) {
  for (const std::string key : {"enable_multi_streams", "enable_cache_compile", "enable_superkernel"}) {
    const std::string options = "model_config:\n  " + key + ": True\n";
    EXPECT_NE(refusal("exe_mode: eager\n" + options).find(key + " True: exe_mode eager excludes it"),
              std::string::npos);
    for (const std::string mode : {"npugraph_ex", "ge_graph"})
      EXPECT_EQ(refusal("exe_mode: " + mode + "\n" + options), "");
  }
}

TEST(PublishedRules, AMiniBatchDividesTheBatchAndThatOfEachRank) {
  const auto text = [](const std::string& ranks, const std::string& part, const std::string& batch) {
    return "world_size: " + ranks + "\nmodel_config:\n  prefill_mini_batch_size: " + part +
           "\ndata_config:\n  batch_size: " + batch + "\n";
  };
  EXPECT_EQ(refusal(text("1", "3", "32")), "f.yaml:3:28: prefill_mini_batch_size 3: it must divide batch_size 32");
  EXPECT_EQ(refusal(text("1", "64", "32")), "f.yaml:3:28: prefill_mini_batch_size 64: it must divide batch_size 32");
  EXPECT_EQ(
      refusal(text("16", "4", "32")),
      "f.yaml:3:28: prefill_mini_batch_size 4: it must divide the batch of a rank, 2 (batch_size 32 over 16 ranks)");
  EXPECT_EQ(refusal(text("1", "4", "32")), "");
  EXPECT_EQ(refusal(text("1", "0", "31")), "");
}

TEST(PublishedRules, ParallelSizesFitEachOther) {
  const auto text = [](const std::string& sizes) { return sample("  next_n: 0\n", sizes); };
  for (const std::string key : {"attn", "oproj", "moe", "embed", "lmhead", "dense"}) {
    EXPECT_NE(refusal(text("  " + key + "_tp_size: 3\n")).find(key + "_tp_size 3: it must divide world_size 32"),
              std::string::npos);
  }
  const std::string embed = "  embed_tp_size: 32\n";
  expect_refusals({{text(embed + "  attn_tp_size: 2\n  oproj_tp_size: 4\n"),
                    "f.yaml:14:18: oproj_tp_size 4: it must be 1 when attn_tp_size is above 1; that is 2"},
                   {text("  embed_tp_size: 2\n  attn_tp_size: 4\n"),
                    "f.yaml:12:18: embed_tp_size 2: it must be a multiple of attn_tp_size 4"},
                   {text(embed + "  cp_size: 16\n"), "f.yaml:13:12: cp_size 16: it must be 1 or world_size 32"},
                   {text(embed + "  cp_size: 32\n  attn_tp_size: 2\n"),
                    "f.yaml:13:12: cp_size 32: it must be 1 when attn_tp_size is above 1; that is 2"},
                   {"world_size: 32\ndata_config:\n  batch_size: 33\n",
                    "f.yaml:3:15: batch_size 33: it must be a multiple of world_size / attn_tp_size, 32"}});
}

TEST(PublishedRules, OneRankIsAvailable) {
  const std::string one_rank = "one rank is available, more are not yet; it must be 1";
  EXPECT_EQ(refusal(sample("  next_n: 3\n")), "f.yaml:4:13: world_size 32: " + one_rank);
  EXPECT_EQ(refusal(sample("  next_n: 3\n  with_ckpt: False\n")), "f.yaml:4:13: world_size 32: " + one_rank);
  EXPECT_EQ(refusal("model_config:\n  with_ckpt: False\n"),
            "f.yaml:2:14: with_ckpt False: weights come from model_path; tidepool make-model writes random ones");
  EXPECT_EQ(refusal("data_config:\n  batch_size: 4097\n"),
            "f.yaml:2:15: batch_size 4097: at most 4096 requests run at once");
}

TEST(PublishedRules, OptionsOfOtherMachinesAreNamedWhenTheyAreSet) {
  const PublishedConfig c =
      parse(sample("  prefill_mini_batch_size: 1\n  platform_version: \"950\"\n  enable_weight_nz: True\n"
                   "  perfect_eplb: False\n  enable_superkernel: True\n  with_ckpt: True\n"));
  EXPECT_EQ(cli::options_without_effect(c), (std::vector<std::string>{"prefill_mini_batch_size", "enable_weight_nz",
                                                                      "enable_superkernel", "platform_version"}));
}

TEST(PublishedRules, TheLargePoolIsTwiceTheOther) {
  EXPECT_EQ(cli::published_pool_size(parse("model_config:\n  shared_indexer_offload: True\n")), 8192);
  EXPECT_EQ(cli::published_pool_size(parse("model_config:\n  enlarge_pool_size: True\n")), 16384);
}

}  // namespace
}  // namespace tidepool::testing
