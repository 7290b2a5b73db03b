// How much memory the machine still has for this process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tidepool::base {

// The text of a file of the system; "" when there is none.
using ReadSystemFile = std::function<std::string(const std::string& path)>;

// The least of MemAvailable (/proc/meminfo) and of what the memory limits of the process's control groups leave, those
// of version 2 and of version 1, in every group above it too. Pages of files that the kernel would drop count as free.
// UINT64_MAX when the system says nothing. `read` is for tests; the default reads the files.
uint64_t available_memory_bytes();
uint64_t available_memory_bytes(const ReadSystemFile& read);

}  // namespace tidepool::base
