#include "text/post_processor.h"

#include "base/check.h"
#include "text/component.h"

namespace tidepool::text {
namespace {

// The ids that "special_tokens" declares for the token `name` of a template.
std::vector<int32_t> ids_of(const base::Json& special_tokens, const std::string& name, const std::string& where,
                            const Vocabulary& vocabulary) {
  const auto& ids = special_tokens.at(name, where).at("ids", where).as_array(where + ".ids");
  std::vector<int32_t> out;
  for (const auto& json : ids) {
    int64_t id = json.as_int(where + ".ids");
    tidepool_check(vocabulary.contains(id), "{}: id {} of \"{}\" is not in the vocabulary", where, id, name);
    out.push_back(static_cast<int32_t>(id));
  }
  return out;
}

}  // namespace

PostProcessor PostProcessor::from_json(const base::Json& json, const std::string& where, const Vocabulary& vocabulary) {
  PostProcessor post_processor;
  if (!json.is_null()) post_processor.read(json, where, vocabulary, 0);
  return post_processor;
}

void PostProcessor::read(const base::Json& json, const std::string& where, const Vocabulary& vocabulary, int depth) {
  check_sequence_depth(depth, where);
  Component component(json, where);
  if (component.type() == "Sequence") {
    component.allow_only({"processors"});
    const auto& children = component.at("processors").as_array(component.place("processors"));
    for (size_t i = 0; i < children.size(); ++i) {
      read(children[i], fmt::format("{}.processors[{}]", where, i), vocabulary, depth + 1);
    }
  } else if (component.type() == "ByteLevel") {
    component.allow_only({"add_prefix_space", "trim_offsets", "use_regex"});
  } else if (component.type() == "TemplateProcessing") {
    read_template(component, vocabulary);
  } else {
    component.refuse_type("post-processor", "null, ByteLevel, TemplateProcessing, Sequence");
  }
}

void PostProcessor::read_template(const Component& component, const Vocabulary& vocabulary) {
  component.allow_only({"single", "pair", "special_tokens"});  // one text at a time: "pair" is never used
  tidepool_check(!has_template_, "{}: a second TemplateProcessing is not supported", component.where());
  has_template_ = true;
  bool seen_text = false;
  const auto& parts = component.at("single").as_array(component.place("single"));
  for (size_t i = 0; i < parts.size(); ++i) {
    std::string where = fmt::format("{}.single[{}]", component.where(), i);
    const auto& part = parts[i].as_object(where);
    tidepool_check(part.size() == 1, "{}: must have one member, SpecialToken or Sequence", where);
    const auto& [kind, value] = part[0];
    const std::string& id = value.at("id", where).as_string(where + ".id");
    if (kind == "Sequence") {
      tidepool_check(id == "A" && !seen_text, "{}: a single template holds the sequence \"A\" once", where);
      seen_text = true;
    } else if (kind == "SpecialToken") {
      auto ids = ids_of(component.at("special_tokens"), id, component.where() + ".special_tokens", vocabulary);
      auto& side = seen_text ? after_ : before_;
      side.insert(side.end(), ids.begin(), ids.end());
    } else {
      tidepool_fail("{}: \"{}\" is not supported (supported: SpecialToken, Sequence)", where, kind);
    }
  }
  tidepool_check(seen_text, "{}: the single template lacks the sequence \"A\"", component.where());
}

}  // namespace tidepool::text
