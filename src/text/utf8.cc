#include "text/utf8.h"

#include <utf8proc.h>

#include <cstdint>
#include <cstring>

namespace tidepool::text {
namespace {

enum class Verdict { kValid, kInvalid, kCutOff };

struct Sequence {
  Verdict verdict;
  size_t len;  // of the sequence, or of the longest part that could have begun one
};

Sequence sequence_at(std::string_view text, size_t pos) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  uint8_t lead = byte(pos);
  if (lead < 0x80) return {Verdict::kValid, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Verdict::kInvalid, 1};
  size_t len = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte alone rules out overlong forms, surrogates and values above U+10FFFF.
  uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < len; ++i) {
    if (pos + i == text.size()) return {Verdict::kCutOff, i};
    if (byte(pos + i) < low || byte(pos + i) > high) return {Verdict::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Verdict::kValid, len};
}

// First position at or after `pos` where a byte is not ASCII, found eight bytes at a time.
size_t skip_ascii(std::string_view text, size_t pos) {
  while (pos + 8 <= text.size()) {
    uint64_t word;
    std::memcpy(&word, text.data() + pos, 8);
    if ((word & 0x8080808080808080u) != 0) break;
    pos += 8;
  }
  while (pos < text.size() && static_cast<uint8_t>(text[pos]) < 0x80) ++pos;
  return pos;
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  size_t pos = skip_ascii(text, 0);
  while (pos < text.size()) {
    Sequence sequence = sequence_at(text, pos);
    if (sequence.verdict != Verdict::kValid) return pos;
    pos += sequence.len;
    if (pos < text.size() && static_cast<uint8_t>(text[pos]) < 0x80) pos = skip_ascii(text, pos);
  }
  return std::string_view::npos;
}

CodePoint code_point_at(std::string_view text, size_t pos) {
  auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[pos + i])); };
  char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

CodePoint code_point_before(std::string_view text, size_t pos) {
  size_t start = pos - 1;
  while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
  return code_point_at(text, start);
}

void append_utf8(char32_t value, std::string& out) {
  auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | value >> 6);
    put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | value >> 12);
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | value >> 18);
    put(0x80 | (value >> 12 & 0x3F));
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  }
}

size_t append_lossy_utf8(std::string_view bytes, bool is_end, std::string& out) {
  size_t pos = 0;
  while (pos < bytes.size()) {
    Sequence sequence = sequence_at(bytes, pos);
    if (sequence.verdict == Verdict::kCutOff && !is_end) break;
    if (sequence.verdict == Verdict::kValid) {
      out.append(bytes.substr(pos, sequence.len));
    } else {
      append_utf8(0xFFFD, out);
    }
    pos += sequence.len;
  }
  return pos;
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
  if (c == 0x85 || c == 0x2028 || c == 0x2029) return true;
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ZS;
}

bool is_word(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      // Symbols that Unicode counts as alphabetic (enclosed letters), and the two joiners.
      return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
             (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  }
}

}  // namespace tidepool::text
