#include "text/ids.h"

#include <gtest/gtest.h>

#include "tidepool/error.h"

namespace tidepool::text {
namespace {

std::string refusal(std::string_view json) {
  try {
    parse_ids(json, "ids.json", 10);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ParseIds, ReadsAnArrayOrAnObjectWithOne) {
  const std::vector<int32_t> expected{0, 9, 3};
  EXPECT_EQ(parse_ids("[0, 9, 3]", "ids.json", 10), expected);
  EXPECT_EQ(parse_ids(R"({"ids": [0, 9, 3]})", "ids.json", 10), expected);
  EXPECT_EQ(parse_ids(R"({"text": "x", "input_ids": [0, 9, 3]})", "ids.json", 10), expected);
}

TEST(ParseIds, NamesTheIdThatIsOutsideTheVocabulary) {
  EXPECT_EQ(refusal("[1, 10]"), "ids.json: id number 1 is 10, outside the vocabulary of 10 tokens");
  EXPECT_EQ(refusal("[-1]"), "ids.json: id number 0 is -1, outside the vocabulary of 10 tokens");
  EXPECT_NE(refusal("[99999999999999999999]"), "");
}

TEST(ParseIds, RefusesOtherForms) {
  for (const char* json : {"", "[", "{}", "[]", "3", "null", "[[1]]", "[1.5]", "[\"1\"]", "{\"ids\": 3}"}) {
    EXPECT_NE(refusal(json), "") << json;
  }
}

}  // namespace
}  // namespace tidepool::text
