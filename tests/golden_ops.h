// Golden operator cases: JSON lists packed with gzip, described in tests/golden/README.md.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"

namespace tidepool::testing {

using Values = std::vector<int32_t>;

// TIDEPOOL_GOLDEN_DIR, or tests/golden of the checkout.
std::string golden_ops_dir();
// Every case of every PREFIX*.json.gz in the folder, in the order of the file names; none when there is no such file.
void for_each_golden_case(const std::string& prefix,
                          const std::function<void(const base::Json& json, const std::string& name)>& visit);
// Numbers of an array, nested or not, in order.
Values ints(const base::Json& json);

}  // namespace tidepool::testing
