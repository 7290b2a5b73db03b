#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "text/detokenizer.h"
#include "text/tokenizer_test_support.h"

namespace tidepool::text {
namespace {

using base::Json;
using Ids = std::vector<int32_t>;

SmallTokenizer with_template() {
  SmallTokenizer small;
  small.merges = {{"a", "b"}, {" ", "ab"}};
  small.added_tokens = base::JsonArray{added_token("<s>", 300, {"special"}), added_token("<think>", 301)};
  small.post_processor = Json::parse(R"({"type": "Sequence", "processors": [
      {"type": "ByteLevel", "trim_offsets": false},
      {"type": "TemplateProcessing",
       "single": [{"SpecialToken": {"id": "S", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                  {"SpecialToken": {"id": "E", "type_id": 0}}],
       "pair": [], "special_tokens": {"S": {"id": "S", "ids": [300], "tokens": ["<s>"]},
                                      "E": {"id": "E", "ids": [301, 300], "tokens": ["<think>", "<s>"]}}}]})",
                                     "test");
  return small;
}

std::string error_of(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Tokenizer, the_template_is_put_around_the_ids_unless_special_tokens_are_off) {
  auto tokenizer = with_template().make();
  EXPECT_EQ(tokenizer.encode("ab ab"), (Ids{300, 256, 257, 301, 300}));
  EXPECT_EQ(tokenizer.encode("ab<s>", false), (Ids{256, 300}));
  EXPECT_EQ(tokenizer.encode("", true), (Ids{300, 301, 300}));
  EXPECT_EQ(tokenizer.encode("", false), Ids{});
}

TEST(Tokenizer, decoding_gives_the_text_back_and_can_leave_special_tokens_out) {
  auto tokenizer = with_template().make();
  const std::string text = "ab\u00E9 \u4E2D\u6587 \U0001F642\n<think>x";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, false)), text);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text), true), text + "<think>");
  EXPECT_EQ(tokenizer.decode(Ids{0xE4, 'x'}), "\uFFFDx");
  EXPECT_EQ(tokenizer.decode(Ids{}), "");
}

TEST(Tokenizer, lookups_know_tokens_ids_bytes_and_gaps) {
  auto tokenizer = with_template().make();
  EXPECT_EQ(tokenizer.vocab_size(), 302);
  EXPECT_EQ(tokenizer.id_of("<s>"), 300);
  EXPECT_EQ(tokenizer.id_of("\u0120ab"), 257);
  EXPECT_EQ(tokenizer.id_of("nowhere"), std::nullopt);
  EXPECT_EQ(tokenizer.token_of(257), "\u0120ab");
  EXPECT_EQ(tokenizer.bytes_of(257), " ab");
  EXPECT_TRUE(tokenizer.is_special(300));
  EXPECT_FALSE(tokenizer.is_special(301));
  EXPECT_TRUE(tokenizer.contains(0));
  for (int32_t id : {-1, 258, 299, 302, INT32_MAX, INT32_MIN}) EXPECT_FALSE(tokenizer.contains(id)) << id;
}

TEST(Tokenizer, an_id_outside_the_vocabulary_is_an_error_that_names_it) {
  auto tokenizer = with_template().make();
  for (int32_t id : {-1, 258, 302, INT32_MAX, INT32_MIN}) {
    std::string expected = "token id " + std::to_string(id) + " is not in the vocabulary";
    EXPECT_NE(error_of([&] { tokenizer.decode(Ids{97, id}); }).find(expected), std::string::npos) << id;
    EXPECT_NE(error_of([&] { tokenizer.bytes_of(id); }).find(expected), std::string::npos) << id;
    EXPECT_NE(error_of([&] { tokenizer.token_of(id); }).find(expected), std::string::npos) << id;
  }
}

TEST(Tokenizer, invalid_utf8_is_an_error_that_names_the_byte) {
  auto tokenizer = with_template().make();
  EXPECT_NE(error_of([&] { tokenizer.encode("ab\u00E9\xFFx"); }).find("byte 4"), std::string::npos);
  EXPECT_NE(error_of([&] { tokenizer.encode("\xED\xA0\x80"); }).find("byte 0"), std::string::npos);
}

TEST(Tokenizer, a_pattern_that_gives_up_on_a_text_is_an_error) {
  SmallTokenizer small;
  small.pre_tokenizer = Json::parse(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "(?:a+)+[bc]"}, "behavior": "Isolated"}, {"type": "ByteLevel"}]})",
                                    "test");
  auto tokenizer = small.make();
  EXPECT_NE(error_of([&] { tokenizer.encode(std::string(3000, 'a')); }).find("gave up"), std::string::npos);
}

TEST(Tokenizer, whole_components_that_are_not_supported_are_refused_by_name) {
  auto with_member = [](const char* key, const char* value) {
    Json json = with_template().json();
    json.set(key, Json::parse(value, "test"));
    return load_error(json.dump());
  };
  EXPECT_EQ(with_member("truncation", "null"), "");
  EXPECT_NE(with_member("truncation", R"({"max_length": 5})").find("truncation"), std::string::npos);
  EXPECT_NE(with_member("padding", "{}").find("padding"), std::string::npos);
  EXPECT_NE(with_member("version", "\"2.0\"").find("2.0"), std::string::npos);
  EXPECT_NE(with_member("novelty", "1").find("novelty"), std::string::npos);
  EXPECT_NE(with_member("decoder", "null"), "");
  EXPECT_NE(with_member("decoder", R"({"type": "Metaspace"})").find("Metaspace"), std::string::npos);
  EXPECT_NE(with_member("decoder", R"({"type": "Sequence", "decoders": []})").find("exactly once"), std::string::npos);
  EXPECT_EQ(with_member("decoder", R"({"type": "Sequence", "decoders": [{"type": "ByteLevel"}]})"), "");
  EXPECT_NE(with_member("post_processor", R"({"type": "RobertaProcessing"})").find("RobertaProcessing"),
            std::string::npos);
  EXPECT_NE(with_member("normalizer", R"({"type": "Lowercase"})").find("small: normalizer"), std::string::npos);
}

