// The byte-level alphabet: every byte is written as one printable character, so that a vocabulary of strings can hold
// any bytes. Printable Latin-1 bytes stand for themselves, the others for U+0100 upwards. Thread safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tidepool::text {

// The character that stands for `byte`.
char32_t byte_level_char(uint8_t byte);

// `bytes` in the alphabet, appended to `out`.
void append_byte_level(std::string_view bytes, std::string& out);

// The bytes that `token` (valid UTF-8) stands for; nothing when a character of it is outside the alphabet.
std::optional<std::string> byte_level_bytes(std::string_view token);

}  // namespace tidepool::text
