#include "base/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

namespace tidepool::base {
namespace {

// The number at the start, after spaces. Nothing for "max", and for a file that is not there.
std::optional<uint64_t> number_of(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// The number behind `key` at the start of a line.
std::optional<uint64_t> number_after(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key)) return number_of(std::string_view(line).substr(key.size()));
  }
  return std::nullopt;
}

struct Version {
  const char *root, *limit, *usage, *stat_prefix;
};
constexpr Version kVersion1{"/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_"};
constexpr Version kVersion2{"/sys/fs/cgroup", "/memory.max", "/memory.current", ""};

uint64_t left_in_group(const ReadSystemFile& read, const Version& version, const std::string& folder) {
  const auto limit = number_of(read(folder + version.limit)), usage = number_of(read(folder + version.usage));
  if (!limit || !usage) return UINT64_MAX;
  const std::string stat = read(folder + "/memory.stat"), prefix = version.stat_prefix;
  const uint64_t files = number_after(stat, prefix + "inactive_file ").value_or(0) +
                         number_after(stat, prefix + "active_file ").value_or(0);
  const uint64_t used = *usage - std::min(*usage, files);
  return *limit - std::min(*limit, used);
}

// `path`: of the process's group below the root. In a container the root may be that group itself, whatever the path.
uint64_t left_in_groups(const ReadSystemFile& read, const Version& version, std::string path) {
  uint64_t least = left_in_group(read, version, version.root);
  while (path.size() > 1) {
    least = std::min(least, left_in_group(read, version, version.root + path));
    path.resize(path.find_last_of('/'));
  }
  return least;
}

// Lines "ID:CONTROLLERS:PATH"; version 2 has the one without controllers.
uint64_t left_in_all_groups(const ReadSystemFile& read) {
  uint64_t least = UINT64_MAX;
  std::istringstream lines(read("/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || line.compare(second + 1, 1, "/") != 0) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    if (controllers == ",,") {
      least = std::min(least, left_in_groups(read, kVersion2, line.substr(second + 1)));
    } else if (controllers.find(",memory,") != std::string::npos) {
      least = std::min(least, left_in_groups(read, kVersion1, line.substr(second + 1)));
    }
  }
  return least;
}

std::string read_system_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

uint64_t available_memory_bytes(const ReadSystemFile& read) {
  const auto free_kib = number_after(read("/proc/meminfo"), "MemAvailable:");
  return std::min(free_kib ? *free_kib * 1024 : UINT64_MAX, left_in_all_groups(read));
}

uint64_t available_memory_bytes() { return available_memory_bytes(read_system_file); }

}  // namespace tidepool::base
