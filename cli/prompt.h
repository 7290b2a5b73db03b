// Reading what the caller gives: texts, files of ids; and showing ids as text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace tidepool::cli {

// The bytes of a file, or of standard input; pipes are fine, more than 256 MiB are not. Throws Error naming the file.
std::string read_file(const std::string& path);
std::string read_stdin();

// Throws Error for a text that is empty or not UTF-8; `what` names it.
void check_text(std::string_view text, const std::string& what);

// Ids of the file `path`, all in [0, vocab_size).
std::vector<int32_t> read_ids(const std::string& path, int64_t vocab_size);

// The tokenizer of a checkpoint directory. Throws, naming the file, when there is none.
text::Tokenizer load_tokenizer(const std::string& model);
// Nothing when the directory has no tokenizer.json.
std::optional<text::Tokenizer> find_tokenizer(const std::string& model);

// Streams ids as text; ids that the tokenizer does not know (a model's vocabulary can be padded) become U+FFFD.
class TextStream {
 public:
  explicit TextStream(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer), detokenizer_(tokenizer, true) {}
  std::string push(int32_t id);
  std::string finish() { return detokenizer_.finish(); }

 private:
  const text::Tokenizer& tokenizer_;
  text::Detokenizer detokenizer_;
};
std::string ids_text(const text::Tokenizer& tokenizer, const std::vector<int32_t>& ids);

}  // namespace tidepool::cli
