// The timeline of a run as a Chrome trace (chrome://tracing, Perfetto): one track per stream, one slice per operation
// with its bytes and multiply-adds.
#pragma once

#include <string>
#include <vector>

#include "device/executor.h"

namespace tidepool::device {

// The JSON text; times in microseconds.
std::string chrome_trace(const std::vector<TimelineEntry>& entries);
// Writes it to a file. Throws Error naming the file when it cannot be written; what was there before is then
// left as it was.
void write_chrome_trace(const std::vector<TimelineEntry>& entries, const std::string& path);

}  // namespace tidepool::device
