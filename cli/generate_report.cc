#include "generate_report.h"

#include "base/check.h"
#include "engine_flags.h"
#include "output.h"
#include "prompt.h"

namespace tidepool::cli {
namespace {

using base::Json;

// Drafts are rows of every step, whether or not they are accepted; below this length they bring less than they cost.
constexpr double kLeastAcceptLength = 1.05;

void set_counts(Json& object, const CacheCounts& counts) {
  object.set("hit_rate", counts.hit_rate());
  object.set("hits", counts.hits);
  object.set("misses", counts.misses);
  object.set("window", counts.window);
  object.set("unspilled", counts.unspilled);
  object.set("fetched_rows", counts.fetched_rows);
  object.set("fetched_bytes", counts.fetched_bytes);
  object.set("installed_rows", counts.installed_rows);
  object.set("evictions", counts.evictions);
  object.set("wraps", counts.wraps);
}

Json groups_json(const RunResult& run) {
  Json groups = Json::array();
  for (size_t g = 0; g < run.stats.groups.size(); ++g) {
    Json group = Json::object();
    Json layers = Json::array();
    for (const int32_t layer : run.model.layer_groups[g]) layers.push_back(layer);
    group.set("layers", std::move(layers));
    set_counts(group, run.stats.groups[g]);
    groups.push_back(std::move(group));
  }
  return groups;
}

Json offload_json(const EngineOptions& options, const RunResult& run) {
  Json out = Json::object();
  out.set("route", route_name(options.route));
  out.set("pool_size", options.pool_size);
  out.set("num_ways", options.num_ways);
  out.set("policy", options.policy);
  out.set("row_dtype", dtype_name(options.row_dtype.value_or(options.kv_dtype)));
  out.set("row_bytes", run.model.row_bytes);
  set_counts(out, run.stats.total);
  out.set("prefill_fetched_bytes", run.stats.prefill_fetched_bytes);
  out.set("spilled_bytes", run.stats.spilled_bytes);
  out.set("device_kv_bytes", run.stats.device_kv_bytes);
  out.set("device_kv_budget_bytes", run.stats.device_kv_budget_bytes);
  out.set("host_kv_bytes", run.stats.host_kv_bytes);
  out.set("groups", groups_json(run));
  return out;
}

Json request_json(const RequestResult& request, const text::Tokenizer* tokenizer) {
  Json ids = Json::array();
  for (const int32_t id : request.ids) ids.push_back(id);
  Json out = Json::object();
  out.set("prompt_tokens", request.prompt_tokens);
  out.set("generated_tokens", static_cast<int64_t>(request.ids.size()));
  out.set("generated_ids", std::move(ids));
  out.set("text", tokenizer != nullptr ? Json(ids_text(*tokenizer, request.ids)) : Json(nullptr));
  out.set("finish_reason", finish_reason_name(request.finish));
  return out;
}

Json compare_json(const RunResult& on, const Comparison& comparison) {
  const RunResult& off = comparison.off;
  Json out = Json::object();
  out.set("identical", comparison.identical());
  if (!comparison.identical()) out.set("difference", comparison.difference);
  out.set("off_ms_per_token", off.ms_per_token());
  out.set("on_ms_per_token", on.ms_per_token());
  out.set("ratio", off.ms_per_token() > 0 ? on.ms_per_token() / off.ms_per_token() : 0.0);
  out.set("off_prefill_ms", off.prefill_ms);
  out.set("on_prefill_ms", on.prefill_ms);
  out.set("off_device_kv_bytes", off.stats.device_kv_bytes);
  out.set("on_device_kv_bytes", on.stats.device_kv_bytes);
  return out;
}

// "0", "2-5", "0,3": layers of a group, which need not be neighbours.
std::string layers_text(const std::vector<int32_t>& layers) {
  std::string out;
  for (size_t i = 0; i < layers.size();) {
    size_t last = i;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1) ++last;
    if (!out.empty()) out += ",";
    out += last == i ? fmt::format("{}", layers[i]) : fmt::format("{}-{}", layers[i], layers[last]);
    i = last + 1;
  }
  return out;
}

std::string counts_line(const std::string& layers, const CacheCounts& c) {
  return fmt::format("  {:<10} {:>7.1f} % {:>12} {:>10} {:>10} {:>13} {:>10}\n", layers, 100 * c.hit_rate(),
                     count_text(c.hits), count_text(c.window), count_text(c.misses),
                     bytes_text(static_cast<uint64_t>(c.fetched_bytes)), count_text(c.evictions));
}

std::string timing_line(const RunResult& run) {
  int64_t prompt = 0, generated = 0;
  for (const RequestResult& request : run.requests) {
    prompt += request.prompt_tokens;
    generated += static_cast<int64_t>(request.ids.size());
  }
  return fmt::format("{} prompt tokens in {:.2f} s; {} tokens generated, {:.2f} ms/token, {:.1f} tokens/s\n",
                     count_text(prompt), run.prefill_ms / 1000, count_text(generated), run.ms_per_token(),
                     run.tokens_per_s());
}

std::string cache_lines(const EngineOptions& options, const RunResult& run) {
  std::string out =
      fmt::format("KV cache: offload {}, {} on the device, {} in host memory\n", route_name(options.route),
                  bytes_text(run.stats.device_kv_bytes), bytes_text(run.stats.host_kv_bytes));
  if (options.route == OffloadRoute::kOff) return out;
  if (options.route == OffloadRoute::kSelect) {
    out += fmt::format("  pool of {} rows per request and layer, {}; rows that attention read in decode:\n",
                       count_text(options.pool_size), options.policy);
  } else {
    out += "  the selection of the last step; rows that attention read in decode:\n";
  }
  out += fmt::format("  {:<10} {:>9} {:>12} {:>10} {:>10} {:>13} {:>10}\n", "layers", "hit rate", "from device",
                     "window", "from host", "fetched", "evicted");
  for (size_t g = 0; g < run.stats.groups.size(); ++g) {
    out += counts_line(layers_text(run.model.layer_groups[g]), run.stats.groups[g]);
  }
  return out + counts_line("all", run.stats.total);
}

std::string comparison_lines(const RunResult& run, const Comparison& comparison) {
  const RunResult& off = comparison.off;
  std::string out =
      fmt::format("without offload: {:.2f} ms/token, {} on the device; with: {:.2f} ms/token ({:.2f} times)\n",
                  off.ms_per_token(), bytes_text(off.stats.device_kv_bytes), run.ms_per_token(),
                  off.ms_per_token() > 0 ? run.ms_per_token() / off.ms_per_token() : 0.0);
  return out + (comparison.identical() ? "identical: yes (all tokens, all logits, bit for bit)\n"
                                       : fmt::format("identical: NO: {}\n", comparison.difference));
}

}  // namespace

