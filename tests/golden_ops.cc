#include "golden_ops.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "gzip.h"

namespace tidepool::testing {

using base::Json;

namespace {

void append_ints(const Json& json, Values& values) {
  if (!json.is_array()) return values.push_back(static_cast<int32_t>(json.as_int()));
  for (const Json& element : json.as_array()) append_ints(element, values);
}

}  // namespace

std::string golden_ops_dir() {
  if (const char* dir = std::getenv("TIDEPOOL_GOLDEN_DIR")) return dir;
  const char* source = std::getenv("TIDEPOOL_SOURCE_DIR");
  return std::string(source == nullptr ? "." : source) + "/tests/golden";
}

void for_each_golden_case(const std::string& prefix,
                          const std::function<void(const Json& json, const std::string& name)>& visit) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(golden_ops_dir())) {
    for (const auto& entry : std::filesystem::directory_iterator(golden_ops_dir())) {
      const std::string file = entry.path().filename().string();
      if (file.starts_with(prefix) && file.ends_with(".json.gz")) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  int32_t number = 0;
  for (const auto& file : files) {
    const Json json = Json::parse(read_gzip_file(file.string()), file.string());
    for (const Json& element : json.as_array(file.string())) {
      visit(element, file.filename().string() + " case " + std::to_string(number++));
    }
  }
}

Values ints(const Json& json) {
  Values values;
  append_ints(json, values);
  return values;
}

}  // namespace tidepool::testing
