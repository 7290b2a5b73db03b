// What of a published configuration runs here, and what it means here: the published rules, the limits of one rank, and
// the options that have no effect. docs/configuration.md is the same as a table.
#pragma once

#include <string>
#include <vector>

#include "published_config.h"

namespace tidepool::cli {

// The rules of the published system: those that its runner checks, and those that it leaves to fail or to be ignored
// later (an offload option without the one it needs, blocks that the shared route cannot take). Throws
// base::UsageError.
void check_published_rules(const PublishedConfig& config);

// What one rank on this engine cannot do: more ranks (world_size first: every parallel size follows from it), parts of
// the model on other ranks, random weights, more requests than the engine takes. Throws base::UsageError.
void check_one_rank(const PublishedConfig& config);

// The options without a meaning here that are not what they are by default, in the order of the schema.
std::vector<std::string> options_without_effect(const PublishedConfig& config);

// Rows of the device pool per request and layer on the shared route.
int32_t published_pool_size(const PublishedConfig& config);

}  // namespace tidepool::cli
