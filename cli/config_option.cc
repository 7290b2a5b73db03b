#include "config_option.h"

#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "output.h"
#include "published_rules.h"

namespace tidepool::cli {
namespace {

const char* exec_of(const std::string& exe_mode) {
  if (exe_mode == "npugraph_ex") return "capture";
  return exe_mode == "ge_graph" ? "compile" : "eager";
}

const char* route_of(const PublishedConfig& c) {
  if (!c.enable_offload) return "off";
  return c.shared_indexer_offload ? "select" : "gather";
}

// The published W8A8 checkpoints say so in their config.json. A config.json that says nothing of the kind, or cannot be
// read, is for the loader to judge.
bool is_w8a8(const std::string& model) {
  const std::string path = model + "/config.json";
  if (!base::path_exists(path)) return false;
  const base::Json json = base::Json::parse_file(path);
  const base::Json* quantization = json.find("quantization_config");
  const base::Json* method = quantization == nullptr ? nullptr : quantization->find("quant_method");
  return method != nullptr && method->is_string() && method->as_string() == "compressed-tensors";
}

void check_model(const PublishedConfig& c, const EngineFlags& v, bool is_from_file) {
  if (v.model.empty()) {
    throw base::UsageError(fmt::format("{}: it has no model_path, so --model DIR is required", c.file));
  }
  const std::string name = is_from_file ? fmt::format("{} {}", c.at("model_path"), v.model) : "--model " + v.model;
  std::error_code error;
  if (!std::filesystem::is_directory(v.model, error)) throw base::UsageError(name + ": there is no such directory");
  if (is_w8a8(v.model)) throw base::UsageError(name + ": W8A8 checkpoints are not available yet");
}

}  // namespace

std::optional<PublishedConfig> apply_config(const base::FlagSet& flags, EngineFlags& v) {
  if (v.config.empty()) return std::nullopt;
  PublishedConfig c = load_published_config(v.config);
  check_published_rules(c);
  check_one_rank(c);
  const bool has_model = flags.given("--model");
  if (!has_model) v.model = c.model_path;
  if (!flags.given("--exec")) v.exec = exec_of(c.exe_mode);
  if (!flags.given("--offload")) v.offload = route_of(c);
  if (!flags.given("--pool-size") && c.shared_indexer_offload) v.pool_size = published_pool_size(c);
  if (!flags.given("--block-size")) v.block_size = c.pa_block_size;
  if (!flags.given("--num-draft-tokens")) v.num_draft_tokens = c.next_n;
  v.mtp_gather_reuse = c.enable_mtp_gather_reuse;
  check_model(c, v, !has_model);
  c.next_n = v.num_draft_tokens;
  c.pa_block_size = v.block_size;
  return c;
}

const char* published_mode(ExecMode mode) {
  if (mode == ExecMode::kCapture) return "npugraph_ex";
  return mode == ExecMode::kCompile ? "ge_graph" : "eager";
}

void note_options_without_effect(const std::optional<PublishedConfig>& config) {
  if (!config) return;
  const std::vector<std::string> names = options_without_effect(*config);
  if (!names.empty()) note(fmt::format("no effect on this device: {}", fmt::join(names, ", ")));
}

}  // namespace tidepool::cli
