#include "text/bpe.h"

#include <algorithm>

#include "base/check.h"
#include "text/byte_level.h"
#include "text/component.h"

namespace tidepool::text {

void Bpe::MergeTable::reserve(size_t num_merges) {
  int bits = 4;
  while ((size_t{1} << bits) < 2 * num_merges) ++bits;
  slots_.assign(size_t{1} << bits, {});
  shift_ = 64 - bits;
}

uint64_t Bpe::MergeTable::key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

void Bpe::MergeTable::insert(int32_t left, int32_t right, int32_t rank, int32_t id) {
  uint64_t pair = key(left, right);
  size_t slot = home(pair);
  while (slots_[slot].pair != kEmpty && slots_[slot].pair != pair) slot = (slot + 1) & (slots_.size() - 1);
  slots_[slot] = {pair, rank, id};
}

const Bpe::MergeTable::Merge* Bpe::MergeTable::find(int32_t left, int32_t right) const {
  uint64_t pair = key(left, right);
  for (size_t slot = home(pair); slots_[slot].pair != kEmpty; slot = (slot + 1) & (slots_.size() - 1)) {
    if (slots_[slot].pair == pair) return &slots_[slot];
  }
  return nullptr;
}

Bpe Bpe::from_json(const base::Json& json, const std::string& where, Vocabulary& vocabulary) {
  Bpe bpe;
  bpe.vocabulary_ = &vocabulary;
  bpe.where_ = where;
  bpe.read_options(json, where);
  std::string place = where + ".vocab";
  for (const auto& [token, id] : json.at("vocab", where).as_object(place))
    vocabulary.add(token, id.as_int(place), place);
  vocabulary.close_model();
  for (size_t byte = 0; byte < 256; ++byte) {
    std::string token;
    append_byte_level(std::string(1, static_cast<char>(byte)), token);
    bpe.id_of_byte_[byte] = vocabulary.find(token).value_or(-1);
  }
  bpe.read_merges(json.at("merges", where), where + ".merges");
  return bpe;
}

// Old files leave "type" out. unk_token and fuse_unk matter only for a byte without a token, which encode refuses.
void Bpe::read_options(const base::Json& json, const std::string& where) {
  allow_only_keys(json,
                  {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                   "byte_fallback", "ignore_merges", "vocab", "merges"},
                  where);
  if (const auto* type = json.find("type")) {
    const std::string& name = type->as_string(where + ".type");
    tidepool_check(name == "BPE", "{}: model \"{}\" is not supported (supported: BPE)", where, name);
  }
  const auto* dropout = json.find("dropout");
  if (dropout != nullptr && !dropout->is_null()) {
    tidepool_check(dropout->as_double(where + ".dropout") == 0.0, "{}: dropout is not supported", where);
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto* affix = json.find(key);
    if (affix == nullptr || affix->is_null()) continue;
    tidepool_check(affix->as_string(where + "." + key).empty(), "{}: {} is not supported", where, key);
  }
  auto flag = [&](const char* key) {
    const auto* value = json.find(key);
    return value != nullptr && value->as_bool(where + "." + key);
  };
  const auto* unknown = json.find("unk_token");
  if (unknown != nullptr && !unknown->is_null()) unknown->as_string(where + ".unk_token");
  flag("fuse_unk");
  tidepool_check(!flag("byte_fallback"), "{}: byte_fallback is not supported", where);
  ignore_merges_ = flag("ignore_merges");
}

void Bpe::read_merges(const base::Json& json, const std::string& where) {
  const auto& list = json.as_array(where);
  merges_.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    std::string place = fmt::format("{}[{}]", where, i);
    auto rank = static_cast<int32_t>(i);
    if (list[i].is_string()) {
      const std::string& both = list[i].as_string();
      size_t space = both.find(' ');
      tidepool_check(space != std::string::npos && both.find(' ', space + 1) == std::string::npos,
                     "{}: \"{}\" must be two tokens with one space between them", place, both);
      add_merge(both.substr(0, space), both.substr(space + 1), rank, place);
    } else {
      const auto& pair = list[i].as_array(place);
      tidepool_check(pair.size() == 2, "{}: must have 2 tokens, has {}", place, pair.size());
      add_merge(pair[0].as_string(place), pair[1].as_string(place), rank, place);
    }
  }
}

void Bpe::add_merge(const std::string& left, const std::string& right, int32_t rank, const std::string& place) {
  auto id = [&](const std::string& token) {
    auto found = vocabulary_->find(token);
    tidepool_check(found.has_value(), "{}: token \"{}\" is not in the vocabulary", place, token);
    return *found;
  };
  int32_t left_id = id(left), right_id = id(right);
  merges_.insert(left_id, right_id, rank, id(left + right));
}

// Lowest rank first, leftmost first among equals. std::push_heap keeps the largest on top, so "less" is "later".
static bool is_later(const auto& a, const auto& b) { return a.rank != b.rank ? a.rank > b.rank : a.pos > b.pos; }

void Bpe::push_candidate(Scratch& scratch, int32_t pos) const {
  const auto& left = scratch.symbols[static_cast<size_t>(pos)];
  const auto* merge = merges_.find(left.id, scratch.symbols[static_cast<size_t>(left.next)].id);
  if (merge == nullptr) return;
  scratch.heap.push_back({merge->rank, pos, merge->id});
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), is_later<Scratch::Candidate, Scratch::Candidate>);
}

void Bpe::merge_all(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  heap.clear();
  for (int32_t pos = 0; pos + 1 < static_cast<int32_t>(symbols.size()); ++pos) push_candidate(scratch, pos);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), is_later<Scratch::Candidate, Scratch::Candidate>);
    auto top = heap.back();
    heap.pop_back();
    auto& left = symbols[static_cast<size_t>(top.pos)];
    if (left.id < 0 || left.next < 0) continue;
    auto& right = symbols[static_cast<size_t>(left.next)];
    // Earlier merges may have replaced either side. Hugging Face compares the result only, not the rank: so do we.
    const auto* merge = merges_.find(left.id, right.id);
    if (merge == nullptr || merge->id != top.id) continue;
    left.id = top.id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].prev = top.pos;
    if (left.prev >= 0) push_candidate(scratch, left.prev);
    if (left.next >= 0) push_candidate(scratch, top.pos);
  }
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& out) const {
  if (ignore_merges_) {
    scratch.token.clear();
    append_byte_level(piece, scratch.token);
    if (auto id = vocabulary_->find_in_model(scratch.token)) return out.push_back(*id);
  }
  auto& symbols = scratch.symbols;
  symbols.resize(piece.size());
  for (size_t i = 0; i < piece.size(); ++i) {
    auto byte = static_cast<uint8_t>(piece[i]);
    tidepool_check(id_of_byte_[byte] >= 0, "{}: the vocabulary has no token for the byte 0x{:02X} of the text", where_,
                   byte);
    auto pos = static_cast<int32_t>(i);
    symbols[i] = {id_of_byte_[byte], pos - 1, i + 1 < piece.size() ? pos + 1 : -1};
  }
  merge_all(scratch);
  for (const auto& symbol : symbols) {
    if (symbol.id >= 0) out.push_back(symbol.id);
  }
}

}  // namespace tidepool::text
