#include "base/memory.h"

#include <gtest/gtest.h>

#include <map>

namespace tidepool::base {
namespace {

uint64_t available(const std::map<std::string, std::string>& files) {
  return available_memory_bytes([&](const std::string& path) {
    const auto it = files.find(path);
    return it == files.end() ? "" : it->second;
  });
}

const std::string kMeminfo = "MemTotal:       4000 kB\nMemFree:         100 kB\nMemAvailable:   3000 kB\n";

TEST(AvailableMemory, IsWhatTheMachineHasWithoutAGroup) {
  EXPECT_EQ(available({{"/proc/meminfo", kMeminfo}}), 3000u * 1024);
  EXPECT_EQ(available({{"/proc/meminfo", kMeminfo},
                       {"/proc/self/cgroup", "0::/a\n"},
                       {"/sys/fs/cgroup/a/memory.max", "max\n"},
                       {"/sys/fs/cgroup/a/memory.current", "5\n"}}),
            3000u * 1024);
  EXPECT_EQ(available({}), UINT64_MAX);
}

TEST(AvailableMemory, IsWhatTheTightestGroupAboveLeaves) {
  std::map<std::string, std::string> files{{"/proc/meminfo", kMeminfo},
                                           {"/proc/self/cgroup", "1:cpu:/x\n0::/a/b\n"},
                                           {"/sys/fs/cgroup/a/b/memory.max", "900000\n"},
                                           {"/sys/fs/cgroup/a/b/memory.current", "100000\n"},
                                           {"/sys/fs/cgroup/a/memory.max", "800000\n"},
                                           {"/sys/fs/cgroup/a/memory.current", "500000\n"}};
  EXPECT_EQ(available(files), 300000u);
  files["/sys/fs/cgroup/a/memory.stat"] = "anon 1\ninactive_file 150000\nactive_file 50000\n";  // can be dropped
  EXPECT_EQ(available(files), 500000u);
  files["/sys/fs/cgroup/a/memory.current"] = "1200000\n";  // above the limit: nothing, not less
  files["/sys/fs/cgroup/a/memory.stat"] = "";
  EXPECT_EQ(available(files), 0u);
}

TEST(AvailableMemory, KnowsVersionOneAndAContainerThatSeesItsGroupAsTheRoot) {
  std::map<std::string, std::string> files{
      {"/proc/meminfo", kMeminfo},
      {"/proc/self/cgroup", "4:hugetlb,memory:/docker/1\n"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000\n"},
      {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "400000\n"},
      {"/sys/fs/cgroup/memory/memory.stat", "inactive_file 7\ntotal_inactive_file 100000\ntotal_active_file 1\n"}};
  EXPECT_EQ(available(files), 700001u);
  files["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = "9223372036854771712\n";  // none
  EXPECT_EQ(available(files), 3000u * 1024);
}

TEST(AvailableMemory, OfThisMachineIsSomething) { EXPECT_GT(available_memory_bytes(), uint64_t{1} << 20); }

}  // namespace
}  // namespace tidepool::base
