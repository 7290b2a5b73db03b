// The subcommands. Each takes the arguments after its name and returns the exit code 0 or 1; it throws
// base::UsageError for a wrong call (exit code 2), Interrupted (130), and Error for work that failed (1).
#pragma once

#include <string>
#include <vector>

namespace tidepool::cli {

using Arguments = std::vector<std::string>;

int run_info(const Arguments& arguments);
int run_generate(const Arguments& arguments);
int run_dump(const Arguments& arguments);
int run_tokenize(const Arguments& arguments);
int run_detokenize(const Arguments& arguments);
int run_make_model(const Arguments& arguments);
int run_bench(const Arguments& arguments);

}  // namespace tidepool::cli
