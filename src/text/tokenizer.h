// A tokenizer read from the Hugging Face file tokenizer.json: byte-level BPE, ids equal to those of their library.
//
//   auto tokenizer = text::Tokenizer::load(model_dir + "/tokenizer.json");
//   std::vector<int32_t> ids = tokenizer.encode("Hello");
//   std::string text = tokenizer.decode(ids);
//
// Supported: added tokens with all their flags; normalizer null, NFC, NFKC; pre-tokenizer Split, Digits, ByteLevel
// (last); model BPE; post-processor null, ByteLevel, TemplateProcessing; decoder ByteLevel; and Sequences of these.
// Everything else, unknown options included, is an Error that names it and its place in the file.
//
// Immutable after loading: const members may be called from many threads at once. Movable, not copyable. It owns all it
// needs; views it returns live as long as the tokenizer (moving it keeps them valid).
// Errors: every failure is a tidepool::Error; no file and no text can crash it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tidepool::base {
class Json;
}

namespace tidepool::text {

class Tokenizer {
 public:
  static constexpr size_t kMaxTextBytes = size_t{1} << 30;

  // Reads the file `path`.
  static Tokenizer load(const std::string& path);
  // Reads the text of a tokenizer.json; `what` names it in errors.
  static Tokenizer from_json(std::string_view json, const std::string& what);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // The ids of `utf8`. `add_special`: with the tokens of the post-processor around them. Special tokens written in the
  // text are found either way. Throws for invalid UTF-8 (naming the byte offset), more than kMaxTextBytes, a byte that
  // has no token, and a pattern that exceeds its matching limit. Time is n log n at worst.
  std::vector<int32_t> encode(std::string_view utf8, bool add_special = true) const;

  // The text of `ids`, always valid UTF-8: bytes that form no character become U+FFFD. `skip_special` leaves special
  // tokens out. Throws for an id that is not in the vocabulary.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // Largest id + 1, added tokens included. Ids below may be unused; a model's own vocabulary may be larger (padding).
  int32_t vocab_size() const;
  bool contains(int32_t id) const;

  // The id of a token as tokenizer.json spells it (in the byte-level alphabet); nothing when there is none.
  std::optional<int32_t> id_of(std::string_view token) const;
  // The spelling, the bytes it decodes to (part of a character, maybe), and whether it is special.
  // These throw for an id that is not in the vocabulary.
  std::string_view token_of(int32_t id) const;
  std::string_view bytes_of(int32_t id) const;
  bool is_special(int32_t id) const;

 private:
  struct Parts;
  class Encoder;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);
  static Tokenizer from_parsed(const base::Json& json, const std::string& what);
  void check_id(int32_t id) const;
  std::unique_ptr<const Parts> parts_;  // never null, except after a move
};

}  // namespace tidepool::text
