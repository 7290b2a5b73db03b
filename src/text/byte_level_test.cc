#include "text/byte_level.h"

#include <gtest/gtest.h>

#include <set>

namespace tidepool::text {
namespace {

TEST(ByteLevel, all_256_bytes_have_different_characters_and_come_back) {
  std::set<char32_t> seen;
  for (int byte = 0; byte < 256; ++byte) {
    seen.insert(byte_level_char(static_cast<uint8_t>(byte)));
    std::string token, bytes(1, static_cast<char>(byte));
    append_byte_level(bytes, token);
    EXPECT_EQ(byte_level_bytes(token), bytes);
  }
  EXPECT_EQ(seen.size(), 256u);
}

TEST(ByteLevel, the_characters_of_space_newline_and_letters_are_the_customary_ones) {
  std::string token;
  append_byte_level(" a\n\xAD", token);
  EXPECT_EQ(token, "\u0120a\u010A\u0143");
}

TEST(ByteLevel, a_token_with_a_character_outside_the_alphabet_stands_for_no_bytes) {
  EXPECT_EQ(byte_level_bytes("a b"), std::nullopt);
  EXPECT_EQ(byte_level_bytes("\u4E2D"), std::nullopt);
  EXPECT_EQ(byte_level_bytes("\u0144"), std::nullopt);
  EXPECT_EQ(byte_level_bytes(""), "");
}

}  // namespace
}  // namespace tidepool::text
