// Reads files packed with gzip.
#pragma once

#include <string>

namespace tidepool::testing {

// The unpacked contents. Throws Error when the file cannot be read or is damaged.
std::string read_gzip_file(const std::string& path);

}  // namespace tidepool::testing
