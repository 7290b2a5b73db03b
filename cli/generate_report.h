// How `tidepool generate` reports a run: the JSON object, and the summary for people.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "generation.h"
#include "published_report.h"
#include "text/tokenizer.h"

namespace tidepool::cli {

struct Comparison {        // of a run with offload and the same requests without
  std::string difference;  // "" when identical
  RunResult off;
  bool identical() const { return difference.empty(); }
};

struct GenerateReport {
  const EngineOptions& options;
  const RunResult& run;
  std::optional<Comparison> comparison{};       // nothing: no "compare"
  std::optional<PublishedFigures> published{};  // nothing: no "published"
};

// `tokenizer` null: "text" is null.
base::Json generate_json(const GenerateReport& report, const text::Tokenizer* tokenizer);
// Several lines, to be read at a glance.
std::string generate_summary(const GenerateReport& report);
// Why drafts cost more than they bring, in one sentence; "" when they pay, or there are none.
std::string draft_warning(const EngineOptions& options, const RunResult& run);

}  // namespace tidepool::cli
