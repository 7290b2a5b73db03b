// Hostile surroundings of the program: no standard error, no memory for threads, signals, full disks, odd files. It
// ends with a sentence and an exit code of the contract, leaves nothing behind, and spoils nothing that was there.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "program.h"

namespace tidepool::testing {
namespace {

using Arguments = std::vector<std::string>;
namespace fs = std::filesystem;

std::string read_all(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

// Runs a shell command in which $P is the program and $M the tiny model; standard error goes to `folder`/err unless the
// command says otherwise. Returns the exit code; 124: it did not end within 30 seconds.
int shell(const TemporaryFolder& folder, const std::string& command) {
  setenv("P", std::getenv("TIDEPOOL_PROGRAM"), 1);
  setenv("M", tiny_model().c_str(), 1);
  setenv("D", folder.path().c_str(), 1);
  const std::string script = folder.file("script", command);
  const std::string run = "timeout 30 sh " + script + " > " + folder.path() + "/out 2> " + folder.path() + "/err";
  const int status = std::system(run.c_str());
  fs::remove(script);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string copy_of_tiny_model(const TemporaryFolder& folder) {
  const std::string copy = folder.path() + "/copy";
  fs::copy(tiny_model(), copy, fs::copy_options::recursive);
  return copy;
}

Arguments generate(const Arguments& more) {
  Arguments arguments{"generate", "--model", tiny_model(), "--ignore-eos", "--prompt", "hello"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(CliAdversary, AClosedOrFullStandardErrorIsNoCrash) {
  const TemporaryFolder folder;
  for (const char* err : {"2>&-", "2>/dev/full"}) {
    EXPECT_EQ(shell(folder, std::string("exec \"$P\" info ") + err), 2) << err;
    EXPECT_EQ(shell(folder, std::string("exec \"$P\" generate --model \"$M\" --prompt x ") + err), 0) << err;
  }
}

TEST(CliAdversary, AClosedPipeIsAFailureThatIsSaid) {
  const TemporaryFolder folder;
  shell(folder, "{ sleep 0.3; \"$P\" generate --model \"$M\" --prompt x; echo $? > \"$D/code\"; } | true");
  EXPECT_EQ(read_all(folder.path() + "/code"), "1\n");
  EXPECT_NE(read_all(folder.path() + "/err").find("standard output"), std::string::npos);
}

#ifndef __SANITIZE_ADDRESS__  // it reserves more than any limit
TEST(CliAdversary, AThreadThatCannotStartIsAnErrorNotAHang) {
  const TemporaryFolder folder;
  EXPECT_EQ(shell(folder, "ulimit -v 1048576; exec \"$P\" generate --model \"$M\" --prompt x --threads 1000"), 1);
  EXPECT_NE(read_all(folder.path() + "/err").find("thread"), std::string::npos) << read_all(folder.path() + "/err");
}
#endif

TEST(CliAdversary, ATerminationLeavesNothingHalfWritten) {
  for (const std::string signal : {"INT", "TERM", "HUP"}) {
    const TemporaryFolder folder;
    fs::create_directory(folder.path() + "/to");
    // A shell starts what runs in the background with SIGINT ignored, so the signal is sent from there instead.
    const int code =
        shell(folder, "(while [ -z \"$(ls \"$D/to\")\" ]; do sleep 0.01; done; kill -" + signal +
                          " $$) & exec \"$P\" make-model --preset peer-8l-64h --out \"$D/to/model\" --threads 1");
    EXPECT_EQ(code, 130) << signal;
    EXPECT_TRUE(fs::is_empty(folder.path() + "/to")) << signal;
  }
}

TEST(CliAdversary, AFileSizeLimitIsAFullDisk) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path() + "/to");
  EXPECT_EQ(shell(folder, "ulimit -f 4; exec \"$P\" make-model --preset tiny --out \"$D/to/model\""), 1);
  EXPECT_TRUE(fs::is_empty(folder.path() + "/to"));
}

TEST(CliAdversary, ATimelineThatFailsKeepsTheFileThatWasThere) {
  const TemporaryFolder folder;
  const std::string path = folder.file("timeline.json", "{}\n");
  const ProgramResult result =
      run_program(generate({"--max-tokens", "30", "--timeline", path, "--json"}), {.file_size_limit = 4096});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(read_all(path), "{}\n");
  EXPECT_EQ(folder.names(), Arguments{"timeline.json"});
}

TEST(CliAdversary, AnOutputThatIsADirectoryIsRefusedBeforeTheWork) {
  const TemporaryFolder folder;
  const std::string ids = folder.file("ids.json", "[1,2,3]");
  expect_refused(generate({"--timeline", folder.path()}), 2, {"--timeline " + folder.path()});
  expect_refused({"dump", "--model", tiny_model(), "--ids", ids, "--num-tokens", "1", "--out", folder.path()}, 2,
                 {"--out " + folder.path()});
}

TEST(CliAdversary, AnOutputFolderMayEndInASlash) {
  const TemporaryFolder folder;
  const std::string out = folder.path() + "/model/";
  const ProgramResult made = run_program({"make-model", "--preset", "tiny", "--out", out});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_TRUE(fs::is_regular_file(out + "config.json"));
}

TEST(CliAdversary, LimitsThatTheHelpDoesNotKnowAreWrongCallsToo) {
  expect_refused(generate({"--threads", "1025"}), 2, {"--threads 1025", "1024"});
  expect_refused(generate({"--max-num-seqs", "4097"}), 2, {"--max-num-seqs 4097", "4096"});
  expect_refused(generate({"--batch", "4097"}), 2, {"--batch 4097", "4096"});
  expect_refused(generate({"--max-model-len", "65537"}), 2, {"--max-model-len", "65537", "65536"});
}

TEST(CliAdversary, ABudgetOfNothingIsNotUnlimited) {
  for (const char* option : {"--device-kv-gib", "--host-kv-gib"}) {
    for (const char* value : {"0", "1e-12"}) {
      expect_refused(generate({"--offload", "select", "--pool-size", "16", option, value}), 2, {option, value});
    }
  }
}

TEST(CliAdversary, ASmallBudgetIsNamedSoThatItCanBeSeen) {
  for (const char* option : {"--device-kv-gib", "--host-kv-gib"}) {
    const ProgramResult result = run_program(generate({"--offload", "select", "--pool-size", "16", option, "1e-5"}));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.err.find(option), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("0.000 GiB"), std::string::npos) << result.err;
  }
}

TEST(CliAdversary, BenchRefusesWhatItWouldNotDoBeforeItMeasures) {
  const Arguments bench{"bench", "decode", "--model", tiny_model(), "--contexts", "100", "--steps", "1"};
  for (const Arguments& more : {Arguments{"--pool-sizes", "17"},
                                {"--max-model-len", "50"},
                                {"--max-num-seqs", "1", "--batch", "3"},
                                {"--offload", "off"},
                                {"--exec", "eager"},
                                {"--num-draft-tokens", "1"},
                                {"--rows", "0"},
                                {"--rows", "5"},
                                {"--modes", ""},
                                {"--modes", "eager,"},
                                {"--modes", "eager,quick"},
                                {"--modes", "eager,eager"},
                                {"--batch", "4097"}}) {
    Arguments arguments = bench;
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_refused(arguments, 2, {more[0]});
  }
  const std::string model = tiny_model();
  expect_refused({"bench", "drafts", "--model", model, "--num-draft-tokens", "0"}, 2, {"--num-draft-tokens"});
  expect_refused({"bench", "drafts", "--model", model, "--max-tokens", "23"}, 2, {"--max-tokens 23", "24 to"});
  expect_refused({"bench", "drafts", "--model", model, "--contexts", "65500"}, 2, {"--contexts 65500", "at most"});
  expect_refused({"bench", "ops", "--model", model, "--rows", "2"}, 2, {"--rows"});
}

TEST(CliAdversary, ANameInACheckpointCannotBreakTheSentence) {
  const TemporaryFolder folder;
  const std::string copy = copy_of_tiny_model(folder), path = copy + "/model.safetensors";
  std::string bytes = read_all(path);
  const std::string name = "\"model.norm.weight\"";
  const size_t at = bytes.find(name);
  ASSERT_NE(at, std::string::npos);
  bytes[at + 6] = '\\';  // "model\norm.weight": a line break in the name
  std::ofstream(path, std::ios::binary) << bytes;
  expect_refused({"info", "--model", copy}, 1, {"1 unexpected: model"});
}

TEST(CliAdversary, AWeightThatIsNoNumberNamesTheOptionThatAcceptsIt) {
  const TemporaryFolder folder;
  const std::string copy = copy_of_tiny_model(folder), path = copy + "/model.safetensors";
  std::string bytes = read_all(path);
  bytes.replace(bytes.size() - 4, 4, "\xff\xff\xff\xff");
  std::ofstream(path, std::ios::binary) << bytes;
  expect_refused({"generate", "--model", copy, "--prompt", "x"}, 1, {"NaN", "--allow-nan"});
}

TEST(CliAdversary, ATokenizerThatDoesNotFitTheModelIsNamed) {
  const TemporaryFolder folder;
  const std::string copy = copy_of_tiny_model(folder), path = copy + "/tokenizer.json";
  std::string text = read_all(path);
  const std::string empty = "\"added_tokens\"", token = R"({"id": 300, "content": "hello", "special": true})";
  const size_t at = text.find('[', text.find(empty));
  ASSERT_NE(at, std::string::npos);
  text.insert(at + 1, token);
  std::ofstream(path) << text;
  expect_refused({"generate", "--model", copy, "--prompt", "hello"}, 1, {"tokenizer.json", "300", "256"});
}

TEST(CliAdversary, APipeInTheCheckpointIsRefused) {
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    const TemporaryFolder folder;
    const std::string copy = copy_of_tiny_model(folder);
    fs::remove(copy + "/" + name);
    ASSERT_EQ(mkfifo((copy + "/" + name).c_str(), 0600), 0);
    EXPECT_EQ(shell(folder, "exec timeout 5 \"$P\" generate --model \"$D/copy\" --prompt x"), 1) << name;
    EXPECT_NE(read_all(folder.path() + "/err").find(name), std::string::npos) << name;
  }
}

TEST(CliAdversary, AModelThatTheMachineCannotHoldIsRefusedWithTheNumbers) {
  expect_refused(generate({"--offload", "select", "--pool-size", "16", "--max-model-len", "65536", "--max-num-seqs",
                           "4096", "--dtype", "float32"}),
                 1, {"not enough memory", "weights", "device KV", "host KV", "available"});
}

TEST(CliAdversary, APoolThatNoRequestCanFillIsRefused) {
  expect_refused(generate({"--offload", "select", "--pool-size", "32768"}), 1, {"--pool-size", "32768", "16384"});
}

TEST(CliAdversary, ATextWithoutEndIsRefused) {
  const TemporaryFolder folder;
  EXPECT_EQ(shell(folder, "exec \"$P\" tokenize --model \"$M\" --file /dev/zero"), 1);
  EXPECT_NE(read_all(folder.path() + "/err").find("256.0 MiB"), std::string::npos);
}

TEST(CliAdversary, AClosedStandardOutputIsAFailureThatIsSaid) {
  const TemporaryFolder folder;
  EXPECT_EQ(shell(folder, "exec \"$P\" info --model \"$M\" >&-"), 1);
  EXPECT_NE(read_all(folder.path() + "/err").find("standard output"), std::string::npos);
}

TEST(CliAdversary, ALinkToItselfSaysWhyItCannotBeRead) {
  const TemporaryFolder folder;
  const std::string copy = copy_of_tiny_model(folder);
  for (const std::string name : {"config.json", "tokenizer.json", "model.safetensors"}) {
    fs::remove(copy + "/" + name);
    fs::create_symlink(name, copy + "/" + name);
    expect_refused({"generate", "--model", copy, "--prompt", "x"}, 1, {name, "symbolic links"});
    fs::remove(copy + "/" + name);
    fs::copy(tiny_model() + "/" + name, copy + "/" + name);
  }
}

}  // namespace
}  // namespace tidepool::testing
