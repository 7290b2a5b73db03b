// JSON values: parsing (simdjson behind it) and writing. Immutable use is thread safe.
//
// Errors: every function that can meet bad input throws tidepool::Error with a sentence that names `what` (the file or
// the thing parsed) and, for members, the key. Objects keep the order of their members; a duplicate key is an error.
// Numbers keep their kind: an integer that fits int64 stays exact.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tidepool::base {

class Json;
using JsonArray = std::vector<Json>;
using JsonMember = std::pair<std::string, Json>;
using JsonObject = std::vector<JsonMember>;

class Json {
 public:
  Json() : value_(nullptr) {}
  Json(std::nullptr_t) : value_(nullptr) {}
  Json(bool b) : value_(b) {}
  Json(int i) : value_(static_cast<int64_t>(i)) {}
  Json(int64_t i) : value_(i) {}
  Json(uint64_t i);  // larger than int64: stored as double
  Json(double d) : value_(d) {}
  Json(const char* s) : value_(std::string(s)) {}
  Json(std::string s) : value_(std::move(s)) {}
  Json(std::string_view s) : value_(std::string(s)) {}
  Json(JsonArray a) : value_(std::move(a)) {}
  Json(JsonObject o) : value_(std::move(o)) {}
  static Json array() { return Json(JsonArray{}); }
  static Json object() { return Json(JsonObject{}); }

  // Parses one document. `what` names it in errors. Depth is limited to 256.
  static Json parse(std::string_view text, std::string_view what);
  static Json parse_file(const std::string& path);  // a regular file

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  bool is_number() const { return is_int() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<JsonArray>(value_); }
  bool is_object() const { return std::holds_alternative<JsonObject>(value_); }
  const char* kind() const;  // "null", "boolean", "integer", "number", "string", "array", "object"

  // Typed access; throws when the kind differs. `what` names the value in the error ("" gives a general one).
  bool as_bool(std::string_view what = "") const;
  int64_t as_int(std::string_view what = "") const;  // also a double with an integral value that fits
  double as_double(std::string_view what = "") const;
  const std::string& as_string(std::string_view what = "") const;
  const JsonArray& as_array(std::string_view what = "") const;
  const JsonObject& as_object(std::string_view what = "") const;

  // Members. find: null when absent or when this is no object. at: throws when absent.
  const Json* find(std::string_view key) const;
  const Json& at(std::string_view key, std::string_view what = "") const;
  void set(std::string key, Json value);  // this must be an object; replaces an existing member
  void push_back(Json value);             // this must be an array

  // One line; doubles are written with the fewest digits that read back equal; NaN and infinities as null.
  std::string dump() const;
  // Indented by two spaces a level.
  std::string dump_pretty() const;

 private:
  void write(std::string& out, int indent, int depth) const;
  std::variant<std::nullptr_t, bool, int64_t, double, std::string, JsonArray, JsonObject> value_;
};

}  // namespace tidepool::base
