#include "program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/check.h"

namespace tidepool::testing {
namespace {

namespace fs = std::filesystem;

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

// In the child: puts `path` in the place of the descriptor `fd`.
void redirect(int fd, const std::string& path, int flags) {
  const int file = open(path.c_str(), flags, 0644);
  if (file < 0 || dup2(file, fd) < 0) _exit(126);
}

[[noreturn]] void become_program(const std::vector<std::string>& arguments, const ProgramOptions& options,
                                 const std::string& in, const std::string& out, const std::string& err) {
  const char* program = std::getenv("TIDEPOOL_PROGRAM");
  redirect(STDIN_FILENO, in, O_RDONLY);
  redirect(STDOUT_FILENO, out, O_WRONLY | O_CREAT);
  redirect(STDERR_FILENO, err, O_WRONLY | O_CREAT);
  if (options.file_size_limit > 0) {
    signal(SIGXFSZ, SIG_IGN);  // then writing fails with an error, as on a full disk
    const rlimit limit{options.file_size_limit, options.file_size_limit};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(126);
  }
  std::vector<char*> argv{const_cast<char*>(program)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(program, argv.data());
  _exit(127);
}

int wait_for(pid_t child, const std::string& out, const std::string& interrupt_after) {
  int status = 0;
  bool is_sent = interrupt_after.empty();
  while (waitpid(child, &status, is_sent ? 0 : WNOHANG) == 0) {
    if (read_all(out).find(interrupt_after) != std::string::npos) {
      kill(child, SIGINT);
      is_sent = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

bool ProgramResult::is_one_line_error() const {
  return !err.empty() && std::count(err.begin(), err.end(), '\n') == 1 && err.back() == '\n';
}

base::Json ProgramResult::json() const {
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1) << out;
  base::Json value = base::Json::parse(out, "standard output");
  EXPECT_TRUE(value.is_object()) << out;
  return value;
}

ProgramResult run_program(const std::vector<std::string>& arguments, const ProgramOptions& options) {
  tidepool_check(std::getenv("TIDEPOOL_PROGRAM") != nullptr, "TIDEPOOL_PROGRAM is not set: run this through ctest");
  const TemporaryFolder folder;
  const std::string in = folder.file("in", options.input), err = folder.file("err", "");
  const std::string out = options.output_path.empty() ? folder.file("out", "") : options.output_path;
  const pid_t child = fork();
  tidepool_check(child >= 0, "fork failed");
  if (child == 0) become_program(arguments, options, in, out, err);
  ProgramResult result;
  result.exit_code = wait_for(child, out, options.interrupt_after);
  if (options.output_path.empty()) result.out = read_all(out);
  result.err = read_all(err);
  return result;
}

const std::string& tiny_model() {
  static const TemporaryFolder folder;
  static const std::string path = [] {
    const std::string out = folder.path() + "/tiny";
    const ProgramResult made = run_program({"make-model", "--preset", "tiny", "--seed", "5", "--out", out});
    tidepool_check(made.exit_code == 0, "{}", made.err);
    return out;
  }();
  return path;
}

TemporaryFolder::TemporaryFolder() {
  path_ = (fs::temp_directory_path() / "tidepool-test-XXXXXX").string();
  tidepool_check(mkdtemp(path_.data()) != nullptr, "no temporary folder");
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

std::string TemporaryFolder::file(const std::string& name, const std::string& bytes) const {
  const std::string path = path_ + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::vector<std::string> TemporaryFolder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path_)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void expect_refused(const std::vector<std::string>& arguments, int exit_code, const std::vector<std::string>& parts,
                    const std::string& input) {
  const ProgramResult result = run_program(arguments, {.input = input});
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(result.is_one_line_error()) << result.err;
  for (const std::string& part : parts)
    EXPECT_NE(result.err.find(part), std::string::npos) << part << " in " << result.err;
}

}  // namespace tidepool::testing
