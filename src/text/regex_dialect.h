// Translates the regular expressions of tokenizer.json, written for Oniguruma, to PCRE2 (UTF, UCP, MULTILINE).
//
// Most of the two languages is the same; what differs is rewritten (\s \w \b \h \v \u and the flag m) or, where the
// same text would silently mean something else (class intersections, nested classes, POSIX brackets, possessive
// intervals, rare escapes and groups), refused with an Error that names the construct and its byte offset.
#pragma once

#include <string>
#include <string_view>

namespace tidepool::text {

// `pattern` is valid UTF-8. `where` names it in errors. Whether the result compiles is not checked here.
std::string translate_regex(std::string_view pattern, std::string_view where);

}  // namespace tidepool::text