TEST(Tokenizer, bad_templates_are_errors) {
  auto with_single = [](const std::string& single) {
    Json json = with_template().json();
    json.set("post_processor", Json::parse(R"({"type": "TemplateProcessing", "pair": [], "special_tokens":
        {"S": {"ids": [300]}, "X": {"ids": [299]}, "Y": {"ids": ["1"]}}, "single": )" +
                                               single + "}",
                                           "test"));
    return load_error(json.dump());
  };
  const std::string a = R"({"Sequence": {"id": "A"}})";
  EXPECT_EQ(with_single("[" + a + "]"), "");
  EXPECT_NE(with_single("[]").find("lacks"), std::string::npos);
  EXPECT_NE(with_single("[" + a + "," + a + "]").find("once"), std::string::npos);
  EXPECT_NE(with_single(R"([{"Sequence": {"id": "B"}}])"), "");
  EXPECT_NE(with_single(R"([{"SpecialToken": {"id": "Z"}}])").find("\"Z\""), std::string::npos);
  EXPECT_NE(with_single(R"([{"SpecialToken": {"id": "X"}}])").find("299"), std::string::npos);
  for (const char* bad : {"1", "[1]", "[{}]", R"([{"SpecialToken": {"id": "Y"}}])", R"([{"Other": {"id": "S"}}])"}) {
    EXPECT_NE(with_single(bad), "") << bad;
  }
}

TEST(Tokenizer, a_file_cut_off_anywhere_is_an_error) {
  std::string text = with_template().json().dump();
  for (size_t len = 0; len < text.size(); len += 1 + len / 50) EXPECT_NE(load_error(text.substr(0, len)), "") << len;
  EXPECT_NE(error_of([] { Tokenizer::load("/nonexistent/tokenizer.json"); }).find("/nonexistent"), std::string::npos);
  for (const char* bad : {"", "null", "[]", "1", "{}", "\xFF", R"({"model": 1})"})
    EXPECT_NE(load_error(bad), "") << bad;
}

TEST(Tokenizer, every_member_replaced_by_another_kind_is_an_error_or_loads_but_never_crashes) {
  Json whole = with_template().json();
  for (const auto& [key, value] : whole.as_object()) {
    for (const char* other :
         {"null", "1", "-1", "true", "\"x\"", "[]", "{}", "[[]]", "[{}]", R"({"type": "Sequence"})"}) {
      Json changed = whole;
      changed.set(key, Json::parse(other, "test"));
      load_error(changed.dump());
    }
  }
}

TEST(Tokenizer, many_threads_share_one_tokenizer) {
  auto tokenizer = with_template().make();
  const std::string text = "ab ab\u00E9 <s> 12 \u4E2D ab";
  const Ids expected = tokenizer.encode(text);
  std::vector<std::thread> threads;
  std::vector<int> num_wrong(4, 0);
  for (size_t t = 0; t < num_wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i)
        num_wrong[t] += tokenizer.encode(text) != expected || tokenizer.decode(expected).empty();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, std::vector<int>(4, 0));
}

TEST(Tokenizer, a_moved_tokenizer_works_on) {
  auto first = with_template().make();
  Tokenizer second = std::move(first);
  EXPECT_EQ(second.encode("ab", false), (Ids{256}));
}

TEST(Detokenizer, only_complete_characters_come_out) {
  auto tokenizer = with_template().make();
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.push(0x99), "");
  EXPECT_EQ(detokenizer.push(0x82), "\U0001F642");
  EXPECT_EQ(detokenizer.push(0xE4), "");
  EXPECT_EQ(detokenizer.push('x'), "\uFFFDx");
  EXPECT_EQ(detokenizer.push(0xC3), "");
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, special_tokens_are_left_out_on_demand_and_unknown_ids_change_nothing) {
  auto tokenizer = with_template().make();
  Detokenizer detokenizer(tokenizer, true);
  EXPECT_EQ(detokenizer.push(0xC3), "");
  EXPECT_EQ(detokenizer.push(300), "");
  EXPECT_THROW(detokenizer.push(299), Error);
  EXPECT_EQ(detokenizer.push(0xA9), "\u00E9");
}

TEST(Detokenizer, the_pieces_add_up_to_the_decoded_whole_for_any_ids) {
  auto tokenizer = with_template().make();
  unsigned state = 1;
  for (int round = 0; round < 300; ++round) {
    Ids ids;
    for (int i = 0; i < 40; ++i) {
      state = state * 1664525u + 1013904223u;
      ids.push_back(static_cast<int32_t>((state >> 16) % 258));
    }
    Detokenizer detokenizer(tokenizer);
    std::string text;
    for (int32_t id : ids) text += detokenizer.push(id);
    ASSERT_EQ(text + detokenizer.finish(), tokenizer.decode(ids));
  }
}

}  // namespace
}  // namespace tidepool::text
