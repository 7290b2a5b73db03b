#include "engine_flags.h"

#include <bit>

#include "base/check.h"

namespace tidepool::cli {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
constexpr int32_t kMaxTokens = 1 << 30;

void declare_cache_flags(base::FlagSet& flags, EngineFlags& v) {
  flags.section("KV cache");
  flags.choice("--offload", &v.offload, {"off", "gather", "select"})
      .later_choices({"direct"})
      .help(
          "where KV rows live: all on the device; in host memory, each step's selection gathered; or with a device "
          "pool "
          "of hot rows");
  flags.integer("--pool-size", &v.pool_size)
      .unit("rows")
      .range(1, kMaxTokens)
      .help(
          "device pool per request and layer; --num-ways times a power of two, no more than 16384 or a whole request");
  flags.integer("--num-ways", &v.num_ways).unit("rows").range(1, 1024).help("rows of one set of the pool");
  flags.choice("--policy", &v.policy, {"fifo"})
      .later_choices({"fifo-skip", "clock", "lru"})
      .help("which row of a set is replaced");
  flags.integer("--block-size", &v.block_size).unit("tokens").choices({"128", "256"}).help("unit of KV allocation");
  flags.choice("--host-kv-dtype", &v.host_kv_dtype, {"bf16", "fp32", "int8", "fp8"})
      .default_text("as --dtype")
      .help("format of KV rows, host and device alike; int8 and fp8: a scale for each 128 values, RoPE part bfloat16");
  flags.number("--device-kv-gib", &v.device_kv_gib)
      .unit("GiB")
      .above(0, 1e6)
      .default_text("what the requests need")
      .help("budget of device memory for pool, window, selection and index keys");
  flags.number("--host-kv-gib", &v.host_kv_gib)
      .unit("GiB")
      .above(0, 1e6)
      .default_text("what the requests need")
      .help("budget of host memory for KV rows");
}

// The multiples of num_ways around `rows` that have a power of two of sets.
std::string nearest_pool_sizes(int32_t rows, int32_t num_ways) {
  const auto sets = static_cast<uint32_t>(rows / num_ways);
  const uint64_t below = std::bit_floor(sets);
  if (below == 0) return fmt::format("the smallest is {}", num_ways);
  return fmt::format("the nearest are {} and {}", below * static_cast<uint64_t>(num_ways),
                     2 * below * static_cast<uint64_t>(num_ways));
}

// 0 is an option that was not given: to the engine that means no limit, so a budget must not round to it.
uint64_t budget_bytes(const char* option, double gib) {
  const auto bytes = static_cast<uint64_t>(gib * kGib);
  if (gib > 0 && bytes == 0) throw base::UsageError(fmt::format("{} {}: less than one byte", option, gib));
  return bytes;
}

DType row_dtype(const std::string& name) {
  if (name == "fp32") return DType::kF32;
  if (name == "int8") return DType::kI8;
  return name == "fp8" ? DType::kF8E4M3 : DType::kBF16;
}

OffloadRoute route_of(const std::string& name) {
  if (name == "select") return OffloadRoute::kSelect;
  return name == "gather" ? OffloadRoute::kGather : OffloadRoute::kOff;
}

}  // namespace

void check_pool(const char* option, int32_t rows, int32_t num_ways) {
  if (rows % num_ways == 0 && std::has_single_bit(static_cast<uint32_t>(rows / num_ways))) return;
  throw base::UsageError(fmt::format("{} {}: must be --num-ways {} times a power of two; {}", option, rows, num_ways,
                                     nearest_pool_sizes(rows, num_ways)));
}

void declare_engine_flags(base::FlagSet& flags, EngineFlags& v, const std::string& max_model_len_default,
                          const std::string& max_num_seqs_default) {
  flags.section("Model and machine");
  flags.text("--model", &v.model, "DIR")
      .input_directory()
      .required_unless("--config")
      .help("a Hugging Face checkpoint directory");
  flags.choice("--device", &v.device, {"cpu"}).later_choices({"cuda", "ascend"}).help("what runs the model");
  flags.choice("--dtype", &v.dtype, {"float32", "bfloat16", "auto"})
      .help("of index keys, and of KV rows unless --host-kv-dtype is given; auto: bfloat16; activations are float32");
  flags.integer("--threads", &v.num_threads)
      .unit("threads")
      .range(0, kMaxThreads)
      .help("0: all that the process may use");
  flags.choice("--exec", &v.exec, {"eager", "capture", "compile"})
      .help("how a decode step is launched: operation by operation, as a recording, as a rewritten recording");
  flags.integer("--seed", &v.seed).help("of sampling");
  flags.number("--latent-norm-eps", &v.latent_norm_eps)
      .above(0, 1)
      .default_text("1e-6")
      .help("epsilon of the two latent norms, for checkpoints that differ from transformers");
  flags.toggle("--allow-nan", &v.allow_nan).help("load weights that are not finite");
  flags.text("--config", &v.config, "F.yaml")
      .input_file()
      .help("a YAML file of the published system; other options win over it");
  flags.section("Requests");
  flags.integer("--max-model-len", &v.max_model_len)
      .unit("tokens")
      .range(1, kMaxTokens)
      .default_text(max_model_len_default)
      .help("longest request, prompt and output together; at most what the model allows");
  flags.integer("--max-num-seqs", &v.max_num_seqs)
      .unit("requests")
      .range(1, kMaxNumSeqs)
      .default_text(max_num_seqs_default)
      .help("requests that run at once");
  flags.integer("--max-num-batched-tokens", &v.max_num_batched_tokens)
      .unit("tokens")
      .range(1, kMaxNumBatchedTokens)
      .help("rows of one step, prompt chunk and decode rows together");
  flags.integer("--num-draft-tokens", &v.num_draft_tokens)
      .unit("tokens")
      .range(0, kMaxDraftTokens)
      .help("tokens guessed per step by the MTP layer");
  declare_cache_flags(flags, v);
}

EngineOptions engine_options(const EngineFlags& v) {
  EngineOptions options;
  options.model = v.model;
  options.kv_dtype = v.dtype == "float32" ? DType::kF32 : DType::kBF16;
  if (!v.host_kv_dtype.empty()) options.row_dtype = row_dtype(v.host_kv_dtype);
  options.num_threads = v.num_threads;
  options.max_model_len = v.max_model_len;
  options.max_num_seqs = v.max_num_seqs > 0 ? v.max_num_seqs : 1;
  options.max_num_batched_tokens = v.max_num_batched_tokens;
  options.block_size = v.block_size;
  options.route = route_of(v.offload);
  check_pool("--pool-size", v.pool_size, v.num_ways);
  options.pool_size = v.pool_size;
  options.num_ways = v.num_ways;
  options.policy = v.policy;
  options.num_draft_tokens = v.num_draft_tokens;
  options.mtp_gather_reuse = v.mtp_gather_reuse;
  options.exec = v.exec == "capture" ? ExecMode::kCapture : v.exec == "compile" ? ExecMode::kCompile : ExecMode::kEager;
  options.device_kv_bytes = budget_bytes("--device-kv-gib", v.device_kv_gib);
  options.host_kv_bytes = budget_bytes("--host-kv-gib", v.host_kv_gib);
  options.seed = v.seed;
  options.latent_norm_eps = v.latent_norm_eps;
  options.allow_nan = v.allow_nan;
  return options;
}

const char* route_name(OffloadRoute route) {
  if (route == OffloadRoute::kSelect) return "select";
  return route == OffloadRoute::kGather ? "gather" : "off";
}

}  // namespace tidepool::cli
