#include "device/timeline.h"

#include <fmt/format.h>

#include <iterator>

#include "base/file.h"
#include "base/json.h"

namespace tidepool::device {

std::string chrome_trace(const std::vector<TimelineEntry>& entries) {
  constexpr const char* kStreamNames[kNumStreams] = {"main", "side", "spill"};
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  auto end = std::back_inserter(out);
  for (StreamId stream = 0; stream < kNumStreams; ++stream) {
    fmt::format_to(end, R"x({{"name":"thread_name","ph":"M","pid":0,"tid":{0},"args":{{"name":"stream {0} ({1})"}}}})x",
                   stream, kStreamNames[stream]);
    out += entries.empty() && stream + 1 == kNumStreams ? "\n" : ",\n";
  }
  for (const TimelineEntry& entry : entries) {
    fmt::format_to(end, R"({{"name":{},"cat":"{}","ph":"X","pid":0,"tid":{},"ts":{:.3f},"dur":{:.3f},"args":)",
                   base::Json(entry.type->name).dump(), part_name(entry.type->part), entry.stream,
                   static_cast<double>(entry.begin_ns) * 1e-3,
                   static_cast<double>(entry.end_ns - entry.begin_ns) * 1e-3);
    fmt::format_to(end, R"({{"read_bytes":{},"write_bytes":{},"link_bytes":{},"multiply_adds":{}}}}})",
                   entry.cost.read_bytes, entry.cost.write_bytes, entry.cost.link_bytes, entry.cost.multiply_adds);
    out += &entry == &entries.back() ? "\n" : ",\n";
  }
  return out + "]}\n";
}

void write_chrome_trace(const std::vector<TimelineEntry>& entries, const std::string& path) {
  base::write_text_file(path, chrome_trace(entries));
}

}  // namespace tidepool::device
