#include "text/regex.h"

#include <gtest/gtest.h>

#include "text/regex_dialect.h"
#include "text/utf8.h"
#include "tidepool/error.h"

namespace tidepool::text {
namespace {

bool matches_whole(const char* pattern, std::string_view text) {
  Regex regex(pattern, Regex::Kind::kOniguruma, "test");
  Regex::Matcher matcher(regex);
  Regex::Match match{};
  return matcher.find(text, 0, match) && match.begin == 0 && match.end == text.size();
}

std::string error_of(std::string_view pattern) {
  try {
    Regex(pattern, Regex::Kind::kOniguruma, "the place");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Regex, classes_mean_what_they_mean_in_oniguruma) {
  EXPECT_TRUE(matches_whole(R"(\s)", "\u0085"));
  EXPECT_FALSE(matches_whole(R"(\s)", "\u180E"));
  EXPECT_TRUE(matches_whole(R"([^\S])", "\u2028"));
  EXPECT_TRUE(matches_whole(R"(\w+)", "a\u0301_\u00B2"));
  EXPECT_FALSE(matches_whole(R"([\w]+)", "\u00B2"));
  EXPECT_TRUE(matches_whole(R"(\h+)", "09afAF"));
  EXPECT_TRUE(matches_whole(R"(\v)", "\x0B"));
  EXPECT_FALSE(matches_whole(R"(\v)", "\n"));
  EXPECT_TRUE(matches_whole(R"([\w-]+)", "a-b"));
  EXPECT_TRUE(matches_whole(R"(\p{Han}+)", "\u4E2D\u6587"));
  EXPECT_FALSE(matches_whole(R"(\p{Han})", "\u3001"));  // common to several scripts
  EXPECT_TRUE(matches_whole(R"(\p{^L}\P{L})", "12"));
  EXPECT_TRUE(matches_whole(R"(\u0061\x{4e2d}\x41)",
                            "a\u4E2D"
                            "A"));
  EXPECT_TRUE(matches_whole(R"((?m:.)(?i:x))", "\nX"));
  EXPECT_FALSE(matches_whole(R"(.)", "\n"));
  EXPECT_TRUE(matches_whole(R"(a\b.{1,2}\bb)", "a -b"));
  EXPECT_TRUE(matches_whole(R"({a})", "{a}"));
}

TEST(Regex, constructs_that_would_mean_something_else_are_refused_with_their_offset) {
  for (const char* pattern :
       {"[a&&b]",   "[a[b]]",  "[[:alpha:]]", "[]a]",     "[^]a]",   "(?x:a)",   "a(?i)b",           "(?<n>a)",
        "(?P<n>a)", "(*FAIL)", "(?#c)",       R"(\Qa\E)", R"(\C)",   R"(\1)",    R"(\k<n>)",         R"(\G)",
        R"(\K)",    R"(\R)",   R"(\X)",       R"(\xff)",  R"(\pL)",  R"(\x{g})", R"(\u12)",          "a{,3}",
        "a{2}+",    "a{2}?",   R"([\W])",     R"([\H])",  R"([\b])", R"([\A])",  R"(\p{Script=Han})"}) {
    std::string message = error_of(pattern);
    EXPECT_NE(message.find("the place: regular expression: "), std::string::npos) << pattern << ": " << message;
    EXPECT_NE(message.find(" is not supported"), std::string::npos) << pattern << ": " << message;
  }
}

TEST(Regex, patterns_that_do_not_compile_are_errors) {
  for (const char* pattern :
       {"(", "[a", ")", "*", R"(\)", R"(\p{Nonsense})", R"(\p{)", "[z-a]", "(?<=a*)", R"(\x{110000})"}) {
    EXPECT_NE(error_of(pattern), "") << pattern;
  }
  EXPECT_NE(error_of(std::string(100'000, 'a')), "");
  EXPECT_NE(error_of(std::string(10'000, '(') + std::string(10'000, ')')), "");
  EXPECT_NE(error_of("\xFF"), "");
}

TEST(Regex, a_literal_pattern_has_no_special_characters) {
  Regex regex(R"(.*\s[)", Regex::Kind::kLiteral, "test");
  Regex::Matcher matcher(regex);
  Regex::Match match{};
  ASSERT_TRUE(matcher.find(R"(ab.*\s[)", 0, match));
  EXPECT_EQ(match.begin, 2u);
  EXPECT_EQ(match.end, 7u);
  EXPECT_FALSE(matcher.find("aaaa", 0, match));
}

TEST(Regex, a_catastrophic_pattern_ends_in_an_error_instead_of_running_for_ever) {
  Regex regex("(?:a+)+[bc]", Regex::Kind::kOniguruma, "the place");
  Regex::Matcher matcher(regex);
  Regex::Match match{};
  EXPECT_THROW(matcher.find(std::string(5000, 'a'), 0, match), Error);
  EXPECT_TRUE(matcher.find("aab", 0, match));
}

TEST(Regex, a_match_that_needs_much_stack_succeeds_without_jit) {
  Regex regex("(?:(a|b)c)*d", Regex::Kind::kOniguruma, "test");
  Regex::Matcher matcher(regex);
  Regex::Match match{};
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "ac";
  ASSERT_TRUE(matcher.find(text + "d", 0, match));
  EXPECT_EQ(match.end, 200'001u);
}

}  // namespace
}  // namespace tidepool::text
