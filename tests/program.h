// Runs the built program (TIDEPOOL_PROGRAM) the way a shell would, for tests of the command line.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"

namespace tidepool::testing {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal when a signal ended it
  std::string out, err;
  bool is_one_line_error() const;  // exactly one line on standard error
  base::Json json() const;         // standard output, which must be one JSON object and a newline
};

struct ProgramOptions {
  std::string input{};            // standard input
  std::string output_path{};      // standard output goes to this file instead
  uint64_t file_size_limit = 0;   // bytes; as a full disk: writing beyond it fails
  std::string interrupt_after{};  // send SIGINT once standard output contains this
};

ProgramResult run_program(const std::vector<std::string>& arguments, const ProgramOptions& options = {});

// Expects that the call is refused: this exit code, nothing on standard output, one line of error with all `parts` in
// it.
void expect_refused(const std::vector<std::string>& arguments, int exit_code, const std::vector<std::string>& parts,
                    const std::string& input = "x");

// A checkpoint that `make-model --preset tiny` made, once per process.
const std::string& tiny_model();

// A folder of its own below the system's temporary one, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  // Writes a file and returns its path.
  std::string file(const std::string& name, const std::string& bytes) const;
  std::vector<std::string> names() const;  // what is in it, sorted

 private:
  std::string path_;
};

}  // namespace tidepool::testing
