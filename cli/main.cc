// tidepool: the one program. Finds the subcommand and turns what it throws into a sentence and an exit code.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <new>

#include "base/check.h"
#include "base/flags.h"
#include "base/text.h"
#include "commands.h"
#include "output.h"

namespace tidepool::cli {
namespace {

constexpr int kDone = 0, kFailed = 1, kWrongCall = 2, kInterruptedCode = 130;

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const Arguments&);  // null: not available yet
};

constexpr std::array<Command, 12> kCommands{{
    {"info", "what a checkpoint is and what a token of context costs", run_info},
    {"generate", "complete a prompt and stream the text", run_generate},
    {"dump", "logits, hidden states and selections of a run, as safetensors", run_dump},
    {"tokenize", "the token ids of a text", run_tokenize},
    {"detokenize", "the text of token ids", run_detokenize},
    {"make-model", "write a checkpoint of random weights", run_make_model},
    {"bench", "this machine's time per part of a step, beside its floor", run_bench},
    {"convert", "weight conversion", nullptr},
    {"trace", "top-k traces", nullptr},
    {"size", "what fits on a machine, and how fast", nullptr},
    {"chat", "a conversation", nullptr},
    {"server", "an HTTP server", nullptr},
}};

void print_help() {
  std::string out =
      "tidepool: runs DSA models (GLM-5.2, GLM-5, DeepSeek-V3.2) with the KV cache in host memory\n\n"
      "usage: tidepool COMMAND [options]        tidepool COMMAND --help lists the options\n"
      "       tidepool --version\n\n";
  for (const Command& command : kCommands) {
    out += fmt::format("  {:<12} {}{}\n", command.name, command.summary, command.run ? "" : " (not available yet)");
  }
  out += "\nexit codes: 0 done, 1 the work failed, 2 the call was wrong, 130 interrupted\n";
  print(out);
}

int dispatch(const Arguments& arguments) {
  if (arguments.empty()) throw base::UsageError("a command is missing; tidepool --help lists them");
  if (arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
    print_help();
    return kDone;
  }
  if (arguments[0] == "--version") {
    print("tidepool " TIDEPOOL_VERSION "\n");
    return kDone;
  }
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    names.emplace_back(command.name);
    if (arguments[0] != command.name) continue;
    if (command.run == nullptr) throw base::UsageError("this command is not available yet");
    return command.run(Arguments(arguments.begin() + 1, arguments.end()));
  }
  throw base::UsageError(fmt::format("unknown command \"{}\"; the nearest known one is {}", arguments[0],
                                     base::nearest_name(arguments[0], names)));
}

// A file opened later must not get the number of a standard stream that the caller closed. Wrong way round, so that
// using the stream is an error, as it would be without this.
void occupy_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // takes the lowest number
  }
}

int run(const Arguments& arguments) {
  const bool has_command = !arguments.empty() && arguments[0].substr(0, 1) != "-";
  const std::string program = has_command ? "tidepool " + arguments[0] : "tidepool";
  const auto say = [&](const char* what) { note(base::one_line(fmt::format("{}: {}", program, what))); };
  try {
    return dispatch(arguments);
  } catch (const base::UsageError& error) {
    say(error.what());
    return kWrongCall;
  } catch (const Interrupted&) {
    say("interrupted");
    return kInterruptedCode;
  } catch (const std::bad_alloc&) {
    say("not enough memory");
    return kFailed;
  } catch (const std::exception& error) {
    say(error.what());
    return kFailed;
  }
}

}  // namespace
}  // namespace tidepool::cli

int main(int argc, char** argv) {
  tidepool::cli::occupy_standard_streams();
  // Then writing to a closed pipe, or beyond a file size limit, fails with a reason instead of ending the program.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  tidepool::cli::handle_interrupts();
  return tidepool::cli::run({argv + 1, argv + argc});
}
