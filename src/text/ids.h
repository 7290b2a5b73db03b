// Files of token ids: a JSON array of integers, or an object with such an array under "ids" or "input_ids".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tidepool::text {

// Throws for text of another form, an empty list, and an id outside [0, vocab_size); `what` names the text in the
// error.
std::vector<int32_t> parse_ids(std::string_view json, const std::string& what, int64_t vocab_size);

}  // namespace tidepool::text
