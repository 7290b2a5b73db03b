// Golden tokenizers: what the Hugging Face library made of the same texts. Directory: $TIDEPOOL_GOLDEN_DIR/tokenizers,
// by default the repository's own tests/golden.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace tidepool::text {
namespace {

using base::Json;

std::filesystem::path golden_dir() {
  if (const char* dir = std::getenv("TIDEPOOL_GOLDEN_DIR")) return dir;
  const char* source = std::getenv("TIDEPOOL_SOURCE_DIR");
  return std::filesystem::path(source == nullptr ? "." : source) / "tests" / "golden";
}

std::vector<std::filesystem::path> case_folders() {
  std::vector<std::filesystem::path> folders;
  auto root = golden_dir() / "tokenizers";
  if (!std::filesystem::is_directory(root)) return folders;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::vector<int32_t> ids_in(const Json& json) {
  std::vector<int32_t> ids;
  for (const auto& id : json.as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
  return ids;
}

std::string stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Detokenizer detokenizer(tokenizer);
  std::string text;
  for (int32_t id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

// One line for every value that differs from the expected one.
std::vector<std::string> mismatches(const Tokenizer& tokenizer, const Json& expected) {
  std::vector<std::string> lines;
  const auto& cases = expected.at("cases").as_array();
  for (size_t i = 0; i < cases.size(); ++i) {
    auto compare = [&](const char* name, const auto& got, const auto& want) {
      if (got != want) lines.push_back("text " + std::to_string(i) + ": " + name + " of " + cases[i].at("text").dump());
    };
    const std::string& text = cases[i].at("text").as_string();
    auto ids = ids_in(cases[i].at("ids"));
    compare("ids", tokenizer.encode(text), ids);
    compare("ids_plain", tokenizer.encode(text, false), ids_in(cases[i].at("ids_plain")));
    compare("decoded", tokenizer.decode(ids), cases[i].at("decoded").as_string());
    compare("decoded_skip_special", tokenizer.decode(ids, true), cases[i].at("decoded_skip_special").as_string());
    compare("streamed text", stream(tokenizer, ids), cases[i].at("decoded").as_string());
  }
  return lines;
}

TEST(GoldenTokenizers, every_id_and_every_decoded_text_equals_that_of_hugging_face) {
  auto folders = case_folders();
  ASSERT_FALSE(folders.empty()) << "no case under " << golden_dir() / "tokenizers";
  for (const auto& folder : folders) {
    SCOPED_TRACE(folder.string());
    Json expected = Json::parse_file((folder / "expected.json").string());
    ASSERT_FALSE(expected.at("cases").as_array().empty());
    auto tokenizer = Tokenizer::load((folder / "tokenizer.json").string());
    auto lines = mismatches(tokenizer, expected);
    for (size_t i = 0; i < std::min<size_t>(lines.size(), 20); ++i) ADD_FAILURE() << lines[i];
    EXPECT_EQ(lines.size(), 0u);
  }
}

TEST(GoldenTokenizers, one_changed_expected_value_makes_the_comparison_fail) {
  auto folders = case_folders();
  ASSERT_FALSE(folders.empty()) << "no case under " << golden_dir() / "tokenizers";
  auto tokenizer = Tokenizer::load((folders[0] / "tokenizer.json").string());
  const Json whole = Json::parse_file((folders[0] / "expected.json").string());
  const auto& cases = whole.at("cases").as_array();
  auto longest = std::max_element(cases.begin(), cases.end(), [](const Json& a, const Json& b) {
    return a.at("text").as_string().size() < b.at("text").as_string().size();
  });
  auto check_one = [&](Json one) {
    Json expected = Json::object();
    expected.set("cases", base::JsonArray{std::move(one)});
    return mismatches(tokenizer, expected).size();
  };
  ASSERT_EQ(check_one(*longest), 0u);
  for (const char* key : {"ids", "ids_plain"}) {
    Json changed = *longest;
    base::JsonArray ids = changed.at(key).as_array();
    int64_t last = ids.back().as_int();
    ids.back() = last > 0 ? last - 1 : last + 1;
    changed.set(key, ids);
    EXPECT_GT(check_one(changed), 0u) << key;
  }
  for (const char* key : {"decoded", "decoded_skip_special"}) {
    Json changed = *longest;
    changed.set(key, changed.at(key).as_string() + "!");
    EXPECT_GT(check_one(changed), 0u) << key;
  }
}

}  // namespace
}  // namespace tidepool::text
