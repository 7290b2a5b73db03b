// tidepool: the one program. Finds the subcommand and turns what it throws into a sentence and an exit code.
#include <array>
#include <new>

#include "base/check.h"
#include "base/flags.h"
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
      "usage: tidepool COMMAND [options]        tidepool COMMAND --help lists the options\n\n";
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

int run(const Arguments& arguments) {
  const bool has_command = !arguments.empty() && arguments[0].substr(0, 1) != "-";
  const std::string program = has_command ? "tidepool " + arguments[0] : "tidepool";
  try {
    return dispatch(arguments);
  } catch (const base::UsageError& error) {
    note(fmt::format("{}: {}", program, error.what()));
    return kWrongCall;
  } catch (const Interrupted&) {
    note(fmt::format("{}: interrupted", program));
    return kInterruptedCode;
  } catch (const std::bad_alloc&) {
    note(fmt::format("{}: not enough memory", program));
    return kFailed;
  } catch (const std::exception& error) {
    note(fmt::format("{}: {}", program, error.what()));
    return kFailed;
  }
}

}  // namespace
}  // namespace tidepool::cli

int main(int argc, char** argv) {
  tidepool::cli::handle_interrupts();
  return tidepool::cli::run({argv + 1, argv + argc});
}
