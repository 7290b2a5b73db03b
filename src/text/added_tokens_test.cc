#include "text/added_tokens.h"

#include <gtest/gtest.h>

#include "text/tokenizer_test_support.h"

namespace tidepool::text {
namespace {

using base::Json;
using Ids = std::vector<int32_t>;

SmallTokenizer with(base::JsonArray tokens) {
  SmallTokenizer small;
  small.added_tokens = std::move(tokens);
  return small;
}

// The expected ids of this file are those of the Hugging Face library.
TEST(AddedTokens, the_leftmost_and_longest_token_wins) {
  auto tokenizer = with({added_token("<a>", 300), added_token("<ab", 301), added_token("<abc>", 302)}).make();
  EXPECT_EQ(tokenizer.encode("<a><abc><abx<"), (Ids{300, 302, 301, 'x', '<'}));
  EXPECT_EQ(tokenizer.encode("<a"), (Ids{'<', 'a'}));
}

TEST(AddedTokens, strip_flags_swallow_white_space_of_every_kind) {
  auto left = with({added_token("<l>", 300, {"lstrip"})}).make();
  EXPECT_EQ(left.encode("a \u3000\n<l> b"), (Ids{'a', 300, ' ', 'b'}));
  auto right = with({added_token("<r>", 300, {"rstrip"})}).make();
  EXPECT_EQ(right.encode("a <r> \u2028\tb"), (Ids{'a', ' ', 300, 'b'}));
  auto both = with({added_token("<b>", 300, {"lstrip", "rstrip"})}).make();
  EXPECT_EQ(both.encode(" <b> <b> "), (Ids{300, 300}));
}

TEST(AddedTokens, a_token_of_white_space_that_is_already_swallowed_is_dropped) {
  auto tokenizer = with({added_token("  ", 300, {"lstrip", "rstrip"})}).make();
  EXPECT_EQ(tokenizer.encode("a    b"), (Ids{'a', 300, 'b'}));
  auto two = with({added_token("<m>", 300, {"rstrip"}), added_token(" x", 301)}).make();
  EXPECT_EQ(two.encode("<m>  x"), (Ids{300, 301}));
}

TEST(AddedTokens, a_single_word_token_is_no_part_of_a_longer_word) {
  auto tokenizer = with({added_token("ab", 300, {"single_word"})}).make();
  EXPECT_EQ(tokenizer.encode("ab,ab"), (Ids{300, ',', 300}));
  EXPECT_EQ(tokenizer.encode("xab"), (Ids{'x', 'a', 'b'}));
  EXPECT_EQ(tokenizer.encode("ab_"), (Ids{'a', 'b', '_'}));
  EXPECT_EQ(tokenizer
                .encode("\u00E9"
                        "ab")
                .size(),
            4u);
}

TEST(AddedTokens, normalized_tokens_are_looked_for_in_the_normalised_text_only) {
  auto small = with({added_token("fi", 300, {"normalized"}), added_token("12", 301)});
  small.normalizer = Json::parse(R"({"type": "NFKC"})", "test");
  auto tokenizer = small.make();
  EXPECT_EQ(tokenizer.encode("\uFB01"), (Ids{300}));
  EXPECT_EQ(tokenizer.encode("\u2460\u2461"), (Ids{'1', '2'}));
  EXPECT_EQ(tokenizer.encode("12"), (Ids{301}));
}

TEST(AddedTokens, a_token_of_the_model_keeps_its_id_and_merges_make_no_added_token) {
  SmallTokenizer small = with({added_token("ab", 256)});
  small.merges = {{"a", "b"}};
  EXPECT_EQ(small.make().encode("ab"), (Ids{256}));
  Json json = with({added_token("ab", 300, {"single_word"})}).json();
  Json model = json.at("model");
  model.set("ignore_merges", true);
  json.set("model", model);
  EXPECT_EQ(Tokenizer::from_json(json.dump(), "small").encode("_ab"), (Ids{'_', 'a', 'b'}));
}

TEST(AddedTokens, clashes_and_bad_entries_are_errors) {
  auto error_of = [](base::JsonArray tokens) { return load_error(with(std::move(tokens)).json().dump()); };
  EXPECT_NE(error_of({added_token("a", 300)}).find("differs from its id"), std::string::npos);
  EXPECT_NE(error_of({added_token("<x>", 97)}).find("two tokens"), std::string::npos);
  EXPECT_NE(error_of({added_token("<x>", 300), added_token("<y>", 300)}).find("two tokens"), std::string::npos);
  EXPECT_NE(error_of({added_token("<x>", 300), added_token("<x>", 300)}).find("listed twice"), std::string::npos);
  EXPECT_NE(error_of({added_token("", 300)}).find("empty"), std::string::npos);
  EXPECT_NE(error_of({added_token("<x>", -1)}).find("-1"), std::string::npos);
  EXPECT_NE(error_of({added_token("<x>", int64_t{1} << 40)}).find("1099511627776"), std::string::npos);
  for (const char* bad :
       {"1", "{}", R"({"id": 300})", R"({"content": "x"})", R"({"id": "1", "content": "<x>"})",
        R"({"id": 300, "content": "<x>", "special": 1})", R"({"id": 300, "content": "<x>", "new": 1})"}) {
    EXPECT_NE(error_of({Json::parse(bad, "test")}), "") << bad;
  }
  auto alike = with({added_token("\uFB01", 300, {"normalized"}), added_token("fi", 301, {"normalized"})});
  EXPECT_EQ(load_error(alike.json().dump()), "");
  alike.normalizer = Json::parse(R"({"type": "NFKC"})", "test");
  EXPECT_NE(load_error(alike.json().dump()).find("looks like an earlier one"), std::string::npos);
}

}  // namespace
}  // namespace tidepool::text
