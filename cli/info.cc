// tidepool info: what a checkpoint is and costs.
#include "base/check.h"
#include "base/flags.h"
#include "commands.h"
#include "output.h"
#include "tidepool/checkpoint.h"

namespace tidepool::cli {
namespace {

using base::Json;

Json info_json(const CheckpointInfo& info) {
  Json types = Json::array(), groups = Json::array();
  for (const std::string& type : info.indexer_types) types.push_back(type);
  for (const auto& group : info.layer_groups) {
    Json layers = Json::array();
    for (const int32_t layer : group) layers.push_back(layer);
    groups.push_back(std::move(layers));
  }
  Json out = Json::object();
  out.set("architecture", info.architecture);
  out.set("num_layers", info.num_layers);
  out.set("indexer_types", std::move(types));
  out.set("layer_groups", std::move(groups));
  out.set("parameters", info.parameters);
  out.set("weight_bytes", info.weight_bytes);
  out.set("row_bytes", info.row_bytes);
  out.set("kv_bytes_per_token", info.kv_bytes_per_token);
  out.set("index_key_bytes_per_token", info.index_key_bytes_per_token);
  out.set("mtp_layers", info.mtp_layers);
  out.set("quantization", info.quantization);
  out.set("vocab_size", info.vocab_size);
  out.set("hidden_size", info.hidden_size);
  out.set("index_topk", info.index_topk);
  out.set("max_position_tokens", info.max_position);
  return out;
}

std::string info_text(const CheckpointInfo& info) {
  std::string groups;
  for (const auto& group : info.layer_groups) groups += fmt::format(" {{{}}}", fmt::join(group, " "));
  std::string out;
  const auto line = [&](const char* name, const std::string& value) { out += fmt::format("{:<22} {}\n", name, value); };
  line("architecture", info.architecture);
  line("parameters", count_text(info.parameters));
  line("weights",
       fmt::format("{} (quantization: {})", bytes_text(static_cast<uint64_t>(info.weight_bytes)), info.quantization));
  line("layers", fmt::format("{}, and {} for multi-token prediction", info.num_layers, info.mtp_layers));
  line("layer groups", fmt::format("{}:{}", info.layer_groups.size(), groups));
  line("selected rows", fmt::format("{} per query and layer", count_text(info.index_topk)));
  line("longest context", fmt::format("{} tokens", count_text(info.max_position)));
  line("a row", fmt::format("{} bytes in bf16", info.row_bytes));
  const auto per_token = static_cast<uint64_t>(info.kv_bytes_per_token),
             keys = static_cast<uint64_t>(info.index_key_bytes_per_token);
  line("a token of context", fmt::format("{} of KV rows, {} of index keys", bytes_text(per_token), bytes_text(keys)));
  const auto full = static_cast<uint64_t>(info.max_position);
  line("the longest context",
       fmt::format("{} of KV rows, {} of index keys", bytes_text(per_token * full), bytes_text(keys * full)));
  return out;
}

}  // namespace

int run_info(const Arguments& arguments) {
  std::string model;
  bool json = false;
  base::FlagSet flags("tidepool info", "what a checkpoint is and what a token of context costs");
  flags.text("--model", &model, "DIR").input_directory().required().help("a Hugging Face checkpoint directory");
  flags.toggle("--json", &json).help("print one JSON object");
  if (flags.parse(arguments) == base::FlagSet::kHelp) return print(flags.help_text()), 0;
  const CheckpointInfo info = describe_checkpoint(model);
  json ? print_json(info_json(info)) : print(info_text(info));
  return 0;
}

}  // namespace tidepool::cli
