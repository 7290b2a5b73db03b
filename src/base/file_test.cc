#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "base/check.h"

namespace tidepool::base {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  FileTest() {
    std::string name = fs::temp_directory_path() / "tidepool_file_XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~FileTest() override { fs::remove_all(folder_); }
  std::string at(const std::string& name) const { return folder_ + "/" + name; }
  std::string error_of(const std::function<void()>& run) const {
    try {
      run();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  std::string folder_;
};

TEST_F(FileTest, AFileHasItsNameOnlyWhenItIsComplete) {
  write_text_file(at("f"), "old");
  {
    PendingFile file(at("f"));
    file.write(0, "new", 3);
    EXPECT_EQ(read_regular_file(at("f")), "old");
  }
  EXPECT_EQ(read_regular_file(at("f")), "old");
  {
    PendingFile file(at("f"));
    file.resize(5);
    file.write(2, "new", 3);
    file.finish();
    EXPECT_NE(error_of([&] { file.finish(); }).find("twice"), std::string::npos);
  }
  EXPECT_EQ(read_regular_file(at("f")), std::string("\0\0new", 5));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(FileTest, ANameAsLongAsTheSystemAllowsCanBeWritten) {
  write_text_file(at(std::string(255, 'n')), "text");
  EXPECT_EQ(read_regular_file(at(std::string(255, 'n'))), "text");
}

TEST_F(FileTest, WhatIsNoRegularFileIsNeitherReadNorReplaced) {
  ASSERT_EQ(mkfifo(at("pipe").c_str(), 0600), 0);
  EXPECT_NE(error_of([&] { read_regular_file(at("pipe")); }).find("not a regular file"), std::string::npos);
  EXPECT_NE(error_of([&] { PendingFile file(at("pipe")); }).find("not a regular file"), std::string::npos);
  EXPECT_NE(error_of([&] { write_text_file(folder_, "x"); }).find("not a regular file"), std::string::npos);
  write_text_file("/dev/null", "x");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_NE(error_of([&] { write_text_file("/dev/full", "x"); }).find("No space left"), std::string::npos);
}

TEST_F(FileTest, ALinkToItselfIsThereAndSaysWhyItCannotBeRead) {
  fs::create_symlink("loop", at("loop"));
  EXPECT_TRUE(path_exists(at("loop")));
  EXPECT_FALSE(path_exists(at("none")));
  EXPECT_NE(error_of([&] { read_regular_file(at("loop")); }).find("symbolic links"), std::string::npos);
  EXPECT_NE(error_of([&] { read_regular_file(at("none")); }).find("No such file"), std::string::npos);
}

}  // namespace
}  // namespace tidepool::base
