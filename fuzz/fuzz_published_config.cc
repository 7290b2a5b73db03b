// Any bytes as a configuration of the published system: refused with an Error, or values that fit each other.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cli/published_config.h"
#include "cli/published_rules.h"
#include "tidepool/error.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tidepool::cli::PublishedConfig;
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const PublishedConfig c = tidepool::cli::parse_published_config(text, "input");
    require(c.next_n >= 0 && c.next_n <= 3 && (c.pa_block_size == 128 || c.pa_block_size == 256));
    require(c.model_path.find('\0') == std::string::npos && c.dataset_path.find('\n') == std::string::npos);
    tidepool::cli::check_published_rules(c);
    require(c.attn_dp_size() * c.attn_tp_size == c.world_size && c.moe_ep_size() * c.moe_tp_size == c.world_size);
    require(c.batch_size_per_rank() * c.attn_dp_size() == c.batch_size && c.embed_dp_size() >= 1);
    require(c.bs_per_cp_group() == (c.cp_size > 1 ? c.batch_size : 0));
    require(c.pa_max_length() % c.pa_block_size == 0 && c.pa_max_length() > c.input_max_len);
    require(!c.shared_indexer_offload || (c.enable_offload && c.pa_block_size == 128));
    tidepool::cli::check_one_rank(c);
    require(c.world_size == 1 && c.lmhead_tp_size == 1 && c.with_ckpt);
    tidepool::cli::options_without_effect(c);
  } catch (const tidepool::Error&) {
  }
  return 0;
}