Json generate_json(const GenerateReport& report, const text::Tokenizer* tokenizer) {
  const RunResult& run = report.run;
  // The first request stands at the top, as if it were alone; "requests" has all of them when there are several.
  Json out = request_json(run.requests.front(), tokenizer);
  out.set("prefill_ms", run.prefill_ms);
  out.set("decode_ms", run.decode_ms);
  out.set("ms_per_token", run.ms_per_token());
  out.set("tokens_per_s", run.tokens_per_s());
  out.set("accept_length", run.accept_length());
  out.set("offload", offload_json(report.options, run));
  if (report.published) out.set("published", published_json(report.options, *report.published));
  if (report.comparison) out.set("compare", compare_json(run, *report.comparison));
  if (run.requests.size() > 1) {
    Json requests = Json::array();
    for (const RequestResult& request : run.requests) {
      Json one = request_json(request, tokenizer);
      one.set("hit_rate", request.stats.total.hit_rate());
      requests.push_back(std::move(one));
    }
    out.set("requests", std::move(requests));
  }
  return out;
}

std::string generate_summary(const GenerateReport& report) {
  const EngineOptions& options = report.options;
  const RunResult& run = report.run;
  std::string out = timing_line(run);
  if (options.num_draft_tokens > 0) {
    out += fmt::format("{} drafts a step: {:.2f} tokens per step and request\n", options.num_draft_tokens,
                       run.accept_length());
  }
  out += cache_lines(options, run);
  if (report.published) out += published_summary(options, *report.published);
  if (report.comparison) out += comparison_lines(run, *report.comparison);
  return out;
}

std::string draft_warning(const EngineOptions& options, const RunResult& run) {
  if (options.num_draft_tokens == 0 || run.request_steps == 0 || run.accept_length() >= kLeastAcceptLength) return "";
  return fmt::format(
      "drafts do not pay: {} a step give {:.2f} tokens per step and request, and a step costs more than without",
      options.num_draft_tokens, run.accept_length());
}

}  // namespace tidepool::cli
