#include "base/json.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "tidepool/error.h"

namespace tidepool::base {
namespace {

testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << part << "\" is not in \"" << text << "\"";
}

Json parse(std::string_view text) { return Json::parse(text, "test.json"); }

std::string refusal(std::string_view text) {
  try {
    parse(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Json, ReadsEveryKind) {
  const Json root = parse(R"({"a": null, "b": true, "c": -3, "d": 0.5, "e": "x\u00e4\n", "f": [1, [2]], "g": {}})");
  EXPECT_TRUE(root.at("a").is_null());
  EXPECT_TRUE(root.at("b").as_bool());
  EXPECT_EQ(root.at("c").as_int(), -3);
  EXPECT_EQ(root.at("d").as_double(), 0.5);
  EXPECT_EQ(root.at("e").as_string(), "x\xc3\xa4\n");
  EXPECT_EQ(root.at("f").as_array()[1].as_array()[0].as_int(), 2);
  EXPECT_TRUE(root.at("g").as_object().empty());
}

TEST(Json, BadTextIsOneSentenceThatNamesTheSource) {
  for (const char* text : {"", " ", "{", "[1,]", "{\"a\":}", "{\"a\" 1}", "nul", "01", "1 2", "\"\x01\"", "\"\xff\"",
                           "[1e400x]", "{\"a\":1,}", "'a'", "\"\\ud800\"", "NaN", "-", "+1", ".5"}) {
    EXPECT_TRUE(has(refusal(text), "test.json")) << text;
  }
}

TEST(Json, DepthIsLimited) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(refusal(nested(200)), "");
  EXPECT_TRUE(has(refusal(nested(600)), "test.json"));
  EXPECT_TRUE(has(refusal(nested(1'000'000)), "test.json"));
  EXPECT_TRUE(has(refusal(std::string(1'000'000, '{')), "test.json"));
}

TEST(Json, ADuplicateKeyIsAnErrorThatNamesIt) {
  EXPECT_TRUE(has(refusal(R"({"weight": 1, "weight": 2})"), "\"weight\" occurs twice"));
  EXPECT_TRUE(has(refusal(R"([{"a": {"b": 1, "b": 1}}])"), "\"b\" occurs twice"));
  EXPECT_EQ(refusal(R"([{"a": 1}, {"a": 1}])"), "");
}

TEST(Json, IntegersStayExactAndDoublesReadBackEqual) {
  EXPECT_EQ(parse("9223372036854775807").as_int(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(parse("-9223372036854775808").as_int(), std::numeric_limits<int64_t>::min());
  EXPECT_TRUE(parse("18446744073709551615").is_number());
  EXPECT_FALSE(parse("18446744073709551615").is_int());
  EXPECT_EQ(parse("3.0").as_int(), 3);
  EXPECT_THROW(parse("3.5").as_int("steps"), Error);
  EXPECT_THROW(parse("1e30").as_int("steps"), Error);
  EXPECT_EQ(parse("5").as_double(), 5.0);
  EXPECT_EQ(Json(0.1).dump(), "0.1");
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
  EXPECT_EQ(Json(std::numeric_limits<double>::infinity()).dump(), "null");
}

TEST(Json, AWrongKindNamesValueWantedAndFound) {
  try {
    parse("\"x\"").as_int("hidden_size");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "hidden_size: expected an integer, found string");
  }
  EXPECT_THROW(parse("{}").at("gone", "config.json"), Error);
  EXPECT_EQ(parse("[]").find("gone"), nullptr);
}

TEST(Json, SetReplacesAndKeepsTheOrder) {
  Json object = Json::object();
  object.set("z", 1);
  object.set("a", "two");
  object.set("z", 3);
  EXPECT_EQ(object.dump(), R"({"z":3,"a":"two"})");
  Json array = Json::array();
  array.push_back(true);
  array.push_back(nullptr);
  EXPECT_EQ(array.dump(), "[true,null]");
}

TEST(Json, WritingIsReadBackEqualInBothForms) {
  const char* text = R"({"a":[1,2.5,"q\"\\\n\u0001"],"b":{"c":[],"d":{}},"e":null})";
  const Json value = parse(text);
  EXPECT_EQ(value.dump(), text);
  EXPECT_EQ(parse(value.dump_pretty()).dump(), text);
}

TEST(Json, AnyNumbersAndTextsAreReadBackEqual) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 1000; ++round) {
    const double number = std::bit_cast<double>(random());
    const int64_t integer = static_cast<int64_t>(random());
    std::string text;
    for (uint64_t i = random() % 20; i > 0; --i) text += static_cast<char>(random() % 128);
    Json array = Json::array();
    array.push_back(std::isfinite(number) ? number : 0.0);
    array.push_back(integer);
    array.push_back(text);
    const Json back = parse(array.dump());
    EXPECT_EQ(back.as_array()[0].as_double(), std::isfinite(number) ? number : 0.0);
    EXPECT_EQ(back.as_array()[1].as_int(), integer);
    EXPECT_EQ(back.as_array()[2].as_string(), text);
  }
}

TEST(Json, AnyBytesAreReadOrRefusedWithoutACrash) {
  std::mt19937_64 random(2);
  const std::string letters = "{}[]\":,1e-.\\u \xfft";
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (uint64_t i = random() % 24; i > 0; --i) text += letters[random() % letters.size()];
    refusal(text);
  }
}

TEST(Json, AFileThatCannotBeReadIsNamed) {
  try {
    Json::parse_file("/nowhere/config.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(has(error.what(), "/nowhere/config.json"));
  }
}

}  // namespace
}  // namespace tidepool::base
