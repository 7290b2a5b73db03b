#include "device/timeline.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "device/test_ops.h"
#include "tidepool/error.h"

namespace tidepool::device {
namespace {

using testing::Body;
using testing::body_type;
using testing::BodyParams;

constexpr OpType kServe = body_type<Part::kServe>("serve \"select\"");
constexpr OpType kInstall = body_type<Part::kInstall>("install");

TEST(Timeline, HasEveryOperationThatRanWithItsCost) {
  for (int threads : {1, 2}) {
    Executor executor({.num_threads = threads});
    const Body body{[](int32_t) {}, [](AccessList&) {}, 3};
    std::vector<TimelineEntry> entries;
    executor.push(kMainStream, kServe, BodyParams{&body});
    executor.synchronize_all();
    executor.set_timeline(&entries);
    for (int i = 0; i < 4; ++i) executor.push(kMainStream, kServe, BodyParams{&body});
    for (int i = 0; i < 3; ++i) executor.push(kSideStream, kInstall, BodyParams{&body});
    executor.synchronize_all();
    ASSERT_EQ(entries.size(), 7u);
    int64_t last_end[kNumStreams] = {};
    int counts[kNumStreams] = {};
    for (const TimelineEntry& entry : entries) {
      EXPECT_EQ(entry.type, entry.stream == kMainStream ? &kServe : &kInstall);
      EXPECT_GE(entry.begin_ns, last_end[entry.stream]);
      EXPECT_GE(entry.end_ns, entry.begin_ns);
      EXPECT_EQ(entry.cost.multiply_adds, 4u);
      last_end[entry.stream] = entry.end_ns;
      ++counts[entry.stream];
    }
    EXPECT_EQ(counts[kMainStream], 4);
    EXPECT_EQ(counts[kSideStream], 3);
  }
}

TEST(Timeline, MayLeaveTheCostsOut) {
  Executor executor({});
  const Body body{[](int32_t) {}, [](AccessList&) {}, 3};
  std::vector<TimelineEntry> entries;
  executor.set_timeline(&entries, false);
  executor.push(kMainStream, kServe, BodyParams{&body});
  executor.synchronize_all();
  executor.set_timeline(&entries);
  executor.push(kMainStream, kServe, BodyParams{&body});
  executor.synchronize_all();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].cost.multiply_adds, 0u);
  EXPECT_EQ(entries[1].cost.multiply_adds, 4u);
}

TEST(Timeline, IsAChromeTrace) {
  const std::vector<TimelineEntry> entries = {{&kServe, kMainStream, 1500, 4500, {10, 20, 30, 40}},
                                              {&kInstall, kSideStream, 5000, 5001, {}}};
  const base::Json trace = base::Json::parse(chrome_trace(entries), "trace");
  const base::JsonArray& events = trace.at("traceEvents").as_array();
  ASSERT_EQ(events.size(), kNumStreams + 2u);
  EXPECT_EQ(events[1].at("args").at("name").as_string(), "stream 1 (side)");
  const base::Json& serve = events[kNumStreams];
  EXPECT_EQ(serve.at("name").as_string(), "serve \"select\"");
  EXPECT_EQ(serve.at("cat").as_string(), "serve");
  EXPECT_EQ(serve.at("ph").as_string(), "X");
  EXPECT_EQ(serve.at("tid").as_int(), 0);
  EXPECT_EQ(serve.at("ts").as_double(), 1.5);
  EXPECT_EQ(serve.at("dur").as_double(), 3.0);
  EXPECT_EQ(serve.at("args").at("link_bytes").as_int(), 30);
  EXPECT_EQ(serve.at("args").at("multiply_adds").as_int(), 40);
  EXPECT_EQ(base::Json::parse(chrome_trace({}), "trace").at("traceEvents").as_array().size(),
            static_cast<size_t>(kNumStreams));
}

TEST(Timeline, AFileThatCannotBeWrittenIsNamed) {
  const std::string path = ::testing::TempDir() + "/no such folder/trace.json";
  try {
    write_chrome_trace({}, path);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), path + ": cannot be written: No such file or directory");
  }
  EXPECT_THROW(write_chrome_trace({}, "/dev/full"), Error);
  EXPECT_TRUE(std::filesystem::exists("/dev/full"));
  const std::string good = ::testing::TempDir() + "/tidepool_trace.json";
  write_chrome_trace({}, good);
  EXPECT_NO_THROW(base::Json::parse_file(good));
  std::filesystem::remove(good);
}

}  // namespace
}  // namespace tidepool::device
