// What `tidepool bench` prints.
#pragma once

#include <string>

#include "base/json.h"
#include "tidepool/bench.h"

namespace tidepool::cli {

base::Json bench_json(const BenchResult& result);
std::string bench_text(const BenchResult& result);

}  // namespace tidepool::cli
