// YAML as far as a configuration needs it: one document of maps, lists and plain or quoted texts, as a tree that knows
// where everything stands. Anchors, aliases, tags, merge keys and keys that are no texts are refused by name: a
// configuration of forty options has no use for them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tidepool::cli {

inline constexpr size_t kMaxYamlBytes = size_t{64} << 10;
inline constexpr size_t kMaxYamlDepth = 8;

struct Place {  // in a file, both from 1
  int line = 0, column = 0;
};

struct YamlMember;

struct YamlNode {
  enum class Kind { kNull, kText, kList, kMap };

  Kind kind = Kind::kNull;
  Place place;
  std::string text;                 // kText
  bool is_quoted = false;           // kText: written in quotes or as a block, and so never a number or a boolean
  std::vector<YamlNode> items;      // kList
  std::vector<YamlMember> members;  // kMap, in order; a key that is there twice is there twice
};

struct YamlMember {
  std::string key;
  Place place;  // of the key
  YamlNode value;
};

// What a sentence calls a node of this kind: "no value", "a text", "a list", "a map".
const char* kind_name(YamlNode::Kind kind);

// The document in `text`; `file` names it in errors. Throws base::UsageError, "FILE:LINE:COLUMN: ..." for what is not
// YAML (in UTF-8, without control characters), what is refused above, more than one document and none. Any bytes are
// fine: time and depth are bounded by the two limits.
YamlNode parse_yaml(std::string_view text, const std::string& file);

}  // namespace tidepool::cli
