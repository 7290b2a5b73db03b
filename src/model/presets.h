// Configurations by name: the three published models, and small ones of the same architecture for tests and benchmarks.
#pragma once

#include <string>
#include <vector>

#include "model/config.h"

namespace tidepool::model {

// "tiny", "peer-8l", "peer-8l-64h", "glm-5.2", "glm-5", "deepseek-v3.2".
std::vector<std::string> preset_names();

// Throws for an unknown name, listing the known ones.
Config preset_config(const std::string& name);

}  // namespace tidepool::model
