#include "text/tokenizer.h"

#include "base/check.h"
#include "base/json.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/component.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace tidepool::text {
namespace {

const base::Json& member_or_null(const base::Json& json, std::string_view key, const base::Json& null) {
  const base::Json* member = json.find(key);
  return member == nullptr ? null : *member;
}

// Decoding is what ByteLevel does; the file must ask for exactly that. Returns how many ByteLevel decoders it has.
int count_byte_level(const base::Json& json, const std::string& where, int depth) {
  check_sequence_depth(depth, where);
  Component component(json, where);
  if (component.type() == "ByteLevel") {
    component.allow_only({"add_prefix_space", "trim_offsets", "use_regex"});
    return 1;
  }
  if (component.type() != "Sequence") component.refuse_type("decoder", "ByteLevel, Sequence");
  component.allow_only({"decoders"});
  const auto& children = component.at("decoders").as_array(component.place("decoders"));
  int count = 0;
  for (size_t i = 0; i < children.size(); ++i) {
    count += count_byte_level(children[i], fmt::format("{}.decoders[{}]", where, i), depth + 1);
  }
  return count;
}

void check_frame(const base::Json& json, const std::string& what) {
  allow_only_keys(json,
                  {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                   "decoder", "model"},
                  what);
  if (const auto* version = json.find("version")) {
    tidepool_check(version->as_string(what + ": version") == "1.0",
                   "{}: version \"{}\" is not supported (supported: 1.0)", what, version->as_string());
  }
  for (const char* key : {"truncation", "padding"}) {
    const auto* member = json.find(key);
    tidepool_check(member == nullptr || member->is_null(), "{}: {} is not supported (must be null)", what, key);
  }
  std::string where = what + ": decoder";
  int num_decoders = count_byte_level(json.at("decoder", what), where, 0);
  tidepool_check(num_decoders == 1, "{}: must hold ByteLevel exactly once, holds it {} times", where, num_decoders);
}

}  // namespace

struct Tokenizer::Parts {
  Vocabulary vocabulary;
  Normalizer normalizer;
  AddedTokens added;
  PreTokenizer pre_tokenizer;
  Bpe bpe;  // borrows vocabulary
  PostProcessor post_processor;
};

// The buffers of one encode, and its steps from the whole text down to the pieces.
class Tokenizer::Encoder {
 public:
  Encoder(const Parts& parts, std::vector<int32_t>& out) : parts_(parts), out_(out), cut_(parts.pre_tokenizer) {}

  void run(std::string_view text) {
    parts_.added.split(text, AddedTokens::Round::kRaw, raw_segments_);
    for (const auto& segment : raw_segments_) {
      if (segment.id >= 0) {
        out_.push_back(segment.id);
      } else if (parts_.normalizer.is_identity()) {
        run_normalized(segment.text);
      } else {
        run_normalized(parts_.normalizer.apply(segment.text));
      }
    }
  }

 private:
  void run_normalized(std::string_view text) {
    parts_.added.split(text, AddedTokens::Round::kNormalized, segments_);
    for (const auto& segment : segments_) {
      if (segment.id >= 0) {
        out_.push_back(segment.id);
        continue;
      }
      parts_.pre_tokenizer.run(segment.text, cut_, pieces_);
      for (std::string_view piece : pieces_) parts_.bpe.encode(piece, merge_, out_);
    }
  }

  const Parts& parts_;
  std::vector<int32_t>& out_;
  std::vector<AddedTokens::Segment> raw_segments_, segments_;
  std::vector<std::string_view> pieces_;
  PreTokenizer::Scratch cut_;
  Bpe::Scratch merge_;
};

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::string& path) { return from_parsed(base::Json::parse_file(path), path); }

Tokenizer Tokenizer::from_json(std::string_view text, const std::string& what) {
  tidepool_check(!text.empty(), "{}: is empty", what);  // the JSON parser wants a pointer that is not null
  return from_parsed(base::Json::parse(text, what), what);
}

Tokenizer Tokenizer::from_parsed(const base::Json& json, const std::string& what) {
  const base::Json null, no_tokens = base::Json::array();
  check_frame(json, what);
  auto parts = std::make_unique<Parts>();
  parts->bpe = Bpe::from_json(json.at("model", what), what + ": model", parts->vocabulary);
  parts->normalizer = Normalizer::from_json(member_or_null(json, "normalizer", null), what + ": normalizer");
  parts->added = AddedTokens::from_json(member_or_null(json, "added_tokens", no_tokens), what + ": added_tokens",
                                        parts->normalizer, parts->vocabulary);
  parts->pre_tokenizer = PreTokenizer::from_json(member_or_null(json, "pre_tokenizer", null), what + ": pre_tokenizer");
  parts->post_processor = PostProcessor::from_json(member_or_null(json, "post_processor", null),
                                                   what + ": post_processor", parts->vocabulary);
  return Tokenizer(std::move(parts));
}

std::vector<int32_t> Tokenizer::encode(std::string_view utf8, bool add_special) const {
  tidepool_check(utf8.size() <= kMaxTextBytes, "text of {} bytes, the limit is {}", utf8.size(), kMaxTextBytes);
  size_t bad = find_invalid_utf8(utf8);
  tidepool_check(bad == std::string_view::npos, "text is not valid UTF-8 at byte {}", bad);
  std::vector<int32_t> out;
  const auto& post_processor = parts_->post_processor;
  if (add_special) out = post_processor.before();
  Encoder(*parts_, out).run(utf8);
  if (add_special) out.insert(out.end(), post_processor.after().begin(), post_processor.after().end());
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (int32_t id : ids) {
    check_id(id);
    if (!skip_special || !parts_->vocabulary.is_special(id)) bytes += parts_->vocabulary.bytes(id);
  }
  if (find_invalid_utf8(bytes) == std::string_view::npos) return bytes;
  std::string out;
  append_lossy_utf8(bytes, true, out);
  return out;
}

void Tokenizer::check_id(int32_t id) const {
  tidepool_check(parts_->vocabulary.contains(id), "token id {} is not in the vocabulary (ids lie below {})", id,
                 vocab_size());
}

int32_t Tokenizer::vocab_size() const { return parts_->vocabulary.size(); }
bool Tokenizer::contains(int32_t id) const { return parts_->vocabulary.contains(id); }
std::optional<int32_t> Tokenizer::id_of(std::string_view token) const { return parts_->vocabulary.find(token); }

std::string_view Tokenizer::token_of(int32_t id) const {
  check_id(id);
  return parts_->vocabulary.token(id);
}

std::string_view Tokenizer::bytes_of(int32_t id) const {
  check_id(id);
  return parts_->vocabulary.bytes(id);
}

bool Tokenizer::is_special(int32_t id) const {
  check_id(id);
  return parts_->vocabulary.is_special(id);
}

}  // namespace tidepool::text
