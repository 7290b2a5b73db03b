// Typed members of one JSON object with their limits, for readers of config files. A view: the object must outlive it.
// A member that is null counts as absent. Errors name the file, the field, the value and the limit.
#pragma once

#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/json.h"
#include "base/text.h"

namespace tidepool::model {

class JsonFields {
 public:
  JsonFields(const base::Json& object, std::string what) : object_(object), what_(std::move(what)) {
    tidepool_check(object.is_object(), "{}: expected a JSON object, found {}", what_, object.kind());
  }

  const std::string& what() const { return what_; }

  // Null when absent.
  const base::Json* find(const char* key) const {
    const base::Json* value = object_.find(key);
    return value != nullptr && !value->is_null() ? value : nullptr;
  }
  bool has(const char* key) const { return find(key) != nullptr; }

  int64_t integer(const char* key, int64_t min, int64_t max) const {
    const base::Json* value = find(key);
    tidepool_check(value != nullptr, "{}: {} is missing", what_, key);
    const int64_t i = value->as_int(name(key));
    tidepool_check(i >= min && i <= max, "{}: {} is {}, it must lie in {}..{}", what_, key, i, min, max);
    return i;
  }
  int64_t integer_or(const char* key, int64_t fallback, int64_t min, int64_t max) const {
    return has(key) ? integer(key, min, max) : fallback;
  }
  int32_t int32(const char* key, int32_t min, int32_t max) const {
    return static_cast<int32_t>(integer(key, min, max));
  }
  int32_t int32_or(const char* key, int32_t fallback, int32_t min, int32_t max) const {
    return has(key) ? int32(key, min, max) : fallback;
  }
  double number_or(const char* key, double fallback, double min, double max) const {
    const base::Json* value = find(key);
    if (value == nullptr) return fallback;
    const double d = value->as_double(name(key));
    tidepool_check(d >= min && d <= max, "{}: {} is {}, it must lie in {}..{}", what_, key, d, min, max);
    return d;
  }
  bool boolean_or(const char* key, bool fallback) const {
    const base::Json* value = find(key);
    return value == nullptr ? fallback : value->as_bool(name(key));
  }
  std::string string_or(const char* key, const char* fallback) const {
    const base::Json* value = find(key);
    return value == nullptr ? std::string(fallback) : value->as_string(name(key));
  }

  // Refuses every value but the one this project computes; absent passes.
  void require_string(const char* key, const char* only) const {
    const std::string s = string_or(key, only);
    tidepool_check(s == only, "{}: {} is \"{}\", only \"{}\" is supported", what_, key, base::shown(s), only);
  }
  void require_bool(const char* key, bool only) const {
    const bool b = boolean_or(key, only);
    tidepool_check(b == only, "{}: {} is {}, only {} is supported", what_, key, b, only);
  }
  void require_integer(const char* key, int64_t only, const char* reason) const {
    const base::Json* value = find(key);
    if (value == nullptr) return;
    const int64_t i = value->as_int(name(key));
    tidepool_check(i == only, "{}: {} is {}, it must be {} ({})", what_, key, i, only, reason);
  }

  std::string name(const char* key) const { return what_ + ": " + key; }

 private:
  const base::Json& object_;
  std::string what_;
};

}  // namespace tidepool::model
