// Right calls of the program on a made model: what they print, what they write, and what they leave behind when the
// disk is full or someone interrupts.
#include <gtest/gtest.h>

#include <cstring>

#include "model/safetensors.h"
#include "program.h"

namespace tidepool::testing {
namespace {

using Arguments = std::vector<std::string>;
using base::Json;

const std::string kPrompt = "In the beginning was a long line of text, and the text was about 80 tokens long.";

ProgramResult generate(const Arguments& more, const ProgramOptions& options = {}) {
  Arguments arguments{"generate", "--model", tiny_model(), "--ignore-eos"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments, options);
}

void expect_keys(const Json& object, const Arguments& keys) {
  for (const std::string& key : keys) EXPECT_NE(object.find(key), nullptr) << key << " is missing in " << object.dump();
}

TEST(CliInfo, PrintsOneObjectWithTheContractsKeys) {
  const ProgramResult result = run_program({"info", "--model", tiny_model(), "--json"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  expect_keys(result.json(),
              {"architecture", "num_layers", "indexer_types", "layer_groups", "parameters", "weight_bytes", "row_bytes",
               "kv_bytes_per_token", "index_key_bytes_per_token", "mtp_layers", "quantization"});
}

TEST(CliTokenize, AndDetokenizeGiveTheTextBack) {
  const TemporaryFolder folder;
  const ProgramResult ids = run_program({"tokenize", "--model", tiny_model(), "--text", "h\xc3\xa4llo", "--json"});
  EXPECT_EQ(ids.json().at("ids").as_array().size(), 6u);
  const std::string file = folder.file("ids.json", ids.out);
  EXPECT_EQ(run_program({"detokenize", "--model", tiny_model(), "--ids", file, "--json"}).json().at("text").as_string(),
            "h\xc3\xa4llo");
  EXPECT_EQ(run_program({"tokenize", "--model", tiny_model()}, {.input = "hi"}).out, "[104,105]\n");
}

TEST(CliMakeModel, TheSameSeedGivesTheSameBytesAndAnotherSeedOthers) {
  const TemporaryFolder folder;
  std::vector<std::string> files;
  for (const char* seed : {"5", "5", "6"}) {
    const std::string out = folder.path() + "/" + std::to_string(files.size());
    const Json made = run_program({"make-model", "--preset", "tiny", "--seed", seed, "--out", out, "--json"}).json();
    expect_keys(made, {"parameters", "bytes"});
    const model::MappedFile file(out + "/model.safetensors");
    EXPECT_EQ(static_cast<int64_t>(file.size()), made.at("bytes").as_int());
    files.emplace_back(reinterpret_cast<const char*>(file.data()), file.size());
  }
  EXPECT_EQ(files[0], files[1]);
  EXPECT_NE(files[0], files[2]);
}

TEST(CliGenerate, PrintsOneObjectWithTheContractsKeys) {
  const ProgramResult result = generate({"--prompt", kPrompt, "--max-tokens", "8", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json out = result.json();
  expect_keys(out, {"prompt_tokens", "generated_tokens", "generated_ids", "text", "finish_reason", "prefill_ms",
                    "decode_ms", "ms_per_token", "tokens_per_s", "accept_length", "offload"});
  expect_keys(out.at("offload"),
              {"route", "pool_size", "policy", "hit_rate", "hits", "misses", "window", "fetched_bytes",
               "installed_rows", "device_kv_bytes", "host_kv_bytes", "groups", "row_dtype", "row_bytes"});
  EXPECT_EQ(out.at("offload").at("row_dtype").as_string(), "bfloat16");
  EXPECT_EQ(out.at("prompt_tokens").as_int(), static_cast<int64_t>(kPrompt.size()));
  EXPECT_EQ(out.at("generated_ids").as_array().size(), 8u);
  EXPECT_EQ(out.at("finish_reason").as_string(), "length");
  EXPECT_EQ(out.at("accept_length").as_double(), 1.0);
}

TEST(CliGenerate, StreamsTheTextThatTheObjectHas) {
  const std::string text = generate({"--prompt", kPrompt, "--json"}).json().at("text").as_string();
  const ProgramResult streamed = generate({"--prompt", kPrompt});
  EXPECT_EQ(streamed.out, text + "\n");
  EXPECT_NE(streamed.err.find("tokens generated"), std::string::npos);
  const TemporaryFolder folder;
  EXPECT_EQ(generate({"--prompt-file", folder.file("p", kPrompt)}).out, streamed.out);
  EXPECT_EQ(generate({}, {.input = kPrompt}).out, streamed.out);
}

TEST(CliGenerate, SamplingDependsOnTheSeedAlone) {
  const auto ids = [](const char* seed, const char* threads) {
    return generate({"--prompt", kPrompt, "--temperature", "0.9", "--seed", seed, "--threads", threads, "--json"})
        .json()
        .at("generated_ids")
        .dump();
  };
  EXPECT_EQ(ids("1", "1"), ids("1", "2"));
  EXPECT_NE(ids("1", "1"), ids("2", "1"));
}

TEST(CliGenerate, KeepsRowsInTheFormatThatIsAskedForWhateverTheIndexKeysAre) {
  for (const auto& [format, name, bytes] : {std::tuple{"fp32", "float32", 4 * 48},
                                            {"bf16", "bfloat16", 2 * 48},
                                            {"int8", "int8", 32 + 4 + 2 * 16},
                                            {"fp8", "float8_e4m3", 32 + 4 + 2 * 16}}) {
    const ProgramResult result =
        generate({"--prompt", "a", "--max-tokens", "1", "--dtype", "float32", "--host-kv-dtype", format, "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Json out = result.json();
    EXPECT_EQ(out.at("offload").at("row_dtype").as_string(), name);
    EXPECT_EQ(out.at("offload").at("row_bytes").as_int(), bytes);
  }
}

TEST(CliGenerate, ComparesOffloadWithNoOffload) {
  for (const auto& [dtype, rows] :
       {std::pair{"float32", "fp32"}, {"bfloat16", "bf16"}, {"bfloat16", "int8"}, {"float32", "fp8"}}) {
    const ProgramResult result =
        generate({"--prompt", kPrompt, "--max-tokens", "150", "--offload", "select", "--pool-size", "16", "--dtype",
                  dtype, "--host-kv-dtype", rows, "--batch", "3", "--compare-offload", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Json out = result.json();
    const Json& compare = out.at("compare");
    expect_keys(compare, {"identical", "off_ms_per_token", "on_ms_per_token", "ratio"});
    EXPECT_TRUE(compare.at("identical").as_bool());
    EXPECT_EQ(out.at("requests").as_array().size(), 3u);
    EXPECT_GT(out.at("offload").at("misses").as_int(), 0);
    EXPECT_GT(out.at("offload").at("installed_rows").as_int(), 0);
  }
}

TEST(CliGenerate, ABatchOfFilesGivesEachItsOwnCompletion) {
  const TemporaryFolder folder;
  const std::string a = folder.file("a", kPrompt), b = folder.file("b", "Something else entirely");
  const Json both = generate({"--prompt-file", a, "--prompt-file", b, "--json"}).json();
  const Json alone = generate({"--prompt-file", b, "--json"}).json();
  EXPECT_EQ(both.at("requests").as_array()[1].at("generated_ids").dump(), alone.at("generated_ids").dump());
}

TEST(CliGenerate, WritesATimelineThatIsJson) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/timeline.json";
  EXPECT_EQ(generate({"--prompt", kPrompt, "--max-tokens", "3", "--timeline", path}).exit_code, 0);
  EXPECT_NO_THROW(Json::parse_file(path));
  EXPECT_EQ(folder.names(), Arguments{"timeline.json"});
}

TEST(CliGenerate, AnInterruptKeepsWhatWasThereAndSaysSo) {
  // Far more tokens than can be made before the signal comes.
  const ProgramResult result =
      generate({"--prompt", "a", "--max-tokens", "60000"}, {.interrupt_after = "\xef\xbf\xbd"});
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_NE(result.out, "");
  EXPECT_NE(result.err.find("interrupted"), std::string::npos) << result.err;
}

TEST(CliDump, WritesEveryTensorOfTheContract) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/dump.safetensors",
                    ids = folder.file("ids.json", "[5, 6, 7, 8, 9, 10, 11, 12, 13, 14]");
  const Json info = run_program({"info", "--model", tiny_model(), "--json"}).json();
  const ProgramResult result = run_program({"dump", "--model", tiny_model(), "--ids", ids, "--num-tokens", "4", "--out",
                                            path, "--dtype", "float32", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_keys(result.json(), {"max_memory_bytes", "seconds"});
  const model::SafetensorsFile file(path);
  const auto shape = [&](const std::string& name) { return file.at(name).shape; };
  using Shape = std::vector<int64_t>;
  const int64_t vocab = info.at("vocab_size").as_int(), hidden = info.at("hidden_size").as_int(),
                topk = info.at("index_topk").as_int();
  EXPECT_EQ(shape("input_ids"), Shape{10});
  EXPECT_EQ(shape("generated_ids"), Shape{4});
  EXPECT_EQ(shape("logits.prefill"), (Shape{10, vocab}));
  EXPECT_EQ(shape("logits.decode"), (Shape{4, vocab}));
  const auto& types = info.at("indexer_types").as_array();
  for (size_t layer = 0; layer < types.size(); ++layer) {
    const std::string number = std::to_string(layer);
    EXPECT_EQ(shape("hidden." + number), (Shape{14, hidden}));
    const bool is_full = types[layer].as_string() == "full";
    EXPECT_EQ(file.find("topk." + number) != nullptr, is_full);
    if (is_full) {
      EXPECT_EQ(shape("topk." + number), (Shape{14, topk}));
    }
  }
  std::vector<int64_t> made(4);
  std::memcpy(made.data(), file.at("generated_ids").data, sizeof(int64_t) * made.size());
  const Json same = generate({"--prompt-ids", ids, "--max-tokens", "4", "--dtype", "float32", "--json"}).json();
  for (size_t i = 0; i < made.size(); ++i) EXPECT_EQ(made[i], same.at("generated_ids").as_array()[i].as_int());
}

TEST(CliFullDisk, LeavesNothingHalfWritten) {
  const TemporaryFolder folder;
  const std::string ids = folder.file("ids.json", "[1,2,3]");
  const ProgramOptions full{.file_size_limit = 4096};
  for (const Arguments& arguments : {Arguments{"make-model", "--preset", "tiny", "--out", folder.path() + "/model"},
                                     {"dump", "--model", tiny_model(), "--ids", ids, "--num-tokens", "2", "--out",
                                      folder.path() + "/dump.safetensors"}}) {
    const ProgramResult result = run_program(arguments, full);
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_TRUE(result.is_one_line_error()) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(folder.names(), Arguments{"ids.json"});
  }
}

TEST(CliFullDisk, OnStandardOutputIsAFailure) {
  for (const Arguments& arguments :
       {Arguments{"info", "--model", tiny_model(), "--json"}, {"tokenize", "--model", tiny_model(), "--text", "x"}}) {
    const ProgramResult result = run_program(arguments, {.output_path = "/dev/full"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.err.find("No space left"), std::string::npos) << result.err;
  }
}

TEST(CliFullDisk, AFolderThatTakesNoFilesIsAFailure) {
  const TemporaryFolder folder;
  const std::string ids = folder.file("ids.json", "[1,2,3]");
  const ProgramResult dump =
      run_program({"dump", "--model", tiny_model(), "--ids", ids, "--num-tokens", "1", "--out", "/proc/x.safetensors"});
  EXPECT_EQ(dump.exit_code, 1);
  EXPECT_TRUE(dump.is_one_line_error()) << dump.err;
  const ProgramResult made = run_program({"make-model", "--preset", "tiny", "--out", "/proc/model"});
  EXPECT_EQ(made.exit_code, 1);
  EXPECT_TRUE(made.is_one_line_error()) << made.err;
}

TEST(CliBench, DecodeGivesARowPerModeRouteAndNumberOfRows) {
  const ProgramResult result =
      run_program({"bench", "decode", "--model", tiny_model(), "--contexts", "100", "--steps", "1", "--pool-sizes",
                   "64", "--modes", "capture,eager", "--rows", "2", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json json = result.json();
  expect_keys(json, {"rows", "floor"});
  const auto& rows = json.at("rows").as_array();
  ASSERT_EQ(rows.size(), 8u);
  for (size_t i = 0; i < rows.size(); ++i) {
    expect_keys(rows[i], {"what", "exec", "rows", "overhead_share", "outside_share", "step_to_one_row", "parts"});
    EXPECT_EQ(rows[i].at("exec").as_string(), i < 4 ? "capture" : "eager");
    EXPECT_EQ(rows[i].at("rows").as_int(), i % 2 == 0 ? 1 : 2);
    EXPECT_EQ(rows[i].at("floor_to_one_row").as_double() > 1, i % 2 == 1);
  }
}

TEST(CliBench, DraftsGivesARowPerNumberOfDrafts) {
  const TemporaryFolder folder;
  std::string ids = "[1";
  for (int i = 2; i <= 40; ++i) ids.append(",").append(std::to_string(i));
  const Arguments call{
      "bench",      "drafts", "--model",      tiny_model(), "--prompt-ids", folder.file("ids.json", ids + "]"),
      "--contexts", "40",     "--max-tokens", "24",         "--json"};
  const Json json = run_program(call).json();
  const auto& rows = json.at("rows").as_array();
  ASSERT_EQ(rows.size(), 4u);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Json& drafts = rows[i].at("drafts");
    expect_keys(drafts, {"accept_length", "main_ms", "mtp_ms", "tokens_per_s", "ratio_to_no_drafts",
                         "floor_tokens_per_s", "floor_ratio_to_no_drafts"});
    EXPECT_EQ(drafts.at("num_draft_tokens").as_int(), static_cast<int64_t>(i));
  }
  Arguments too_long = call;
  too_long[7] = "41";
  expect_refused(too_long, 1, {"--contexts", "41", "40"});  // before the machine is measured
}

}  // namespace
}  // namespace tidepool::testing
