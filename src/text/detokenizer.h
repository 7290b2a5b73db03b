// Turns ids into text one at a time, for streaming: what it has handed out is always complete, valid UTF-8.
//
// Borrows its Tokenizer, which must outlive it. One thread at a time. The pieces handed out, finish() included, add up
// to what Tokenizer::decode gives for all ids at once.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer.h"

namespace tidepool::text {

class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  // The text that `id` completes, maybe empty. Throws for an id that is not in the vocabulary and then changes nothing.
  std::string push(int32_t id);

  // What is left: U+FFFD when the ids ended within a character, otherwise empty. Then it is ready for the next
  // sequence.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string pending_;  // the bytes of an unfinished character, at most 3
};

}  // namespace tidepool::text
