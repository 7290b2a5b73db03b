// Values as they stand in a sentence.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tidepool::base {

std::string bytes_text(uint64_t bytes);  // "17 B", "2.1 MiB", "1.5 GiB"

// Control characters are written as \n, \t, \x07: the text stays one line and cannot move a cursor.
std::string one_line(std::string_view text);

// A name out of a file that somebody else wrote: one line, and no longer than a sentence can bear.
std::string shown(std::string_view name);

// The one of `known` that is closest to `name` by edit distance; "" when known is empty.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

}  // namespace tidepool::base
