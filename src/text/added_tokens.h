// The "added_tokens" of tokenizer.json: tokens found in the text as they are, before any other step.
//
// Two rounds, as in Hugging Face tokenizers: tokens with normalized = false are looked for in the raw text; the others,
// themselves normalised, in the normalised text between them. At each place the longest token wins, leftmost first.
// single_word discards a match with a word character beside it; lstrip and rstrip let a match swallow white space.
// A token always decodes to its content as the file spells it, normalised or not. Immutable and thread safe. Time is
// the length of the text times, at worst, that of the longest token.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/normalizer.h"
#include "text/vocabulary.h"

namespace tidepool::text {

class AddedTokens {
 public:
  enum class Round { kRaw, kNormalized };

  // A stretch of text: an added token, or (id -1) text for the later steps.
  struct Segment {
    int32_t id;
    std::string_view text;
  };

  // Adds the tokens to `vocabulary` (which already holds the model's; a token in both must have one id) and marks the
  // special ones there. Throws for wrong types, unknown options, ids that clash, and tokens that are listed twice or
  // look alike once normalised.
  static AddedTokens from_json(const base::Json& json, const std::string& where, const Normalizer& normalizer,
                               Vocabulary& vocabulary);

  // Replaces `segments` by those of `text` (valid UTF-8), in order. Views of `text`.
  void split(std::string_view text, Round round, std::vector<Segment>& segments) const;

 private:
  struct Token {
    int32_t id;
    bool single_word, lstrip, rstrip;
  };
  // The tokens of one round, as a tree of bytes.
  class Tree {
   public:
    Tree();
    // False, and nothing changed, when `content` is empty or already there.
    bool insert(std::string_view content, const Token& token);
    // Longest token that starts at text[pos]; null when there is none.
    const Token* longest_at(std::string_view text, size_t pos, size_t& len) const;
    bool empty() const { return tokens_.empty(); }

   private:
    struct Node {
      int32_t token = -1;  // index in tokens_
      std::vector<std::pair<uint8_t, int32_t>> children;
    };
    int32_t child(int32_t node, uint8_t byte) const;  // -1: none
    std::vector<Node> nodes_;
    std::array<int32_t, 256> first_{};  // the root's children: most positions end here
    std::vector<Token> tokens_;
  };

  static void read_one(const base::Json& json, const std::string& where, Vocabulary& vocabulary, Token& token,
                       bool& normalized);
  Tree raw_, normalized_;
};

}  // namespace tidepool::text
