#include "base/text.h"

#include <fmt/format.h>

#include <array>

namespace tidepool::base {
namespace {

constexpr size_t kMaxShown = 120;

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

std::string bytes_text(uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string one_line(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

std::string shown(std::string_view name) {
  if (name.size() <= kMaxShown) return one_line(name);
  size_t end = kMaxShown;
  while (end > 0 && is_continuation(name[end])) --end;  // not within a character
  return one_line(name.substr(0, end)) + fmt::format("... ({} bytes)", name.size());
}

}  // namespace tidepool::base
