// Helpers of this folder's tests: a directory that goes away, files from strings, and what an Error says.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>

#include "tidepool/error.h"

namespace tidepool::model::testing {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "tidepool-model-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryDirectory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  size_t num_entries() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()));
  }

 private:
  std::string path_;
};

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The sentence of the Error that `work` throws; "" when it throws none.
template <typename Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Every one of the words must stand in `sentence`.
inline void expect_words(const std::string& sentence, std::initializer_list<std::string> words) {
  for (const std::string& word : words) {
    EXPECT_NE(sentence.find(word), std::string::npos) << "\"" << sentence << "\" lacks \"" << word << "\"";
  }
}

}  // namespace tidepool::model::testing

#define EXPECT_SAYS(sentence, ...)                                     \
  do {                                                                 \
    SCOPED_TRACE("");                                                  \
    ::tidepool::model::testing::expect_words(sentence, {__VA_ARGS__}); \
  } while (false)
