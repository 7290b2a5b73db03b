#include "text/component.h"

#include <algorithm>

#include "base/check.h"

namespace tidepool::text {
namespace {
constexpr int kMaxSequenceDepth = 8;
}

Component::Component(const base::Json& json, std::string where)
    : json_(&json), where_(std::move(where)), type_(nullptr) {
  json.as_object(where_);
  type_ = &json.at("type", where_).as_string(place("type"));
}

void Component::allow_only(std::initializer_list<std::string_view> keys) const {
  for (const auto& [name, value] : json_->as_object(where_)) {
    bool known = name == "type" || std::find(keys.begin(), keys.end(), name) != keys.end();
    tidepool_check(known, "{}: option \"{}\" of {} is not supported", where_, name, type());
  }
}

bool Component::flag(std::string_view key, bool fallback) const {
  const base::Json* member = find(key);
  return member == nullptr ? fallback : member->as_bool(place(key));
}

std::string Component::place(std::string_view key) const { return fmt::format("{}: {}", where_, key); }

void Component::refuse_type(std::string_view role, std::string_view supported) const {
  tidepool_fail("{}: {} \"{}\" is not supported (supported: {})", where_, role, type(), supported);
}

void allow_only_keys(const base::Json& json, std::initializer_list<std::string_view> keys, std::string_view where) {
  for (const auto& [name, value] : json.as_object(where)) {
    bool known = std::find(keys.begin(), keys.end(), name) != keys.end();
    tidepool_check(known, "{}: option \"{}\" is not supported", where, name);
  }
}

void check_sequence_depth(int depth, std::string_view where) {
  tidepool_check(depth <= kMaxSequenceDepth, "{}: Sequence nested deeper than {} levels", where, kMaxSequenceDepth);
}

}  // namespace tidepool::text
