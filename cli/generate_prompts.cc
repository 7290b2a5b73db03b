#include "generate_prompts.h"

#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "dataset.h"
#include "prompt.h"
#include "tidepool/engine.h"

namespace tidepool::cli {
namespace {

int num_sources(const base::FlagSet& flags, const PromptFlags& v) {
  const int sources = flags.given("--prompt") + !v.prompt_files.empty() + flags.given("--prompt-ids");
  if (sources > 1) throw base::UsageError("--prompt, --prompt-file and --prompt-ids exclude each other");
  return sources;
}

std::vector<std::vector<int32_t>> read_texts(const base::FlagSet& flags, const PromptFlags& v,
                                             std::optional<text::Tokenizer>& tokenizer, const std::string& model) {
  std::vector<std::pair<std::string, std::string>> texts;  // where from, text
  for (const std::string& file : v.prompt_files) texts.emplace_back(file, read_file(file));
  if (flags.given("--prompt")) texts.emplace_back("--prompt", v.prompt);
  if (texts.empty()) texts.emplace_back("standard input", read_stdin());
  for (const auto& [what, text] : texts) check_text(text, what);
  tokenizer = load_tokenizer(model);
  std::vector<std::vector<int32_t>> prompts;
  for (const auto& [what, text] : texts) prompts.push_back(tokenizer->encode(text));
  return prompts;
}

void check_ids(const std::vector<std::vector<int32_t>>& prompts, const std::string& model, int64_t vocab_size) {
  for (const auto& ids : prompts) {
    tidepool_check(!ids.empty(), "the prompt has no tokens");
    for (const int32_t id : ids) {
      tidepool_check(id < vocab_size,
                     "{}/tokenizer.json: does not belong to this model: it makes id {}, the model has {} tokens", model,
                     id, vocab_size);
    }
  }
}

}  // namespace

void declare_prompt_flags(base::FlagSet& flags, PromptFlags& v) {
  flags.section("Prompt (one of these, the data set of --config, or standard input)");
  flags.text("--prompt", &v.prompt).help("the text itself");
  flags.texts("--prompt-file", &v.prompt_files, "F").input_file().help("a UTF-8 text; given several times: a batch");
  flags.text("--prompt-ids", &v.prompt_ids, "F.json").input_file().help("token ids: [1,2,3] or {\"ids\": [1,2,3]}");
  flags.integer("--batch", &v.batch)
      .unit("requests")
      .range(1, kMaxNumSeqs)
      .help("copies of the prompt, run together; of a data set: so many of its prompts");
}

int64_t Prompts::longest() const {
  size_t longest = 0;
  for (const auto& prompt : ids) longest = std::max(longest, prompt.size());
  return static_cast<int64_t>(longest);
}

Prompts read_prompts(const base::FlagSet& flags, const PromptFlags& v, const std::string& model, int64_t vocab_size,
                     const std::optional<PublishedConfig>& config) {
  const int sources = num_sources(flags, v);
  Prompts prompts;
  if (flags.given("--prompt-ids")) {
    prompts.ids.push_back(read_ids(v.prompt_ids, vocab_size));
    prompts.tokenizer = find_tokenizer(model);
  } else if (sources == 0 && config) {
    prompts.is_dataset = true;
    prompts.tokenizer = load_tokenizer(model);
    prompts.ids = dataset_prompts(*config, *prompts.tokenizer, v.batch);
  } else {
    if (sources == 0 && isatty(STDIN_FILENO) != 0) {
      throw base::UsageError("a prompt is missing: --prompt T, --prompt-file F, --prompt-ids F.json or standard input");
    }
    prompts.ids = read_texts(flags, v, prompts.tokenizer, model);
  }
  check_ids(prompts.ids, model, vocab_size);
  if (prompts.ids.size() == 1) {
    prompts.ids.resize(static_cast<size_t>(v.batch), prompts.ids.front());
  } else if (!prompts.is_dataset && flags.given("--batch") && v.batch > 1) {
    throw base::UsageError("--batch and several --prompt-file exclude each other");
  }
  return prompts;
}

}  // namespace tidepool::cli
