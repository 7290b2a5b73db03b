#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "tidepool/error.h"

namespace tidepool::text {
namespace {

using base::Json;
using Pieces = std::vector<std::string>;

constexpr const char* kByteLevel = R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})";

Pieces run(const std::string& json, std::string_view text) {
  auto pre_tokenizer = PreTokenizer::from_json(Json::parse(json, "test"), "pre_tokenizer");
  PreTokenizer::Scratch scratch(pre_tokenizer);
  std::vector<std::string_view> views;
  pre_tokenizer.run(text, scratch, views);
  return {views.begin(), views.end()};
}

std::string sequence(const std::string& first, const std::string& last = kByteLevel) {
  return R"({"type": "Sequence", "pretokenizers": [)" + first + ", " + last + "]}";
}

Pieces split(const std::string& pattern, const std::string& behavior, std::string_view text, bool invert = false) {
  return run(sequence(R"({"type": "Split", "pattern": )" + pattern + R"(, "behavior": ")" + behavior +
                      R"(", "invert": )" + (invert ? "true" : "false") + "}"),
             text);
}

// The expected pieces are those of the Hugging Face library.
TEST(PreTokenizer, every_behaviour_of_split_joins_matches_as_its_name_says) {
  const char* dash = R"({"String": "-"})";
  const char* text = "the-final--countdown-";
  EXPECT_EQ(split(dash, "Removed", text), (Pieces{"the", "final", "countdown"}));
  EXPECT_EQ(split(dash, "Isolated", text), (Pieces{"the", "-", "final", "-", "-", "countdown", "-"}));
  EXPECT_EQ(split(dash, "MergedWithPrevious", text), (Pieces{"the-", "final-", "-", "countdown-"}));
  EXPECT_EQ(split(dash, "MergedWithNext", text), (Pieces{"the", "-final", "-", "-countdown", "-"}));
  EXPECT_EQ(split(dash, "Contiguous", text), (Pieces{"the", "-", "final", "--", "countdown", "-"}));
}

TEST(PreTokenizer, invert_swaps_matches_and_the_rest) {
  EXPECT_EQ(split(R"({"Regex": "\\d+"})", "Removed", "ab12cd3", true), (Pieces{"12", "3"}));
  EXPECT_EQ(split(R"({"Regex": "\\d+"})", "Removed", "ab12cd3", false), (Pieces{"ab", "cd"}));
}

TEST(PreTokenizer, empty_matches_cut_between_characters) {
  EXPECT_EQ(split(R"({"Regex": "x*"})", "Isolated", "a\u00E9x"), (Pieces{"a", "\u00E9", "x"}));
  EXPECT_EQ(split(R"({"String": ""})", "Isolated", "ab"), (Pieces{"a", "b"}));
  EXPECT_EQ(split("{\"Regex\": \"(?=b)\"}", "Isolated", "abab"), (Pieces{"a", "ba", "b"}));
}

TEST(PreTokenizer, later_steps_see_only_the_pieces_of_earlier_ones) {
  std::string two = R"({"type": "Split", "pattern": {"String": "-"}, "behavior": "Removed"},
                       {"type": "Split", "pattern": {"Regex": "^."}, "behavior": "Isolated", "invert": false})";
  EXPECT_EQ(run(sequence(two), "ab-cd"), (Pieces{"a", "b", "c", "d"}));
}

TEST(PreTokenizer, digits_are_cut_together_or_one_by_one) {
  EXPECT_EQ(run(sequence(R"({"type": "Digits", "individual_digits": false})"), "a12b"), (Pieces{"a", "12", "b"}));
  EXPECT_EQ(run(sequence(R"({"type": "Digits", "individual_digits": true})"), "a12b"), (Pieces{"a", "1", "2", "b"}));
}

TEST(PreTokenizer, byte_level_puts_a_space_before_every_piece_that_lacks_one) {
  EXPECT_EQ(run(R"({"type": "ByteLevel", "add_prefix_space": true, "use_regex": true})", "ab cd"),
            (Pieces{" ab", " cd"}));
  std::string split_at_dash = R"({"type": "Split", "pattern": {"String": "-"}, "behavior": "Removed"})";
  EXPECT_EQ(run(sequence(split_at_dash, R"({"type": "ByteLevel"})"), "a- b"), (Pieces{" a", " b"}));
}

TEST(PreTokenizer, the_pattern_of_byte_level_keeps_contractions_spaces_and_words_apart) {
  EXPECT_EQ(run(R"({"type": "ByteLevel", "add_prefix_space": false})", "it's  12 ok!\n"),
            (Pieces{"it", "'s", " ", " 12", " ok", "!", "\n"}));
  EXPECT_EQ(run(R"({"type": "ByteLevel", "add_prefix_space": false})", ""), Pieces{});
}

TEST(PreTokenizer, what_is_not_supported_is_refused_by_name_and_place) {
  auto error_of = [](const std::string& json) -> std::string {
    try {
      PreTokenizer::from_json(Json::parse(json, "test"), "pre_tokenizer");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(error_of(sequence(R"({"type": "Metaspace"})"))
                .find("pre_tokenizer.pretokenizers[0]: pre-tokenizer \"Metaspace\""),
            std::string::npos);
  EXPECT_NE(error_of("null"), "");
  EXPECT_NE(error_of(R"({"type": "Digits"})").find("no ByteLevel"), std::string::npos);
  EXPECT_NE(error_of(sequence(kByteLevel, kByteLevel)).find("ByteLevel after ByteLevel"), std::string::npos);
  EXPECT_NE(error_of(sequence(R"({"type": "Digits", "individual_digits": 1})")).find("individual_digits"),
            std::string::npos);
  for (const char* bad : {R"({"type": "Split"})", R"({"type": "Split", "pattern": "a", "behavior": "Isolated"})",
                          R"({"type": "Split", "pattern": {"Glob": "a"}, "behavior": "Isolated"})",
                          R"({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"})",
                          R"({"type": "Split", "pattern": {"Regex": 1}, "behavior": "Isolated"})",
                          R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Sideways"})",
                          R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Isolated", "extra": true})"}) {
    EXPECT_NE(error_of(sequence(bad)), "") << bad;
  }
}

}  // namespace
}  // namespace tidepool::text
