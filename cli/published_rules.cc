#include "published_rules.h"

#include <array>

#include "base/check.h"
#include "base/flags.h"
#include "tidepool/engine.h"

namespace tidepool::cli {
namespace {

using C = PublishedConfig;

constexpr int32_t kPool = 8192, kLargePool = 16384;
constexpr int32_t kMostSharedBlock = 128;

struct Size {
  const char* key;
  int32_t C::*member;
};
// All sizes of parallel parts but world_size, in the order in which they are checked.
constexpr std::array<Size, 7> kSizes{{{"attn_tp_size", &C::attn_tp_size},
                                      {"oproj_tp_size", &C::oproj_tp_size},
                                      {"moe_tp_size", &C::moe_tp_size},
                                      {"embed_tp_size", &C::embed_tp_size},
                                      {"lmhead_tp_size", &C::lmhead_tp_size},
                                      {"dense_tp_size", &C::dense_tp_size},
                                      {"cp_size", &C::cp_size}}};

struct Switch {
  const char* key;
  bool C::*member;
};
constexpr std::array<Switch, 3> kNotInEager{{{"enable_multi_streams", &C::enable_multi_streams},
                                             {"enable_cache_compile", &C::enable_cache_compile},
                                             {"enable_superkernel", &C::enable_superkernel}}};

template <typename Value>
[[noreturn]] void refuse(const C& c, const char* key, const Value& value, const std::string& why) {
  throw base::UsageError(fmt::format("{} {}: {}", c.at(key), value, why));
}

void check_offload(const C& c) {
  if (c.shared_indexer_offload && !c.enable_offload) {
    refuse(c, "shared_indexer_offload", "True", "needs enable_offload True; the published runner ignores it otherwise");
  }
  if (c.enlarge_pool_size && !c.shared_indexer_offload) {
    refuse(c, "enlarge_pool_size", "True",
           "needs shared_indexer_offload True, the only route with a pool; the published runner ignores it otherwise");
  }
  if (c.shared_indexer_offload && c.pa_block_size > kMostSharedBlock) {
    refuse(c, "pa_block_size", c.pa_block_size,
           fmt::format("with shared_indexer_offload it is at most {}, as the published operators take no larger block",
                       kMostSharedBlock));
  }
}

void check_mode(const C& c) {
  if (c.exe_mode != "eager") return;
  for (const Switch& option : kNotInEager) {
    if (c.*option.member) refuse(c, option.key, "True", "exe_mode eager excludes it");
  }
}

void check_parallel_sizes(const C& c) {
  for (const Size& size : kSizes) {
    if (c.world_size % (c.*size.member) != 0) {
      refuse(c, size.key, c.*size.member, fmt::format("it must divide world_size {}", c.world_size));
    }
  }
  if (c.attn_tp_size > 1 && c.oproj_tp_size > 1) {
    refuse(c, "oproj_tp_size", c.oproj_tp_size,
           fmt::format("it must be 1 when attn_tp_size is above 1; that is {}", c.attn_tp_size));
  }
  if (c.embed_tp_size % c.attn_tp_size != 0) {
    refuse(c, "embed_tp_size", c.embed_tp_size,
           fmt::format("it must be a multiple of attn_tp_size {}", c.attn_tp_size));
  }
  if (c.cp_size > 1 && c.cp_size != c.world_size) {
    refuse(c, "cp_size", c.cp_size, fmt::format("it must be 1 or world_size {}", c.world_size));
  }
  if (c.cp_size > 1 && c.attn_tp_size > 1) {
    refuse(c, "cp_size", c.cp_size,
           fmt::format("it must be 1 when attn_tp_size is above 1; that is {}", c.attn_tp_size));
  }
}

void check_batch(const C& c) {
  if (c.batch_size % c.attn_dp_size() != 0) {
    refuse(c, "batch_size", c.batch_size,
           fmt::format("it must be a multiple of world_size / attn_tp_size, {}", c.attn_dp_size()));
  }
  const int32_t part = c.prefill_mini_batch_size;
  if (part == 0) return;
  if (c.batch_size % part != 0) {
    refuse(c, "prefill_mini_batch_size", part, fmt::format("it must divide batch_size {}", c.batch_size));
  }
  if (c.batch_size_per_rank() % part != 0) {
    refuse(c, "prefill_mini_batch_size", part,
           fmt::format("it must divide the batch of a rank, {} (batch_size {} over {} ranks)", c.batch_size_per_rank(),
                       c.batch_size, c.attn_dp_size()));
  }
}

}  // namespace

void check_published_rules(const PublishedConfig& config) {
  check_offload(config);
  check_mode(config);
  check_parallel_sizes(config);
  check_batch(config);
}

void check_one_rank(const PublishedConfig& config) {
  constexpr const char* kOneRank = "one rank is available, more are not yet; it must be 1";
  if (config.world_size > 1) refuse(config, "world_size", config.world_size, kOneRank);
  for (const Size& size : kSizes) {
    if (config.*size.member > 1) refuse(config, size.key, config.*size.member, kOneRank);
  }
  if (!config.with_ckpt) {
    refuse(config, "with_ckpt", "False", "weights come from model_path; tidepool make-model writes random ones");
  }
  if (config.batch_size > kMaxNumSeqs) {
    refuse(config, "batch_size", config.batch_size, fmt::format("at most {} requests run at once", kMaxNumSeqs));
  }
}

std::vector<std::string> options_without_effect(const PublishedConfig& c) {
  const C defaults;
  std::vector<std::string> names;
  const auto check = [&](const char* key, auto C::*member) {
    if (c.*member != defaults.*member) names.emplace_back(key);
  };
  check("prefill_mini_batch_size", &C::prefill_mini_batch_size);
  check("enable_weight_nz", &C::enable_weight_nz);
  check("enable_multi_streams", &C::enable_multi_streams);
  check("enable_profiler", &C::enable_profiler);
  check("perfect_eplb", &C::perfect_eplb);
  check("enable_cache_compile", &C::enable_cache_compile);
  check("enable_online_split_weight", &C::enable_online_split_weight);
  check("enable_superkernel", &C::enable_superkernel);
  check("enable_static_kernel", &C::enable_static_kernel);
  check("enable_skip_guard", &C::enable_skip_guard);
  check("platform_version", &C::platform_version);
  return names;
}

int32_t published_pool_size(const PublishedConfig& config) { return config.enlarge_pool_size ? kLargePool : kPool; }

}  // namespace tidepool::cli
