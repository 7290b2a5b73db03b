#include "text/added_tokens.h"

#include <algorithm>
#include <unordered_set>

#include "base/check.h"
#include "text/component.h"
#include "text/utf8.h"

namespace tidepool::text {
namespace {

size_t white_space_before(std::string_view text, size_t pos) {
  while (pos > 0) {
    CodePoint c = code_point_before(text, pos);
    if (!is_white_space(c.value)) break;
    pos -= c.len;
  }
  return pos;
}

size_t white_space_after(std::string_view text, size_t pos) {
  while (pos < text.size()) {
    CodePoint c = code_point_at(text, pos);
    if (!is_white_space(c.value)) break;
    pos += c.len;
  }
  return pos;
}

bool is_single_word(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && is_word(code_point_before(text, begin).value)) return false;
  return end == text.size() || !is_word(code_point_at(text, end).value);
}

}  // namespace

AddedTokens::Tree::Tree() : nodes_(1) { first_.fill(-1); }

int32_t AddedTokens::Tree::child(int32_t node, uint8_t byte) const {
  for (auto [label, next] : nodes_[static_cast<size_t>(node)].children) {
    if (label == byte) return next;
  }
  return -1;
}

bool AddedTokens::Tree::insert(std::string_view content, const Token& token) {
  int32_t node = 0;
  for (char c : content) {
    auto byte = static_cast<uint8_t>(c);
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_.emplace_back();
      nodes_[static_cast<size_t>(node)].children.emplace_back(byte, next);
      if (node == 0) first_[byte] = next;
    }
    node = next;
  }
  if (node == 0 || nodes_[static_cast<size_t>(node)].token >= 0) return false;
  nodes_[static_cast<size_t>(node)].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
  return true;
}

const AddedTokens::Token* AddedTokens::Tree::longest_at(std::string_view text, size_t pos, size_t& len) const {
  const Token* best = nullptr;
  int32_t node = first_[static_cast<uint8_t>(text[pos])];
  for (size_t i = pos + 1; node >= 0; ++i) {
    int32_t token = nodes_[static_cast<size_t>(node)].token;
    if (token >= 0) {
      best = &tokens_[static_cast<size_t>(token)];
      len = i - pos;
    }
    node = i < text.size() ? child(node, static_cast<uint8_t>(text[i])) : -1;
  }
  return best;
}

void AddedTokens::read_one(const base::Json& json, const std::string& where, Vocabulary& vocabulary, Token& token,
                           bool& normalized) {
  allow_only_keys(json, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}, where);
  const std::string& content = json.at("content", where).as_string(where + ".content");
  int64_t id = json.at("id", where).as_int(where + ".id");
  tidepool_check(!content.empty(), "{}: content is empty", where);
  auto known = vocabulary.find(content);
  if (known) {
    tidepool_check(*known == id, "{}: id {} of token \"{}\" differs from its id {} in the vocabulary", where, id,
                   content, *known);
  } else {
    vocabulary.add(content, id, where);
  }
  auto flag = [&](const char* key, bool fallback) {
    const auto* value = json.find(key);
    return value == nullptr ? fallback : value->as_bool(where + "." + key);
  };
  token = {static_cast<int32_t>(id), flag("single_word", false), flag("lstrip", false), flag("rstrip", false)};
  bool special = flag("special", false);
  if (special) vocabulary.mark_special(token.id);
  normalized = flag("normalized", !special);
}

AddedTokens AddedTokens::from_json(const base::Json& json, const std::string& where, const Normalizer& normalizer,
                                   Vocabulary& vocabulary) {
  AddedTokens added;
  std::unordered_set<int32_t> seen;
  const auto& list = json.as_array(where);
  for (size_t i = 0; i < list.size(); ++i) {
    std::string place = fmt::format("{}[{}]", where, i);
    Token token{};
    bool normalized = false;
    read_one(list[i], place, vocabulary, token, normalized);
    const std::string& content = vocabulary.token(token.id);
    tidepool_check(seen.insert(token.id).second, "{}: token \"{}\" is listed twice", place, content);
    bool is_new =
        normalized ? added.normalized_.insert(normalizer.apply(content), token) : added.raw_.insert(content, token);
    tidepool_check(is_new, "{}: token \"{}\" looks like an earlier one once both are normalised", place, content);
  }
  return added;
}

void AddedTokens::split(std::string_view text, Round round, std::vector<Segment>& segments) const {
  const Tree& tree = round == Round::kRaw ? raw_ : normalized_;
  segments.clear();
  size_t covered = 0;
  for (size_t pos = 0; pos < text.size() && !tree.empty();) {
    size_t len = 0;
    const Token* token = tree.longest_at(text, pos, len);
    if (token == nullptr) {
      ++pos;
      continue;
    }
    size_t begin = pos, end = pos + len;
    pos = end;
    if (token->single_word && !is_single_word(text, begin, end)) continue;
    if (token->lstrip) begin = std::max(white_space_before(text, begin), covered);
    if (token->rstrip) end = white_space_after(text, end);
    if (begin >= end) continue;  // a token of white space that the one before has swallowed
    if (begin > covered) segments.push_back({-1, text.substr(covered, begin - covered)});
    segments.push_back({token->id, text.substr(begin, end - begin)});
    covered = end;
  }
  if (covered < text.size()) segments.push_back({-1, text.substr(covered)});
}

}  // namespace tidepool::text
