#include "base/json.h"

#include <simdjson.h>

#include <cmath>
#include <unordered_set>

#include "base/check.h"
#include "base/file.h"
#include "base/text.h"

namespace tidepool::base {
namespace {

constexpr int kMaxDepth = 256;

Json convert(const simdjson::dom::element& e, std::string_view what, int depth) {
  using Type = simdjson::dom::element_type;
  tidepool_check(depth <= kMaxDepth, "{}: JSON nested deeper than {} levels", what, kMaxDepth);
  switch (e.type()) {
    case Type::NULL_VALUE:
      return nullptr;
    case Type::BOOL:
      return e.get_bool().value_unsafe();
    case Type::INT64:
      return e.get_int64().value_unsafe();
    case Type::UINT64:
      return e.get_uint64().value_unsafe();
    case Type::DOUBLE:
      return e.get_double().value_unsafe();
    case Type::STRING:
      return std::string(e.get_string().value_unsafe());
    case Type::ARRAY: {
      JsonArray array;
      const simdjson::dom::array children = e.get_array().value_unsafe();  // named: the loop must not hold a temporary
      for (auto child : children) array.push_back(convert(child, what, depth + 1));
      return array;
    }
    case Type::OBJECT: {
      JsonObject object;
      std::unordered_set<std::string_view> seen;
      const simdjson::dom::object fields = e.get_object().value_unsafe();
      for (auto field : fields) {
        tidepool_check(seen.insert(field.key).second, "{}: key \"{}\" occurs twice in one JSON object", what,
                       shown(field.key));
        object.emplace_back(std::string(field.key), convert(field.value, what, depth + 1));
      }
      return object;
    }
  }
  return nullptr;
}

void write_string(std::string& out, const std::string& s) {
  out += '"';
  for (unsigned char c : s) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (c < 0x20) {
          out += fmt::format("\\u{:04x}", c);
        } else {
          out += static_cast<char>(c);
        }
    }
  }
  out += '"';
}

[[noreturn]] void wrong_kind(const Json& value, std::string_view what, const char* wanted) {
  tidepool_fail("{}: expected {}, found {}", what.empty() ? "JSON value" : what, wanted, value.kind());
}

}  // namespace

Json::Json(uint64_t i) {
  if (i <= static_cast<uint64_t>(INT64_MAX)) {
    value_ = static_cast<int64_t>(i);
  } else {
    value_ = static_cast<double>(i);
  }
}

Json Json::parse(std::string_view text, std::string_view what) {
  tidepool_check(!text.empty(), "{}: not valid JSON: it is empty", what);
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  auto error = parser.parse(text.data(), text.size()).get(root);
  tidepool_check(!error, "{}: not valid JSON: {}", what, simdjson::error_message(error));
  return convert(root, what, 0);
}

Json Json::parse_file(const std::string& path) { return parse(read_regular_file(path), path); }

const char* Json::kind() const {
  if (is_null()) return "null";
  if (is_bool()) return "boolean";
  if (is_int()) return "integer";
  if (is_number()) return "number";
  if (is_string()) return "string";
  return is_array() ? "array" : "object";
}

bool Json::as_bool(std::string_view what) const {
  if (!is_bool()) wrong_kind(*this, what, "true or false");
  return std::get<bool>(value_);
}

int64_t Json::as_int(std::string_view what) const {
  if (is_int()) return std::get<int64_t>(value_);
  if (is_number()) {
    double d = std::get<double>(value_);
    if (d == std::floor(d) && std::abs(d) < 9e18) return static_cast<int64_t>(d);
  }
  wrong_kind(*this, what, "an integer");
}

double Json::as_double(std::string_view what) const {
  if (is_int()) return static_cast<double>(std::get<int64_t>(value_));
  if (!is_number()) wrong_kind(*this, what, "a number");
  return std::get<double>(value_);
}

const std::string& Json::as_string(std::string_view what) const {
  if (!is_string()) wrong_kind(*this, what, "a string");
  return std::get<std::string>(value_);
}

const JsonArray& Json::as_array(std::string_view what) const {
  if (!is_array()) wrong_kind(*this, what, "an array");
  return std::get<JsonArray>(value_);
}

const JsonObject& Json::as_object(std::string_view what) const {
  if (!is_object()) wrong_kind(*this, what, "an object");
  return std::get<JsonObject>(value_);
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const auto& [name, value] : std::get<JsonObject>(value_)) {
    if (name == key) return &value;
  }
  return nullptr;
}

const Json& Json::at(std::string_view key, std::string_view what) const {
  const Json* member = find(key);
  tidepool_check(member != nullptr, "{}: \"{}\" is missing", what.empty() ? "JSON object" : what, key);
  return *member;
}

void Json::set(std::string key, Json value) {
  auto& object = std::get<JsonObject>(value_);
  for (auto& [name, old] : object) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  object.emplace_back(std::move(key), std::move(value));
}

void Json::push_back(Json value) { std::get<JsonArray>(value_).push_back(std::move(value)); }

void Json::write(std::string& out, int indent, int depth) const {
  auto new_line = [&](int level) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<size_t>(indent * level), ' ');
  };
  if (is_null()) {
    out += "null";
  } else if (is_bool()) {
    out += std::get<bool>(value_) ? "true" : "false";
  } else if (is_int()) {
    out += fmt::format("{}", std::get<int64_t>(value_));
  } else if (is_number()) {
    double d = std::get<double>(value_);
    out += std::isfinite(d) ? fmt::format("{}", d) : "null";
  } else if (is_string()) {
    write_string(out, std::get<std::string>(value_));
  } else if (is_array()) {
    const auto& array = std::get<JsonArray>(value_);
    out += '[';
    for (size_t i = 0; i < array.size(); ++i) {
      if (i > 0) out += indent < 0 ? "," : ", ";
      array[i].write(out, -1, depth + 1);
    }
    out += ']';
  } else {
    const auto& object = std::get<JsonObject>(value_);
    out += '{';
    for (size_t i = 0; i < object.size(); ++i) {
      if (i > 0) out += ',';
      new_line(depth + 1);
      write_string(out, object[i].first);
      out += indent < 0 ? ":" : ": ";
      object[i].second.write(out, indent, depth + 1);
    }
    if (!object.empty()) new_line(depth);
    out += '}';
  }
}

std::string Json::dump() const {
  std::string out;
  write(out, -1, 0);
  return out;
}

std::string Json::dump_pretty() const {
  std::string out;
  write(out, 2, 0);
  return out;
}

}  // namespace tidepool::base
