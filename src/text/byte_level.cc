#include "text/byte_level.h"

#include <array>

#include "text/utf8.h"

namespace tidepool::text {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr int kNumOthers = 68;  // bytes that do not stand for themselves

struct Alphabet {
  std::array<char32_t, 256> char_of_byte{};
  std::array<int16_t, 256 + kNumOthers> byte_of_char{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte_of_char) byte = -1;
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    char32_t c = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
    alphabet.char_of_byte[static_cast<size_t>(byte)] = c;
    alphabet.byte_of_char[c] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

char32_t byte_level_char(uint8_t byte) { return kAlphabet.char_of_byte[byte]; }

void append_byte_level(std::string_view bytes, std::string& out) {
  for (char byte : bytes) append_utf8(byte_level_char(static_cast<uint8_t>(byte)), out);
}

std::optional<std::string> byte_level_bytes(std::string_view token) {
  std::string bytes;
  for (size_t pos = 0; pos < token.size();) {
    CodePoint c = code_point_at(token, pos);
    if (c.value >= kAlphabet.byte_of_char.size() || kAlphabet.byte_of_char[c.value] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte_of_char[c.value]);
    pos += c.len;
  }
  return bytes;
}

}  // namespace tidepool::text
