// Where the prompts of `tidepool generate` come from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/flags.h"
#include "published_config.h"
#include "text/tokenizer.h"

namespace tidepool::cli {

struct PromptFlags {
  std::string prompt, prompt_ids;
  std::vector<std::string> prompt_files;
  int32_t batch = 1;
};
void declare_prompt_flags(base::FlagSet& flags, PromptFlags& v);

struct Prompts {
  std::vector<std::vector<int32_t>> ids;  // one for each request, none of them empty, all ids in the vocabulary
  std::optional<text::Tokenizer> tokenizer;
  bool is_dataset = false;  // they are those of a configuration's data set

  int64_t longest() const;
};

// The prompts of the options; where there are none, those of `config`'s data set; without one, standard input. One
// prompt is copied for a batch; several are a batch of their own, to which --batch itself does not belong.
// Throws base::UsageError for options that exclude each other, Error for what is in files.
Prompts read_prompts(const base::FlagSet& flags, const PromptFlags& v, const std::string& model, int64_t vocab_size,
                     const std::optional<PublishedConfig>& config);

}  // namespace tidepool::cli
