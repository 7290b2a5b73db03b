// One component of a tokenizer.json (a JSON object with a "type") together with the place where it stands, so that
// every error names file, place and option. Borrows the JSON; immutable.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "base/json.h"

namespace tidepool::text {

class Component {
 public:
  // Throws when `json` is no object or has no string "type".
  Component(const base::Json& json, std::string where);

  const std::string& type() const { return *type_; }
  const std::string& where() const { return where_; }

  // Throws when a member other than "type" and these exists: an option nobody reads would be ignored silently.
  void allow_only(std::initializer_list<std::string_view> keys) const;

  // The member `key`; throws when absent.
  const base::Json& at(std::string_view key) const { return json_->at(key, where_); }
  // Null when absent.
  const base::Json* find(std::string_view key) const { return json_->find(key); }
  bool flag(std::string_view key, bool fallback) const;
  // "WHERE: KEY" for errors.
  std::string place(std::string_view key) const;

  // Throws: the type is not supported as `role` (such as "normalizer").
  [[noreturn]] void refuse_type(std::string_view role, std::string_view supported) const;

 private:
  const base::Json* json_;
  std::string where_;
  const std::string* type_;
};

// Throws when `json` (an object) has a member that is not among `keys`.
void allow_only_keys(const base::Json& json, std::initializer_list<std::string_view> keys, std::string_view where);

// Throws when `depth`, the number of "Sequence" components around one, is above the limit of 8.
void check_sequence_depth(int depth, std::string_view where);

}  // namespace tidepool::text
