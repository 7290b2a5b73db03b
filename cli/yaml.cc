#include "yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "base/check.h"
#include "base/flags.h"
#include "base/text.h"
#include "text/utf8.h"

namespace tidepool::cli {
namespace {

// The tags that yaml-cpp gives to scalars without one.
constexpr const char* kPlainTag = "?";
constexpr const char* kQuotedTag = "!";

Place place_of(const YAML::Mark& mark) { return {mark.line + 1, mark.column + 1}; }

Place place_of(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return {static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1,
          static_cast<int>(offset - line_start) + 1};
}

[[noreturn]] void refuse(const std::string& file, Place place, const std::string& what) {
  throw base::UsageError(fmt::format("{}:{}:{}: {}", file, place.line, place.column, what));
}

// Builds the tree from the parser's events, so that no part of a refused document is ever built or walked.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& file) : file_(file) {}

  std::optional<YamlNode> take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (root_) refuse(file_, place_of(mark), "a second document begins; a configuration is one document");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    check_plain(mark, anchor, kPlainTag);
    add(make(YamlNode::Kind::kNull, mark));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(file_, place_of(mark), "aliases (*name) are not available in a configuration; write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check_plain(mark, anchor, tag);
    YamlNode node = make(YamlNode::Kind::kText, mark);
    node.text = value;
    node.is_quoted = tag == kQuotedTag;
    add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    check_plain(mark, anchor, tag);
    open(make(YamlNode::Kind::kList, mark));
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    check_plain(mark, anchor, tag);
    open(make(YamlNode::Kind::kMap, mark));
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    YamlNode node;
    std::optional<YamlMember> member;  // of a map: the key has come, its value has not
  };

  static YamlNode make(YamlNode::Kind kind, const YAML::Mark& mark) {
    YamlNode node;
    node.kind = kind;
    node.place = place_of(mark);
    return node;
  }

  void check_plain(const YAML::Mark& mark, YAML::anchor_t anchor, const std::string& tag) const {
    if (anchor != 0) refuse(file_, place_of(mark), "anchors (&name) are not available in a configuration");
    if (tag.empty() || tag == kPlainTag || tag == kQuotedTag) return;
    refuse(file_, place_of(mark),
           fmt::format("the tag {}: tags are not available in a configuration", base::shown(tag)));
  }

  bool wants_key() const {
    return !open_.empty() && open_.back().node.kind == YamlNode::Kind::kMap && !open_.back().member;
  }

  void open(YamlNode node) {
    if (wants_key()) {
      refuse(file_, node.place,
             fmt::format("{} is a key here, or is not closed; a key must be a text", kind_name(node.kind)));
    }
    if (open_.size() >= kMaxYamlDepth) {
      refuse(file_, node.place, fmt::format("nested deeper than the {} levels that are read", kMaxYamlDepth));
    }
    open_.push_back({std::move(node), std::nullopt});
  }

  void close() {
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    add(std::move(node));
  }

  void add(YamlNode node) {
    if (wants_key()) {
      if (node.kind != YamlNode::Kind::kText) refuse(file_, node.place, "a key is missing before the colon");
      if (node.text == "<<" && !node.is_quoted) {
        refuse(file_, node.place, "merge keys (<<) are not available in a configuration; write the values out");
      }
      open_.back().member = YamlMember{std::move(node.text), node.place, {}};
      return;
    }
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = open_.back();
    if (parent.node.kind == YamlNode::Kind::kList) {
      parent.node.items.push_back(std::move(node));
      return;
    }
    parent.member->value = std::move(node);
    parent.node.members.push_back(std::move(*parent.member));
    parent.member.reset();
  }

  const std::string& file_;
  std::vector<Open> open_;
  std::optional<YamlNode> root_;
};

void check_bytes(std::string_view text, const std::string& file) {
  if (text.size() > kMaxYamlBytes) {
    throw base::UsageError(fmt::format("{}: {} bytes, more than the {} that a configuration may have", file,
                                       text.size(), base::bytes_text(kMaxYamlBytes)));
  }
  const size_t bad = text::find_invalid_utf8(text);
  const auto is_control = [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7f;
  };
  const size_t control = static_cast<size_t>(std::find_if(text.begin(), text.end(), is_control) - text.begin());
  const size_t first = std::min(bad, control);
  if (first >= text.size()) return;
  refuse(file, place_of(text, first),
         fmt::format("not a text in UTF-8: byte 0x{:02x}", static_cast<unsigned char>(text[first])));
}

}  // namespace

const char* kind_name(YamlNode::Kind kind) {
  constexpr const char* kNames[] = {"no value", "a text", "a list", "a map"};
  return kNames[static_cast<int>(kind)];
}

YamlNode parse_yaml(std::string_view text, const std::string& file) {
  check_bytes(text, file);
  TreeBuilder builder(file);
  try {
    // yaml-cpp takes the end of the file for the end of a quoted text, but not the end of the document.
    std::istringstream stream{std::string(text) + "\n...\n"};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    refuse(file, place_of(error.mark), "not YAML: " + base::shown(error.msg));
  }
  std::optional<YamlNode> root = builder.take_root();
  if (!root || root->kind == YamlNode::Kind::kNull) throw base::UsageError(file + ": there is no option in it");
  return std::move(*root);
}

}  // namespace tidepool::cli
