#include "model/safetensors_writer.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>

#include "model/safetensors.h"
#include "model/testing.h"

namespace tidepool::model {
namespace {

using testing::error_of;
using testing::TemporaryDirectory;

// Files cannot grow past a limit while one of these lives: what a full disk looks like to a writer.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &old_); }

 private:
  rlimit old_{};
};

TEST(SafetensorsWriter, WhatIsWrittenReadsBack) {
  TemporaryDirectory directory;
  const float floats[] = {1, -2, 3.5f, 4, 5, 6};
  const int64_t ids[] = {7, -8};
  const uint8_t byte = 9;
  const std::string path = directory / "out.safetensors";
  write_safetensors(path, {{"byte", DType::kU8, {1}}, {"floats", DType::kF32, {2, 3}}, {"ids", DType::kI64, {2}}},
                    {&byte, floats, ids}, {{"format", "pt"}});
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.at("floats").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(file.at("floats").data, floats, sizeof(floats)), 0);
  EXPECT_EQ(std::memcmp(file.at("ids").data, ids, sizeof(ids)), 0);
  EXPECT_EQ(directory.num_entries(), 1u);
}

TEST(SafetensorsWriter, WhatIsNotWrittenIsAHole) {
  TemporaryDirectory directory;
  const std::string path = directory / "sparse.safetensors";
  SafetensorsWriter writer(path, {{"huge", DType::kBF16, {1 << 20, 1 << 14}}}, {});
  writer.finish();
  struct stat status;
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_GT(status.st_size, int64_t{1} << 35);
  EXPECT_LT(status.st_blocks * 512, 1 << 20);
  EXPECT_EQ(SafetensorsFile(path).at("huge").bytes, uint64_t{1} << 35);
}

TEST(SafetensorsWriter, NothingStaysWithoutFinish) {
  TemporaryDirectory directory;
  {
    SafetensorsWriter writer(directory / "out", {{"a", DType::kF32, {1}}}, {});
    EXPECT_EQ(directory.num_entries(), 1u);
    EXPECT_FALSE(std::filesystem::exists(directory / "out"));
  }
  EXPECT_EQ(directory.num_entries(), 0u);
}

TEST(SafetensorsWriter, AFullDiskIsAnErrorAndLeavesNothing) {
  TemporaryDirectory directory;
  const std::vector<float> data(1 << 18);
  {
    FullDisk full(1 << 16);  // already the length does not fit
    EXPECT_SAYS(error_of([&] {
                  write_safetensors(directory / "out", {{"a", DType::kF32, {1 << 18}}}, {data.data()});
                }),
                "out", "cannot be written");
  }
  EXPECT_EQ(directory.num_entries(), 0u);
  EXPECT_SAYS(error_of([&] {
                SafetensorsWriter writer(directory / "out", {{"a", DType::kF32, {1 << 18}}}, {});
                FullDisk full(1 << 16);  // the data does not fit
                writer.write(0, 0, data.data(), data.size() * 4);
                writer.finish();
              }),
              "out", "cannot be written");
  EXPECT_EQ(directory.num_entries(), 0u);
  {
    FullDisk full(4);
    EXPECT_SAYS(error_of([&] { base::write_text_file(directory / "text", "longer than four"); }), "text",
                "cannot be written");
  }
  EXPECT_EQ(directory.num_entries(), 0u);
}

TEST(SafetensorsWriter, AnOldFileStaysWholeWhenWritingFails) {
  TemporaryDirectory directory;
  base::write_text_file(directory / "text", "old");
  {
    FullDisk full(4);
    EXPECT_NE(error_of([&] { base::write_text_file(directory / "text", "longer than four"); }), "");
  }
  EXPECT_EQ(testing::read_file(directory / "text"), "old");
}

TEST(SafetensorsWriter, DevicesAndDirectoriesAreNotReplaced) {
  TemporaryDirectory directory;
  EXPECT_SAYS(error_of([&] { write_safetensors("/dev/full", {}, {}); }), "/dev/full", "not a regular file");
  EXPECT_SAYS(error_of([&] { base::write_text_file(directory.path(), ""); }), "not a regular file");
  EXPECT_SAYS(error_of([&] { write_safetensors(directory / "no/such", {}, {}); }), "no/such", "No such file");
}

TEST(SafetensorsWriter, ATensorGivenTwiceOrWrittenPastItsEndIsRefused) {
  TemporaryDirectory directory;
  EXPECT_SAYS(error_of([&] {
                SafetensorsWriter writer(directory / "out", {{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}}, {});
              }),
              "\"a\"", "twice");
  SafetensorsWriter writer(directory / "out", {{"a", DType::kF32, {1}}, {"b", DType::kF32, {1}}}, {});
  const float two[] = {1, 2};
  EXPECT_SAYS(error_of([&] { writer.write(0, 0, two, 8); }), "\"a\"", "0..8 of 4");
}

}  // namespace
}  // namespace tidepool::model
