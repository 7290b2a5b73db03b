#include "text/normalizer.h"

#include <gtest/gtest.h>

#include <ctime>

#include "tidepool/error.h"

namespace tidepool::text {
namespace {

using base::Json;

Normalizer make(std::string_view json) { return Normalizer::from_json(Json::parse(json, "test"), "normalizer"); }

TEST(Normalizer, null_and_an_empty_sequence_change_nothing) {
  EXPECT_EQ(make("null").apply("e\u0301\uFB01"), "e\u0301\uFB01");
  EXPECT_TRUE(make(R"({"type": "Sequence", "normalizers": []})").is_identity());
}

TEST(Normalizer, nfc_composes_and_orders_marks) {
  Normalizer nfc = make(R"({"type": "NFC"})");
  EXPECT_EQ(nfc.apply("e\u0301"), "\u00E9");
  EXPECT_EQ(nfc.apply("a\u0301\u0323"), "\u1EA1\u0301");
  EXPECT_EQ(nfc.apply("\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(nfc.apply("\u212B\uFB01"), "\u00C5\uFB01");
  EXPECT_EQ(nfc.apply("\u0958"), "\u0915\u093C");  // never composed again
  EXPECT_EQ(nfc.apply("plain"), "plain");
  EXPECT_EQ(nfc.apply(""), "");
}

TEST(Normalizer, nfkc_also_replaces_compatibility_characters) {
  Normalizer both = make(R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "NFKC"}]})");
  EXPECT_EQ(both.apply("\uFB01\u00B2\u2460"), "fi21");
  EXPECT_EQ(make(R"({"type": "NFKC"})").apply("\uFDFA").size(), 33u);
}

TEST(Normalizer, a_megabyte_of_marks_in_the_worst_order_takes_no_quadratic_time) {
  std::string text = "a";
  for (int i = 0; i < 250'000; ++i) text += "\u0301\u0323";
  std::clock_t start = std::clock();
  std::string out = make(R"({"type": "NFC"})").apply(text);
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 10.0);
  EXPECT_EQ(out.substr(0, 5), "\u1EA1\u0323");
}

TEST(Normalizer, other_types_options_and_deep_sequences_are_refused_by_name) {
  auto error_of = [](std::string_view json) -> std::string {
    try {
      make(json);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(error_of(R"({"type": "Lowercase"})").find("\"Lowercase\""), std::string::npos);
  EXPECT_NE(error_of(R"({"type": "NFC", "extra": 1})").find("\"extra\""), std::string::npos);
  std::string deep = R"({"type": "NFC"})";
  for (int i = 0; i < 20; ++i) deep = R"({"type": "Sequence", "normalizers": [)" + deep + "]}";
  EXPECT_NE(error_of(deep).find("nested deeper than"), std::string::npos);
  for (const char* bad :
       {"1", "[]", "{}", R"({"type": 3})", R"({"type": "Sequence"})", R"({"type": "Sequence", "normalizers": 1})"}) {
    EXPECT_NE(error_of(bad), "") << bad;
  }
}

}  // namespace
}  // namespace tidepool::text
