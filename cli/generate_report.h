// How `tidepool generate` reports a run: the JSON object, and the summary for people.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "generation.h"
#include "text/tokenizer.h"

namespace tidepool::cli {

struct Comparison {        // of a run with offload and the same requests without
  std::string difference;  // "" when identical
  RunResult off;
  bool identical() const { return difference.empty(); }
};

// `tokenizer` null: "text" is null. `comparison` null: no "compare".
base::Json generate_json(const EngineOptions& options, const RunResult& run, const text::Tokenizer* tokenizer,
                         const Comparison* comparison);
// Several lines, to be read at a glance.
std::string generate_summary(const EngineOptions& options, const RunResult& run, const Comparison* comparison);

}  // namespace tidepool::cli
