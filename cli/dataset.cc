#include "dataset.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/check.h"
#include "base/flags.h"
#include "base/json.h"
#include "base/text.h"
#include "prompt.h"

namespace tidepool::cli {
namespace {

using Ids = std::vector<int32_t>;

constexpr size_t kMaxLineBytes = size_t{256} << 20;

// The lines of a file, one after the other: a data set can be far larger than the part of it that is wanted.
class Lines {
 public:
  explicit Lines(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "rb"), std::fclose) {
    tidepool_check(file_ != nullptr, "{}: cannot be read: {}", path_, std::strerror(errno));
  }

  int64_t number() const { return number_; }  // of the last line, from 1

  // Without the line break; nothing at the end of the file.
  std::optional<std::string> next() {
    size_t searched = 0;
    for (;;) {
      const size_t end = rest_.find('\n', searched);
      if (end != std::string::npos) return take(end, end + 1);
      if (is_at_end_) break;
      searched = rest_.size();
      fill();
    }
    if (rest_.empty()) return std::nullopt;
    return take(rest_.size(), rest_.size());
  }

 private:
  std::string take(size_t length, size_t used) {
    std::string line = rest_.substr(0, length);
    rest_.erase(0, used);
    ++number_;
    return line;
  }

  void fill() {
    const size_t before = rest_.size();
    rest_.resize(before + (size_t{1} << 16));
    const size_t count = std::fread(rest_.data() + before, 1, rest_.size() - before, file_.get());
    rest_.resize(before + count);
    tidepool_check(std::ferror(file_.get()) == 0, "{}: cannot be read: {}", path_, std::strerror(errno));
    tidepool_check(rest_.size() <= kMaxLineBytes, "{}:{}: the line is longer than the {} that one may have", path_,
                   number_ + 1, base::bytes_text(kMaxLineBytes));
    is_at_end_ = count == 0;
  }

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::string rest_;  // read, and not taken yet
  int64_t number_ = 0;
  bool is_at_end_ = false;
};

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

// The field "context" of up to `most` lines.
std::vector<std::string> read_contexts(const std::string& path, int32_t most) {
  Lines lines(path);
  std::vector<std::string> contexts;
  while (contexts.size() < static_cast<size_t>(most)) {
    const std::optional<std::string> line = lines.next();
    if (!line) break;
    if (is_blank(*line)) continue;
    const std::string what = fmt::format("{}:{}", path, lines.number());
    const base::Json json = base::Json::parse(*line, what);
    tidepool_check(json.is_object(), "{}: a line must be an object, not {}", what, json.kind());
    const base::Json* context = json.find("context");
    tidepool_check(context != nullptr, "{}: the object has no \"context\"", what);
    tidepool_check(context->is_string(), "{}: \"context\" must be a text, not {}", what, context->kind());
    tidepool_check(!context->as_string().empty(), "{}: \"context\" is empty", what);
    contexts.push_back(context->as_string());
  }
  tidepool_check(!contexts.empty(), "{}: there is no line in it", path);
  return contexts;
}

std::vector<std::string> read_prompt_list(const std::string& path) {
  const base::Json json = base::Json::parse(read_file(path), path);
  tidepool_check(json.is_array() && !json.as_array().empty(), "{}: must be a JSON list of texts, with at least one",
                 path);
  std::vector<std::string> prompts;
  for (const base::Json& item : json.as_array()) {
    tidepool_check(item.is_string() && !item.as_string().empty(), "{}: item {} must be a text that is not empty", path,
                   prompts.size());
    prompts.push_back(item.as_string());
  }
  return prompts;
}

size_t input_max_len(const PublishedConfig& config) { return static_cast<size_t>(config.input_len()); }

Ids cut(Ids ids, size_t len) {
  ids.resize(std::min(ids.size(), len));
  return ids;
}

std::vector<Ids> plain_prompts(const PublishedConfig& config, const text::Tokenizer& tokenizer, int32_t batch) {
  std::vector<std::string> texts(default_prompts().begin(), default_prompts().end());
  if (!config.dataset_path.empty()) texts = read_prompt_list(config.dataset_path);
  texts.resize(std::min(texts.size(), static_cast<size_t>(batch)));
  std::vector<Ids> prompts;
  for (const std::string& text : texts) prompts.push_back(cut(tokenizer.encode(text), input_max_len(config)));
  return prompts;
}

std::vector<Ids> context_prompts(const PublishedConfig& config, const text::Tokenizer& tokenizer, int32_t batch) {
  if (config.dataset_path.empty()) {
    throw base::UsageError(fmt::format("{} {}: it needs dataset_path, a file of JSON lines with a \"context\" each",
                                       config.at("dataset"), config.dataset));
  }
  const Ids front = tokenizer.encode(system_prompt());
  if (input_max_len(config) < front.size()) {
    throw base::UsageError(fmt::format("{} {}: the system prompt alone has {} tokens", config.at("input_max_len"),
                                       config.input_max_len, front.size()));
  }
  std::vector<Ids> prompts;
  for (const std::string& context : read_contexts(config.dataset_path, batch)) {
    Ids ids = front;
    const Ids rest = cut(tokenizer.encode(context, false), input_max_len(config) - front.size());
    ids.insert(ids.end(), rest.begin(), rest.end());
    prompts.push_back(std::move(ids));
  }
  return prompts;
}

void check_path(const PublishedConfig& config) {
  const std::string& path = config.dataset_path;
  std::error_code error;
  if (path.empty() || std::filesystem::exists(path, error)) {
    if (!std::filesystem::is_directory(path, error)) return;
    throw base::UsageError(fmt::format("{} {}: a directory, not a file", config.at("dataset_path"), path));
  }
  throw base::UsageError(fmt::format("{} {}: there is no such file", config.at("dataset_path"), path));
}

}  // namespace

std::vector<Ids> dataset_prompts(const PublishedConfig& config, const text::Tokenizer& tokenizer, int32_t batch) {
  check_path(config);
  std::vector<Ids> prompts =
      config.dataset == "default" ? plain_prompts(config, tokenizer, batch) : context_prompts(config, tokenizer, batch);
  const size_t num_own = prompts.size();
  while (prompts.size() < static_cast<size_t>(batch)) prompts.push_back(prompts[prompts.size() % num_own]);
  return prompts;
}

}  // namespace tidepool::cli
