#include "base/text.h"

#include <gtest/gtest.h>

namespace tidepool::base {
namespace {

TEST(Text, BytesAreShownInAUnitThatFits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(10737), "10.5 KiB");
  EXPECT_EQ(bytes_text(uint64_t{3} << 30), "3.0 GiB");
}

TEST(Text, ControlCharactersAreSpelledOut) {
  EXPECT_EQ(one_line("a\nb\r\t\x1b[2J\x7f"), "a\\nb\\r\\t\\x1b[2J\\x7f");
  EXPECT_EQ(one_line("größe"), "größe");
}

TEST(Text, LongNamesAreCutBetweenCharacters) {
  EXPECT_EQ(shown(std::string(120, 'x')), std::string(120, 'x'));
  EXPECT_EQ(shown(std::string(5000, 'x')), std::string(120, 'x') + "... (5000 bytes)");
  EXPECT_EQ(shown(std::string(119, 'x') + "ö and more"), std::string(119, 'x') + "... (130 bytes)");
}

TEST(NearestName, PrefersPartsOfNamesThenFewEdits) {
  EXPECT_EQ(nearest_name("dmup", {"info", "dump", "bench"}), "dump");
  EXPECT_EQ(nearest_name("token", {"detokenize", "dump"}), "detokenize");
  EXPECT_EQ(nearest_name("x", {}), "");
}

}  // namespace
}  // namespace tidepool::base
