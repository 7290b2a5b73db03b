// The YAML files of the published offload system: what may stand in them, what is taken when it does not, and what
// follows from it. Plain data; nothing here knows this engine (published_rules.h says what it can do of it).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "yaml.h"

namespace tidepool::cli {

// Every key, with the published default; `attn_tp_size`, `moe_tp_size`, `embed_tp_size`, `world_size` and `exe_mode`
// have none, and are then 1 and eager. Keys are unique across the sections.
struct PublishedConfig {
  std::string file;  // for sentences

  std::string model_name;
  std::string model_path;  // a relative one has been made relative to the folder of the file
  std::string exe_mode = "eager";
  int32_t world_size = 1;

  // model_config
  bool enable_offload = false, shared_indexer_offload = false, enlarge_pool_size = false;
  bool enable_mtp_gather_reuse = true;
  int32_t next_n = 0, pa_block_size = 128, prefill_mini_batch_size = 0;
  bool with_ckpt = true;
  bool enable_weight_nz = false, enable_multi_streams = false, enable_profiler = false, perfect_eplb = false;
  bool enable_cache_compile = false, enable_online_split_weight = false, enable_superkernel = false;
  bool enable_static_kernel = false, enable_skip_guard = false;
  std::string platform_version = "A3";

  // data_config
  std::string dataset = "default";
  std::string dataset_path;  // as model_path
  int32_t input_max_len = 32, max_new_tokens = 32, batch_size = 1;

  // parallel_config
  int32_t cp_size = 1, attn_tp_size = 1, oproj_tp_size = 1, dense_tp_size = 1, moe_tp_size = 1, embed_tp_size = 1;
  int32_t lmhead_tp_size = 1;  // not given: embed_tp_size

  std::map<std::string, Place, std::less<>> places;  // of the values that the file gives, by key

  bool given(std::string_view key) const { return places.find(key) != places.end(); }
  // How a sentence about the value of `key` starts: "FILE:LINE:COLUMN: KEY", or "FILE: KEY" when it is a default.
  std::string at(std::string_view key) const;

  // What the published runner computes. Those that divide by sizes require check_published_rules.
  int32_t attn_dp_size() const { return world_size / attn_tp_size; }
  int32_t moe_dp_size() const { return world_size / moe_tp_size; }
  int32_t moe_ep_size() const { return moe_dp_size(); }
  int32_t embed_dp_size() const { return world_size / embed_tp_size; }
  int32_t batch_size_per_rank() const { return batch_size / attn_dp_size(); }
  // Requests that a context-parallel group prefills; 0 when cp_size is 1: there is no such group.
  int32_t bs_per_cp_group() const;
  // input_max_len, rounded up to twice cp_size where prompts are cut into pieces for context parallelism.
  int64_t input_len() const;
  // Positions of a request's cache: input_len + max_new_tokens * (next_n + 1), rounded up to whole blocks.
  int64_t pa_max_length() const;
};

// Throws base::UsageError for everything that the schema does not allow, naming the file, the place, the key, the value
// and what it may be.
PublishedConfig parse_published_config(std::string_view text, const std::string& file);
PublishedConfig load_published_config(const std::string& path);

// The names of all keys in the order of the schema: those at the top, then by section.
std::vector<std::string> published_keys();

}  // namespace tidepool::cli
