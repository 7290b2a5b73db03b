// A small tokenizer.json for tests: a token for every byte (id = place in the byte-level alphabet), the merges given,
// and single members replaced at will.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/byte_level.h"
#include "text/tokenizer.h"
#include "tidepool/error.h"

namespace tidepool::text {

struct SmallTokenizer {
  // Pairs of byte strings; the result of merge i has the id 256 + i.
  std::vector<std::pair<std::string, std::string>> merges;
  base::Json added_tokens = base::Json::array();
  base::Json normalizer, post_processor;
  base::Json pre_tokenizer = base::Json::parse(R"({"type": "ByteLevel", "add_prefix_space": false})", "test");
  base::Json decoder = base::Json::parse(R"({"type": "ByteLevel"})", "test");

  static std::string spelled(const std::string& bytes) {
    std::string token;
    append_byte_level(bytes, token);
    return token;
  }

  base::Json json() const {
    base::Json vocab = base::Json::object(), pairs = base::Json::array(), model = base::Json::object();
    for (int byte = 0; byte < 256; ++byte) vocab.set(spelled(std::string(1, static_cast<char>(byte))), byte);
    for (const auto& [left, right] : merges) {
      vocab.set(spelled(left + right), static_cast<int64_t>(vocab.as_object().size()));
      pairs.push_back(base::JsonArray{spelled(left), spelled(right)});
    }
    model.set("type", "BPE");
    model.set("vocab", vocab);
    model.set("merges", pairs);
    base::Json file = base::Json::object();
    file.set("version", "1.0");
    file.set("added_tokens", added_tokens);
    file.set("normalizer", normalizer);
    file.set("pre_tokenizer", pre_tokenizer);
    file.set("post_processor", post_processor);
    file.set("decoder", decoder);
    file.set("model", model);
    return file;
  }

  Tokenizer make() const { return Tokenizer::from_json(json().dump(), "small"); }
};

// The sentence that loading `text` fails with; empty when it loads.
inline std::string load_error(const std::string& text) {
  try {
    Tokenizer::from_json(text, "small");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// One entry of added_tokens; `flags` lists the flags that are true.
inline base::Json added_token(const std::string& content, int64_t id, const std::vector<std::string>& flags = {}) {
  base::Json token = base::Json::object();
  token.set("id", id);
  token.set("content", content);
  for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized", "special"}) token.set(flag, false);
  for (const auto& flag : flags) token.set(flag, true);
  return token;
}

}  // namespace tidepool::text
