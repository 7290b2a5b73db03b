// The options that every subcommand which runs a model has, and the EngineOptions they mean.
#pragma once

#include <cstdint>
#include <string>

#include "base/flags.h"
#include "tidepool/engine.h"

namespace tidepool::cli {

struct EngineFlags {
  std::string model, device = "cpu", dtype = "auto", offload = "off", policy = "fifo", host_kv_dtype, exec = "eager";
  std::string config;
  int32_t num_threads = 0, max_model_len = 0, max_num_seqs = 0, max_num_batched_tokens = 512, block_size = 128;
  int32_t pool_size = 8192, num_ways = 16, num_draft_tokens = 0;
  double device_kv_gib = 0, host_kv_gib = 0, latent_norm_eps = 0;
  uint64_t seed = 0;
  bool allow_nan = false;
  bool mtp_gather_reuse = true;  // no option: only a configuration file says otherwise
};

// `max_model_len_default` and `max_num_seqs_default` are what --help says the command takes when they are not given.
void declare_engine_flags(base::FlagSet& flags, EngineFlags& values, const std::string& max_model_len_default,
                          const std::string& max_num_seqs_default);

// Throws UsageError for values that contradict each other. Numbers left at 0 keep the meaning that EngineOptions gives
// 0, but for max_num_seqs, which is then 1.
EngineOptions engine_options(const EngineFlags& values);

// Throws UsageError unless `rows`, the value of `option`, is num_ways times a power of two.
void check_pool(const char* option, int32_t rows, int32_t num_ways);

const char* route_name(OffloadRoute route);  // as --offload spells it

}  // namespace tidepool::cli
