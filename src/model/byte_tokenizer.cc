#include "base/check.h"
#include "base/json.h"
#include "model/make_model.h"

namespace tidepool::model {
namespace {

constexpr int32_t kMaxFillers = 65536;

// The character that byte-level BPE (GPT-2) writes for a byte: printable Latin-1 bytes stand for themselves, the others
// get the code points from 256 on, in order.
int32_t character_of_byte(int32_t byte) {
  auto is_printable = [](int32_t b) {
    return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
  };
  if (is_printable(byte)) return byte;
  int32_t next = 256;
  for (int32_t b = 0; b < byte; ++b) next += is_printable(b) ? 0 : 1;
  return next;
}

std::string utf8(int32_t character) {  // below 0x800
  if (character < 0x80) return std::string(1, static_cast<char>(character));
  return {static_cast<char>(0xc0 | (character >> 6)), static_cast<char>(0x80 | (character & 0x3f))};
}

base::Json byte_level() {
  return base::JsonObject{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
}

}  // namespace

std::string byte_tokenizer_json(int32_t vocab_size) {
  tidepool_check(vocab_size >= 256, "a byte tokenizer takes 256 ids, vocab_size is {}", vocab_size);
  base::JsonObject vocab;
  for (int32_t byte = 0; byte < 256; ++byte) vocab.emplace_back(utf8(character_of_byte(byte)), byte);
  for (int32_t id = 256; id < std::min(vocab_size, kMaxFillers); ++id) vocab.emplace_back(fmt::format("<{}>", id), id);
  base::Json model = base::JsonObject{{"type", "BPE"},
                                      {"dropout", nullptr},
                                      {"unk_token", nullptr},
                                      {"continuing_subword_prefix", nullptr},
                                      {"end_of_word_suffix", nullptr},
                                      {"fuse_unk", false},
                                      {"byte_fallback", false},
                                      {"vocab", std::move(vocab)},
                                      {"merges", base::Json::array()}};
  base::Json tokenizer = base::JsonObject{{"version", "1.0"},          {"truncation", nullptr},
                                          {"padding", nullptr},        {"added_tokens", base::Json::array()},
                                          {"normalizer", nullptr},     {"pre_tokenizer", byte_level()},
                                          {"post_processor", nullptr}, {"decoder", byte_level()},
                                          {"model", std::move(model)}};
  return tokenizer.dump();
}

}  // namespace tidepool::model
