#include "text/bpe.h"

#include <gtest/gtest.h>

#include <ctime>
#include <map>
#include <random>

#include "text/tokenizer_test_support.h"

namespace tidepool::text {
namespace {

using base::Json;
using Ids = std::vector<int32_t>;

struct Model {
  Vocabulary vocabulary;
  Bpe bpe;
  explicit Model(const Json& json) : bpe(Bpe::from_json(json, "model", vocabulary)) {}
  Ids encode(std::string_view piece) const {
    Bpe::Scratch scratch;
    Ids ids;
    bpe.encode(piece, scratch, ids);
    return ids;
  }
};

Json model_json(const std::vector<std::pair<std::string, std::string>>& merges) {
  SmallTokenizer small;
  small.merges = merges;
  return small.json().at("model");
}

TEST(Bpe, merges_happen_by_rank_and_then_from_the_left) {
  Model model(model_json({{"b", "c"}, {"a", "b"}, {"a", "a"}}));
  EXPECT_EQ(model.encode("abc"), (Ids{'a', 256}));
  EXPECT_EQ(model.encode("abab"), (Ids{257, 257}));
  EXPECT_EQ(model.encode("aaa"), (Ids{258, 'a'}));
  EXPECT_EQ(model.encode("x"), (Ids{'x'}));
  EXPECT_EQ(model.encode(""), Ids{});
}

TEST(Bpe, ids_equal_those_of_a_plain_quadratic_loop) {
  std::mt19937 random(7);
  std::vector<std::pair<std::string, std::string>> merges;
  std::map<std::string, int> rank;  // of the joined string: each is made by one merge only
  std::vector<std::string> tokens = {"a", "b", "c"};
  while (merges.size() < 40) {
    std::string left = tokens[random() % tokens.size()], right = tokens[random() % tokens.size()];
    if (left.size() + right.size() > 8 || rank.count(left + right) != 0) continue;
    rank[left + right] = static_cast<int>(merges.size());
    merges.emplace_back(left, right);
    tokens.push_back(left + right);
  }
  Model model(model_json(merges));
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t len = random() % 30; len > 0; --len) text += static_cast<char>('a' + random() % 3);
    std::vector<std::string> parts;
    for (char c : text) parts.emplace_back(1, c);
    while (true) {
      int best = -1;
      size_t at = 0;
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        auto found = rank.find(parts[i] + parts[i + 1]);
        if (found == rank.end() || merges[static_cast<size_t>(found->second)].first != parts[i]) continue;
        if (best < 0 || found->second < best) {
          best = found->second;
          at = i;
        }
      }
      if (best < 0) break;
      parts[at] += parts[at + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    Ids expected;
    for (const auto& part : parts) expected.push_back(part.size() == 1 ? part[0] : 256 + rank[part]);
    ASSERT_EQ(model.encode(text), expected) << text;
  }
}

TEST(Bpe, a_megabyte_without_a_space_takes_no_quadratic_time) {
  Model model(model_json({{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}, {"a", "b"}, {"b", "aa"}}));
  std::string runs(1'000'000, 'a'), mixed = runs;
  std::mt19937 random(3);
  for (char& c : mixed) c = static_cast<char>('a' + random() % 2);
  std::clock_t start = std::clock();
  EXPECT_EQ(model.encode(runs).size(), 125'000u);
  EXPECT_GT(model.encode(mixed).size(), 0u);
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 20.0);
}

TEST(Bpe, ignore_merges_takes_a_piece_that_is_a_token_whole) {
  Json json = model_json({{"a", "b"}});
  Json vocab = json.at("vocab");
  vocab.set("xyz", 300);
  json.set("vocab", vocab);
  EXPECT_EQ(Model(json).encode("xyz"), (Ids{'x', 'y', 'z'}));
  json.set("ignore_merges", true);
  EXPECT_EQ(Model(json).encode("xyz"), (Ids{300}));
  EXPECT_EQ(Model(json).encode("xyzab"), (Ids{'x', 'y', 'z', 256}));
}

TEST(Bpe, merges_may_be_strings_with_one_space) {
  Json json = model_json({{"a", "b"}});
  json.set("merges", base::JsonArray{"a b"});
  EXPECT_EQ(Model(json).encode("ab"), (Ids{256}));
  for (const char* bad : {"ab", "a  b", "a b c", ""}) {
    json.set("merges", base::JsonArray{bad});
    EXPECT_THROW(Model{json}, Error) << bad;
  }
}

TEST(Bpe, a_byte_without_a_token_is_an_error_only_when_the_text_has_it) {
  Json json = Json::parse(R"({"vocab": {"a": 0, "b": 1}, "merges": [], "unk_token": "a"})", "test");
  EXPECT_EQ(Model(json).encode("ab"), (Ids{0, 1}));
  try {
    Model(json).encode("ac");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("0x63"), std::string::npos) << error.what();
  }
}

TEST(Bpe, bad_models_are_errors_that_name_what_is_wrong) {
  auto error_of = [](const char* member, const char* value) -> std::string {
    Json json = model_json({{"a", "b"}});
    json.set(member, Json::parse(value, "test"));
    try {
      Model model(json);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(error_of("type", "\"Unigram\"").find("Unigram"), std::string::npos);
  EXPECT_NE(error_of("dropout", "0.1").find("dropout"), std::string::npos);
  EXPECT_NE(error_of("byte_fallback", "true").find("byte_fallback"), std::string::npos);
  EXPECT_NE(error_of("end_of_word_suffix", "\"</w>\"").find("end_of_word_suffix"), std::string::npos);
  EXPECT_NE(error_of("continuing_subword_prefix", "\"##\"").find("continuing_subword_prefix"), std::string::npos);
  EXPECT_NE(error_of("novelty", "1").find("novelty"), std::string::npos);
  EXPECT_NE(error_of("merges", R"([["a", "zz"]])").find("merges[0]: token \"zz\""), std::string::npos);
  EXPECT_NE(error_of("merges", R"([["a", "c"]])").find("token \"ac\""), std::string::npos);
  EXPECT_NE(error_of("vocab", R"({"a": -1})").find("-1"), std::string::npos);
  EXPECT_NE(error_of("vocab", R"({"a": 1, "b": 1})").find("two tokens"), std::string::npos);
  EXPECT_NE(error_of("vocab", R"({"a": 4194304})").find("4194304"), std::string::npos);
  EXPECT_NE(error_of("vocab", R"({"a": 1e300})"), "");
  for (const char* bad : {"1", "\"a\"", "[1]", "[[]]", "[[\"a\"]]", "[[\"a\",\"b\",\"c\"]]", "[[1, 2]]"}) {
    EXPECT_NE(error_of("merges", bad), "") << bad;
  }
  for (const char* bad : {"1", "[]", R"({"a": "1"})", R"({"a": 1.5})", R"({"a": null})"}) {
    EXPECT_NE(error_of("vocab", bad), "") << bad;
  }
  for (const char* flag : {"byte_fallback", "fuse_unk", "ignore_merges"}) EXPECT_NE(error_of(flag, "1"), "") << flag;
  EXPECT_EQ(error_of("dropout", "0.0"), "");
  EXPECT_EQ(error_of("end_of_word_suffix", "\"\""), "");
}

}  // namespace
}  // namespace tidepool::text
