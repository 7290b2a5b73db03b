#include "text/pre_tokenizer.h"

#include <algorithm>

#include "base/check.h"
#include "text/component.h"

namespace tidepool::text {
namespace {

// What ByteLevel cuts with when its use_regex is on (the GPT-2 pattern).
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace

PreTokenizer PreTokenizer::from_json(const base::Json& json, const std::string& where) {
  PreTokenizer pre_tokenizer;
  tidepool_check(!json.is_null(), "{}: null is not supported (only byte-level BPE is: the last one must be ByteLevel)",
                 where);
  pre_tokenizer.read(json, where, 0);
  tidepool_check(pre_tokenizer.has_byte_level_, "{}: no ByteLevel in it; only byte-level BPE is supported", where);
  return pre_tokenizer;
}

void PreTokenizer::read(const base::Json& json, const std::string& where, int depth) {
  check_sequence_depth(depth, where);
  Component component(json, where);
  if (component.type() == "Sequence") {
    component.allow_only({"pretokenizers"});
    const auto& children = component.at("pretokenizers").as_array(component.place("pretokenizers"));
    for (size_t i = 0; i < children.size(); ++i) {
      read(children[i], fmt::format("{}.pretokenizers[{}]", where, i), depth + 1);
    }
    return;
  }
  tidepool_check(!has_byte_level_, "{}: {} after ByteLevel is not supported", where, component.type());
  if (component.type() == "Split") {
    read_split(component);
  } else if (component.type() == "Digits") {
    component.allow_only({"individual_digits"});
    auto behavior = component.flag("individual_digits", false) ? Behavior::kIsolated : Behavior::kContiguous;
    splits_.push_back({Regex(R"(\p{N})", Regex::Kind::kOniguruma, where), behavior, false});
  } else if (component.type() == "ByteLevel") {
    read_byte_level(component);
  } else {
    component.refuse_type("pre-tokenizer", "Split, Digits, ByteLevel, Sequence");
  }
}

void PreTokenizer::read_split(const Component& component) {
  component.allow_only({"pattern", "behavior", "invert"});
  std::string place = component.place("pattern");
  const auto& pattern = component.at("pattern").as_object(place);
  tidepool_check(pattern.size() == 1 && (pattern[0].first == "Regex" || pattern[0].first == "String"),
                 "{}: must be {{\"Regex\": ...}} or {{\"String\": ...}}", place);
  auto kind = pattern[0].first == "Regex" ? Regex::Kind::kOniguruma : Regex::Kind::kLiteral;
  const std::string& behavior = component.at("behavior").as_string(component.place("behavior"));
  splits_.push_back({Regex(pattern[0].second.as_string(place), kind, place),
                     behavior_of(behavior, component.place("behavior")), component.flag("invert", false)});
}

void PreTokenizer::read_byte_level(const Component& component) {
  component.allow_only({"add_prefix_space", "trim_offsets", "use_regex"});  // trim_offsets touches offsets only
  has_byte_level_ = true;
  add_prefix_space_ = component.flag("add_prefix_space", true);
  num_splits_before_prefix_ = splits_.size();
  if (component.flag("use_regex", true)) {
    splits_.push_back(
        {Regex(kByteLevelPattern, Regex::Kind::kOniguruma, component.where()), Behavior::kIsolated, false});
  }
}

PreTokenizer::Behavior PreTokenizer::behavior_of(const std::string& name, const std::string& where) {
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  tidepool_fail("{}: behavior \"{}\" is not supported", where, name);
}

PreTokenizer::Scratch::Scratch(const PreTokenizer& pre_tokenizer) {
  for (const Split& split : pre_tokenizer.splits_) matchers.emplace_back(split.regex);
}

// Covers `piece` with parts, matches and the stretches between them. An empty match counts as a part of its own unless
// it touches the match before it.
void PreTokenizer::cut(const Split& split, std::string_view piece, Regex::Matcher& matcher, Scratch& scratch) {
  auto& parts = scratch.parts;
  parts.clear();
  size_t covered = 0, start = 0;
  bool touches_match = false;  // whether a match ended at `covered`
  Regex::Match match{};
  while (start <= piece.size() && matcher.find(piece, start, match)) {
    tidepool_check(match.begin >= covered && match.end >= match.begin,
                   "a pattern of the pre-tokenizer matched backwards");
    if (match.begin == match.end && touches_match && match.end == covered) {
      do ++start;
      while (start < piece.size() && (static_cast<unsigned char>(piece[start]) & 0xC0) == 0x80);
      continue;
    }
    if (match.begin > covered) parts.push_back({covered, match.begin, split.invert});
    parts.push_back({match.begin, match.end, !split.invert});
    start = covered = match.end;
    touches_match = true;
  }
  if (covered < piece.size()) parts.push_back({covered, piece.size(), split.invert});
}

// Joins the parts as the behaviour says. A part joins its neighbour or begins a new piece; Removed drops the matches.
void PreTokenizer::fold(Behavior behavior, Scratch& scratch) {
  auto& folded = scratch.folded;
  auto& parts = scratch.parts;
  folded.clear();
  if (behavior == Behavior::kRemoved) {
    std::copy_if(parts.begin(), parts.end(), std::back_inserter(folded),
                 [](const auto& part) { return !part.is_match; });
    return;
  }
  if (behavior == Behavior::kIsolated) return folded.swap(parts);
  bool backwards = behavior == Behavior::kMergedWithNext;
  if (backwards) std::reverse(parts.begin(), parts.end());
  bool previous = false;
  for (const auto& part : parts) {
    bool joins = behavior == Behavior::kContiguous ? part.is_match == previous : part.is_match && !previous;
    previous = part.is_match;
    if (!joins || folded.empty()) {
      folded.push_back(part);
    } else if (backwards) {
      folded.back().begin = part.begin;
    } else {
      folded.back().end = part.end;
    }
  }
  if (backwards) std::reverse(folded.begin(), folded.end());
}

void PreTokenizer::run(std::string_view text, Scratch& scratch, std::vector<std::string_view>& pieces) const {
  pieces.clear();
  scratch.prefixed.clear();
  if (!text.empty()) pieces.push_back(text);
  for (size_t i = 0; i <= splits_.size(); ++i) {
    if (i == num_splits_before_prefix_ && add_prefix_space_) {
      for (auto& piece : pieces) {
        if (piece[0] != ' ') piece = scratch.prefixed.emplace_back(1, ' ').append(piece);
      }
    }
    if (i == splits_.size()) break;
    scratch.next.clear();
    for (std::string_view piece : pieces) {
      cut(splits_[i], piece, scratch.matchers[i], scratch);
      fold(splits_[i].behavior, scratch);
      for (const auto& part : scratch.folded) {
        if (part.end > part.begin) scratch.next.push_back(piece.substr(part.begin, part.end - part.begin));
      }
    }
    pieces.swap(scratch.next);
  }
}

}  // namespace tidepool::text
