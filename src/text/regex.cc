#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <new>

#include "base/check.h"
#include "text/regex_dialect.h"
#include "text/utf8.h"

namespace tidepool::text {
namespace {

constexpr size_t kMaxPatternBytes = 64 * 1024;
constexpr size_t kBaseSteps = 1'000'000;
constexpr size_t kStepsPerByte = 16;
constexpr uint32_t kMaxHeapKib = 256 * 1024;

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

pcre2_code* compile(std::string_view pattern, uint32_t options, std::string_view where) {
  std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &error,
                                   &offset, context.get());
  tidepool_check(code != nullptr, "{}: regular expression \"{}\" does not compile: {}", where, pattern,
                 message_of(error));
  return code;
}

}  // namespace

void Regex::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }
void Regex::Matcher::Free::operator()(pcre2_real_match_data_8* data) const { pcre2_match_data_free(data); }
void Regex::Matcher::Free::operator()(pcre2_real_match_context_8* context) const { pcre2_match_context_free(context); }

Regex::Regex(std::string_view pattern, Kind kind, std::string where) : where_(std::move(where)) {
  tidepool_check(pattern.size() <= kMaxPatternBytes, "{}: regular expression of {} bytes, the limit is {}", where_,
                 pattern.size(), kMaxPatternBytes);
  size_t bad = find_invalid_utf8(pattern);
  tidepool_check(bad == std::string_view::npos, "{}: regular expression is not valid UTF-8 at byte {}", where_, bad);
  if (kind == Kind::kLiteral) {
    code_.reset(compile(pattern, PCRE2_LITERAL | PCRE2_UTF, where_));
  } else {
    std::string translated = translate_regex(pattern, where_);
    code_.reset(compile(translated, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, where_));
  }
  // Without JIT (no support, no executable memory) matching falls back to the interpreter by itself.
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
}

Regex::Matcher::Matcher(const Regex& regex)
    : regex_(&regex),
      data_(pcre2_match_data_create_from_pattern(regex.code_.get(), nullptr)),
      context_(pcre2_match_context_create(nullptr)) {
  if (data_ == nullptr || context_ == nullptr) throw std::bad_alloc();
  pcre2_set_heap_limit(context_.get(), kMaxHeapKib);
}

bool Regex::Matcher::find(std::string_view subject, size_t start, Match& match) {
  size_t steps = kBaseSteps + kStepsPerByte * (subject.size() - start);
  pcre2_set_match_limit(context_.get(), static_cast<uint32_t>(std::min<size_t>(steps, UINT32_MAX)));
  auto* text = reinterpret_cast<PCRE2_SPTR>(subject.data());
  auto run = [&](uint32_t options) {
    return pcre2_match(regex_->code_.get(), text, subject.size(), start, options, data_.get(), context_.get());
  };
  // The whole text was validated once; a check at every search would make the time quadratic.
  int result = run(PCRE2_NO_UTF_CHECK);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = run(PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  tidepool_check(result > 0, "{}: regular expression gave up on a text at byte {}: {}", regex_->where_, start,
                 message_of(result));
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data_.get());
  match = {range[0], range[1]};
  return true;
}

}  // namespace tidepool::text
