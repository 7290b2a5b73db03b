// Small random checkpoints for tests, made once per process and removed at its end.
#pragma once

#include <string>

namespace tidepool::test {

// The preset `tiny`: 8 layers in groups {0} {1} {2-5} {6,7}, top-k of 8, vocabulary 256.
const std::string& tiny_model();

}  // namespace tidepool::test
