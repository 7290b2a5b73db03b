#include "prompt.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "base/file.h"
#include "base/text.h"
#include "text/ids.h"
#include "text/utf8.h"

namespace tidepool::cli {
namespace {

constexpr size_t kMaxTextBytes = size_t{256} << 20;   // more tokens than any model reads
constexpr const char* kReplacement = "\xef\xbf\xbd";  // U+FFFD

std::string read_stream(std::FILE* file, const std::string& what) {
  std::string bytes;
  std::string buffer(1 << 16, '\0');
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), file)) {
    bytes.append(buffer, 0, count);
    tidepool_check(bytes.size() <= kMaxTextBytes, "{}: longer than the {} that a text may have", what,
                   base::bytes_text(kMaxTextBytes));
  }
  tidepool_check(std::ferror(file) == 0, "{}: cannot be read: {}", what, std::strerror(errno));
  return bytes;
}

}  // namespace

std::string read_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  tidepool_check(file != nullptr, "{}: cannot be read: {}", path, std::strerror(errno));
  return read_stream(file.get(), path);
}

std::string read_stdin() { return read_stream(stdin, "standard input"); }

void check_text(std::string_view text, const std::string& what) {
  tidepool_check(!text.empty(), "{}: the text is empty", what);
  const size_t bad = text::find_invalid_utf8(text);
  tidepool_check(bad == std::string_view::npos, "{}: not UTF-8: byte 0x{:02x} at offset {}", what,
                 static_cast<unsigned char>(text[bad]), bad);
}

std::vector<int32_t> read_ids(const std::string& path, int64_t vocab_size) {
  return text::parse_ids(read_file(path), path, vocab_size);
}

text::Tokenizer load_tokenizer(const std::string& model) { return text::Tokenizer::load(model + "/tokenizer.json"); }

std::optional<text::Tokenizer> find_tokenizer(const std::string& model) {
  if (!base::path_exists(model + "/tokenizer.json")) return std::nullopt;
  return load_tokenizer(model);
}

std::string TextStream::push(int32_t id) {
  if (tokenizer_.contains(id)) return detokenizer_.push(id);
  return detokenizer_.finish() + kReplacement;
}

std::string ids_text(const text::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  TextStream stream(tokenizer);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  return text + stream.finish();
}

}  // namespace tidepool::cli
