// UTF-8: validation, code points, and the replacement of bad bytes. Free functions without state, so thread safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tidepool::text {

// Byte offset of the first byte that starts no valid UTF-8 sequence; std::string_view::npos when all of it is valid.
// Overlong forms, surrogates and values above U+10FFFF are invalid.
size_t find_invalid_utf8(std::string_view text);

// One code point of valid UTF-8.
struct CodePoint {
  char32_t value;
  size_t len;  // bytes
};

// The code point that starts at `pos` or that ends before `pos`. Requires valid UTF-8 and a boundary; pos < text.size()
// for the first, pos > 0 for the second.
CodePoint code_point_at(std::string_view text, size_t pos);
CodePoint code_point_before(std::string_view text, size_t pos);

// Appends `value` (a Unicode scalar value) as UTF-8.
void append_utf8(char32_t value, std::string& out);

// Appends `bytes` to `out` with every maximal invalid part replaced by U+FFFD. A sequence cut off by the end of `bytes`
// is replaced too when `is_end`, and otherwise left alone. Returns how many bytes were used up.
size_t append_lossy_utf8(std::string_view bytes, bool is_end, std::string& out);

// Unicode White_Space (what \s means).
bool is_white_space(char32_t c);
// Letter, mark, decimal digit, letter number, connector, joiner (what \w means).
bool is_word(char32_t c);

}  // namespace tidepool::text
