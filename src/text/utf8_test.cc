#include "text/utf8.h"

#include <gtest/gtest.h>

namespace tidepool::text {
namespace {

std::string lossy(std::string_view bytes) {
  std::string out;
  EXPECT_EQ(append_lossy_utf8(bytes, true, out), bytes.size());
  return out;
}

TEST(Utf8, every_scalar_value_is_written_read_and_valid) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text = "a";
    append_utf8(c, text);
    ASSERT_EQ(find_invalid_utf8(text), std::string_view::npos) << static_cast<uint32_t>(c);
    ASSERT_EQ(code_point_at(text, 1).value, c);
    CodePoint before = code_point_before(text, text.size());
    ASSERT_EQ(before.value, c);
    ASSERT_EQ(before.len, text.size() - 1);
  }
}

TEST(Utf8, the_offset_of_the_first_bad_sequence_is_found) {
  const std::string ascii(100, 'x');
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\x80", "\xED\xA0\x80", "\xF0\x8F\x80\x80", "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80", "\xFF", "\xE2\x82", "\xF0\x9F\x99", "\xC3", "\xC3x"}) {
    EXPECT_EQ(find_invalid_utf8(bad), 0u);
    EXPECT_EQ(find_invalid_utf8(ascii + "\xC3\xA9" + bad), 102u);
    EXPECT_EQ(find_invalid_utf8(ascii + "\xC3\xA9" + bad + ascii), 102u);
  }
  EXPECT_EQ(find_invalid_utf8(""), std::string_view::npos);
}

TEST(Utf8, each_maximal_bad_part_becomes_one_replacement_character) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(lossy("a\xC3\xA9z"), "a\xC3\xA9z");
  EXPECT_EQ(lossy("\xE2\x82"), r);
  EXPECT_EQ(lossy("\xE2\x82x"), r + "x");
  EXPECT_EQ(lossy("\xF0\x9F\x99\xE2\x82\xAC"), r + "\xE2\x82\xAC");
  EXPECT_EQ(lossy("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(lossy("\xC0\x80\xFF"), r + r + r);
}

TEST(Utf8, an_unfinished_sequence_at_the_end_is_left_for_later) {
  std::string out;
  EXPECT_EQ(append_lossy_utf8("a\xF0\x9F\x99", false, out), 1u);
  EXPECT_EQ(out, "a");
}

TEST(Utf8, white_space_and_word_characters_are_those_of_unicode) {
  for (char32_t c : {U' ', U'\t', U'\n', U'\r', char32_t{0x85}, char32_t{0xA0}, char32_t{0x2028}, char32_t{0x3000}}) {
    EXPECT_TRUE(is_white_space(c));
  }
  for (char32_t c : {U'a', U'_', char32_t{0x180E}, char32_t{0x200B}}) EXPECT_FALSE(is_white_space(c));
  for (char32_t c : {U'a', U'_', U'7', char32_t{0x301}, char32_t{0x4E2D}, char32_t{0x24B6}}) EXPECT_TRUE(is_word(c));
  for (char32_t c : {U' ', U'-', U'$', char32_t{0xB2}}) EXPECT_FALSE(is_word(c));
}

}  // namespace
}  // namespace tidepool::text
