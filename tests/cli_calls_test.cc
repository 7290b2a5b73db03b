// Wrong calls of the program: every one is refused with one sentence that says what, which value and which limit.
#include <gtest/gtest.h>

#include "program.h"

namespace tidepool::testing {
namespace {

using Arguments = std::vector<std::string>;

Arguments generate(const Arguments& more) {
  Arguments arguments{"generate", "--model", tiny_model()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(CliHelp, EveryCommandHasOneThatNamesTypesAndDefaults) {
  for (const Arguments& command : {Arguments{"info"},
                                   {"generate"},
                                   {"dump"},
                                   {"tokenize"},
                                   {"detokenize"},
                                   {"make-model"},
                                   {"bench", "decode"},
                                   {"bench", "prefill"},
                                   {"bench", "ops"},
                                   {"bench", "drafts"}}) {
    Arguments arguments = command;
    arguments.push_back("--help");
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
    EXPECT_NE(result.out.find("usage: tidepool " + command[0]), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("switch; default off"), std::string::npos) << result.out;
  }
  EXPECT_NE(run_program({"--help"}).out.find("make-model"), std::string::npos);
  EXPECT_EQ(run_program({"--version"}).out.find("tidepool 0."), 0u);
}

TEST(CliHelp, SharedOptionsStandInEveryCommandThatRunsAModel) {
  for (const Arguments& command : {Arguments{"generate"},
                                   {"dump"},
                                   {"bench", "decode"},
                                   {"bench", "prefill"},
                                   {"bench", "ops"},
                                   {"bench", "drafts"}}) {
    Arguments arguments = command;
    arguments.push_back("--help");
    const std::string help = run_program(arguments).out;
    for (const char* option :
         {"--model", "--device", "--dtype", "--threads", "--max-model-len", "--max-num-seqs", "--block-size",
          "--offload", "--pool-size", "--num-ways", "--policy", "--host-kv-dtype", "--num-draft-tokens", "--exec",
          "--device-kv-gib", "--host-kv-gib", "--seed", "--config"}) {
      EXPECT_NE(help.find(option), std::string::npos) << option << " of " << command[0];
    }
  }
}

TEST(CliRefusals, UnknownNamesComeWithTheNearestKnownOne) {
  expect_refused({"genrate"}, 2, {"genrate", "generate"});
  expect_refused({"generate", "--modl", "x"}, 2, {"--modl", "--model"});
  expect_refused({"dump", "--num-token", "3"}, 2, {"--num-tokens"});
  expect_refused({"bench", "everything"}, 2, {"decode, prefill, ops, drafts"});
  expect_refused({}, 2, {"command"});
}

TEST(CliRefusals, ValuesOutOfRangeNameOptionValueAndLimit) {
  expect_refused(generate({"--max-tokens", "0"}), 2, {"--max-tokens 0", "1 to"});
  expect_refused(generate({"--temperature", "-1"}), 2, {"--temperature -1", "0 to 100"});
  expect_refused(generate({"--top-p", "0"}), 2, {"--top-p 0", "above 0"});
  expect_refused(generate({"--latent-norm-eps", "0"}), 2, {"--latent-norm-eps 0", "above 0"});
  expect_refused(generate({"--block-size", "100"}), 2, {"--block-size 100", "128, 256"});
  expect_refused(generate({"--pool-size", "1000"}), 2, {"--pool-size 1000", "--num-ways 16", "512", "1024"});
  expect_refused(generate({"--dtype", "float16"}), 2, {"--dtype float16", "float32, bfloat16, auto"});
  expect_refused(generate({"--host-kv-dtype", "int4"}), 2, {"--host-kv-dtype int4", "bf16, fp32, int8, fp8"});
  expect_refused(generate({"--num-draft-tokens", "4"}), 2, {"--num-draft-tokens 4", "0 to 3"});
  expect_refused(generate({"--exec", "graph"}), 2, {"--exec graph", "eager, capture, compile"});
  expect_refused(generate({"--compare-offload"}), 2, {"--compare-offload", "--offload"});
  expect_refused(generate({"--prompt", "a", "--prompt-file", "/dev/null"}), 2, {"exclude each other"});
}

TEST(CliRefusals, WhatComesLaterIsRefusedByName) {
  const std::string later = "not available yet";
  for (const Arguments& more : {Arguments{"--offload", "direct"},
                                {"--policy", "lru"},
                                {"--policy", "clock"},
                                {"--policy", "fifo-skip"},
                                {"--device", "cuda"},
                                {"--device", "ascend"},
                                {"--record-topk", "x"},
                                {"--chat"}}) {
    expect_refused(generate(more), 2, {more[0], later});
  }
  for (const char* command : {"convert", "trace", "size", "chat", "server"})
    expect_refused({command}, 2, {command, later});
  expect_refused({"bench", "experiment"}, 2, {"experiment", later});
}

TEST(CliRefusals, MissingFilesAreNamedBeforeAnyWork) {
  expect_refused({"info", "--model", "/nowhere/model"}, 2, {"--model /nowhere/model", "No such file"});
  expect_refused(generate({"--prompt-file", "/nowhere/prompt"}), 2, {"--prompt-file /nowhere/prompt", "No such file"});
  expect_refused(generate({"--prompt-ids", "/nowhere/ids.json"}), 2, {"--prompt-ids /nowhere/ids.json"});
  expect_refused(generate({"--timeline", "/nowhere/t.json"}), 2, {"--timeline", "/nowhere"});
  expect_refused(generate({"--config", "/nowhere/f.yaml"}), 2, {"--config /nowhere/f.yaml", "No such file"});
  expect_refused(generate({"--config", "/usr"}), 2, {"--config /usr", "a directory"});
  expect_refused({"info"}, 2, {"--model DIR is required"});
  expect_refused({"generate"}, 2, {"--model DIR is required"});
  expect_refused({"info", "--model", "/usr"}, 1, {"/usr", "config.json"});
}

TEST(CliRefusals, PromptsThatAreNoTextSayWhere) {
  const TemporaryFolder folder;
  const std::string bad = folder.file("bad.txt", "good\xff");
  expect_refused(generate({"--prompt-file", bad}), 1, {bad, "not UTF-8", "offset 4"});
  expect_refused(generate({}), 1, {"standard input", "offset 1"}, "a\xc3(");
  expect_refused(generate({}), 1, {"standard input", "empty"}, "");
  expect_refused({"tokenize", "--model", tiny_model(), "--file", bad}, 1, {bad, "offset 4"});
}

TEST(CliRefusals, PromptsThatDoNotFitSayHowLongTheyAre) {
  expect_refused(generate({"--prompt", "0123456789", "--max-model-len", "12", "--max-tokens", "3"}), 2,
                 {"--max-model-len 12", "10 tokens", "13 together"});
  expect_refused(generate({"--prompt", "x", "--max-tokens", "1000000000"}), 2, {"maximum", "1000000000"});
}

TEST(CliRefusals, IdsOutsideTheVocabularyAreNamed) {
  const TemporaryFolder folder;
  const std::string ids = folder.file("ids.json", "[1, 2, 123456]"), negative = folder.file("negative.json", "[-1]");
  expect_refused(generate({"--prompt-ids", ids}), 1, {ids, "id number 2 is 123456", "outside the vocabulary"});
  expect_refused(generate({"--prompt-ids", negative}), 1, {negative, "id number 0 is -1"});
  expect_refused({"dump", "--model", tiny_model(), "--ids", ids, "--num-tokens", "1", "--out", folder.path() + "/x"}, 1,
                 {"123456"});
  expect_refused({"detokenize", "--model", tiny_model(), "--ids", ids}, 1, {"123456"});
  expect_refused(generate({"--prompt-ids", folder.file("no.json", "{\"ids\": \"x\"}")}), 1, {"no.json", "array"});
}

}  // namespace
}  // namespace tidepool::testing
