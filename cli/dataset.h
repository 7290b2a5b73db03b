// The prompts that a published configuration names.
//   default        prompts of this program, or those of dataset_path, a JSON list of texts; each is cut to
//   input_max_len. LongBench,     dataset_path is a file of JSON lines of which only the text "context" is used. The
//   system prompt of InfiniteBench  this program stands in front, and the context is cut so that both have at most
//   input_max_len tokens.
// Only as many prompts as the batch has requests are read; when there are fewer, they are repeated.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "published_config.h"
#include "text/tokenizer.h"

namespace tidepool::cli {

// [batch] token ids. Throws base::UsageError for what the configuration asks (a path that is missing, an input_max_len
// that has no room), Error naming file and line for what is in the files.
std::vector<std::vector<int32_t>> dataset_prompts(const PublishedConfig& config, const text::Tokenizer& tokenizer,
                                                  int32_t batch);

// What this program has of its own.
std::span<const std::string_view> default_prompts();
std::string_view system_prompt();

}  // namespace tidepool::cli
