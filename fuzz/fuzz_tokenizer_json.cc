// A tokenizer.json of any bytes, then (after the first zero byte) a text of any bytes: loading, encoding, decoding and
// streaming may refuse with tidepool::Error and nothing else; what decodes must be valid UTF-8 and equal when streamed.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "tidepool/error.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void use(const tidepool::text::Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  try {
    ids = tokenizer.encode(text);
    require(tokenizer.encode(text, false).size() <= ids.size());
  } catch (const tidepool::Error&) {
    return;
  }
  for (int32_t id : ids) require(tokenizer.contains(id));
  std::string decoded = tokenizer.decode(ids);
  require(tidepool::text::find_invalid_utf8(decoded) == std::string_view::npos);
  tidepool::text::Detokenizer detokenizer(tokenizer);
  std::string streamed;
  for (int32_t id : ids) streamed += detokenizer.push(id);
  require(streamed + detokenizer.finish() == decoded);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  size_t end = input.find('\0');
  try {
    auto tokenizer = tidepool::text::Tokenizer::from_json(input.substr(0, end), "fuzzed");
    use(tokenizer, "ab  c\n12 it's \xC3\xA9 \xE4\xB8\xAD<s>");
    if (end != std::string_view::npos) use(tokenizer, input.substr(end + 1));
  } catch (const tidepool::Error&) {
  }
  return 0;
}
