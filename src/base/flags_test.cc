#include "base/flags.h"

#include <gtest/gtest.h>

namespace tidepool::base {
namespace {

testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << part << "\" is not in \"" << text << "\"";
}

struct Options {
  int32_t rows = 1024;
  uint64_t seed = 0;
  double temperature = 0.0;
  bool json = false;
  std::string route = "off", model, out;
  std::vector<std::string> files;
  std::vector<int32_t> contexts{4096, 16384};
};

void declare(FlagSet& flags, Options& o) {
  flags.section("Cache");
  flags.integer("--pool-size", &o.rows).unit("rows").range(16, 65536).help("rows per request and layer");
  flags.choice("--offload", &o.route, {"off", "select"}).later_choices({"gather"});
  flags.section("The rest");
  flags.integer("--seed", &o.seed);
  flags.number("--temperature", &o.temperature).range(0, 2);
  flags.toggle("--json", &o.json);
  flags.texts("--prompt-file", &o.files, "F").input_file();
  flags.integers("--contexts", &o.contexts).unit("tokens").range(1, 1 << 20);
  flags.text("--model", &o.model, "DIR").input_directory();
  flags.text("--out", &o.out, "F").output_file();
  flags.later("--chat", "");
  flags.later("--config", "F");
}

// The sentence that parsing `arguments` is refused with; "" when it is not.
std::string refusal(const std::vector<std::string>& arguments) {
  Options o;
  FlagSet flags("tidepool test", "for tests");
  declare(flags, o);
  try {
    flags.parse(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(FlagSet, ReadsEveryKindOfValueInBothSpellings) {
  Options o;
  FlagSet flags("tidepool test", "for tests");
  declare(flags, o);
  const std::vector<std::string> arguments{
      "--pool-size", "2048",   "--offload=select", "--seed",   "9223372036854775807", "--temperature",
      "0.8",         "--json", "--contexts",       "1,20,300", "--model=/tmp"};
  EXPECT_EQ(flags.parse(arguments), FlagSet::kRun);
  EXPECT_EQ(o.rows, 2048);
  EXPECT_EQ(o.route, "select");
  EXPECT_EQ(o.seed, 9223372036854775807ULL);
  EXPECT_EQ(o.temperature, 0.8);
  EXPECT_TRUE(o.json);
  EXPECT_EQ(o.contexts, (std::vector<int32_t>{1, 20, 300}));
  EXPECT_TRUE(flags.given("--model"));
  EXPECT_FALSE(flags.given("--out"));
}

TEST(FlagSet, RepeatedTextsAreCollectedAndOtherRepeatsRefused) {
  Options o;
  FlagSet flags("tidepool test", "for tests");
  declare(flags, o);
  flags.parse(std::vector<std::string>{"--prompt-file", "/dev/null", "--prompt-file", "/dev/zero"});
  EXPECT_EQ(o.files, (std::vector<std::string>{"/dev/null", "/dev/zero"}));
  EXPECT_EQ(refusal({"--seed", "1", "--seed", "2"}), "--seed is given twice");
}

TEST(FlagSet, AnUnknownOptionNamesTheNearestKnownOne) {
  EXPECT_TRUE(has(refusal({"--pol-size", "3"}), "unknown option --pol-size; the nearest known one is --pool-size"));
  EXPECT_TRUE(has(refusal({"--temp", "3"}), "--temperature"));
  EXPECT_TRUE(has(refusal({"--modell=x"}), "--model"));
  EXPECT_TRUE(has(refusal({"-j"}), "unknown option -j"));
}

TEST(FlagSet, AValueOutOfRangeNamesOptionValueAndLimit) {
  EXPECT_EQ(refusal({"--pool-size", "8"}), "--pool-size 8: the value must be 16 to 65536 rows");
  EXPECT_EQ(refusal({"--pool-size", "99999999999999999999"}),
            "--pool-size 99999999999999999999: the value must be 16 to 65536 rows");
  EXPECT_EQ(refusal({"--temperature", "2.5"}), "--temperature 2.5: the value must be 0 to 2");
  EXPECT_TRUE(has(refusal({"--seed", "-1"}), "--seed -1: the value must be 0 to"));
  EXPECT_TRUE(has(refusal({"--contexts", "10,0"}), "--contexts 0: the value must be 1 to 1048576 tokens"));
  EXPECT_TRUE(has(refusal({"--offload", "fast"}), "--offload fast: the value must be one of off, select"));
}

TEST(FlagSet, TextThatIsNoNumberIsRefused) {
  EXPECT_TRUE(has(refusal({"--pool-size", "12x"}), "--pool-size \"12x\": not an integer"));
  EXPECT_TRUE(has(refusal({"--pool-size", ""}), "not an integer"));
  EXPECT_TRUE(has(refusal({"--temperature", "nan"}), "not a number"));
  EXPECT_TRUE(has(refusal({"--contexts", "1,,2"}), "not an integer"));
}

TEST(FlagSet, LaterOptionsAndValuesAreRefusedByName) {
  EXPECT_EQ(refusal({"--chat"}), "--chat is not available yet");
  EXPECT_EQ(refusal({"--config", "x.yaml"}), "--config is not available yet");
  EXPECT_EQ(refusal({"--offload", "gather"}), "--offload gather is not available yet (available: off, select)");
}

TEST(FlagSet, PathsAreCheckedBeforeAnyWork) {
  EXPECT_EQ(refusal({"--model", "/nowhere/at/all"}), "--model /nowhere/at/all: No such file or directory");
  EXPECT_EQ(refusal({"--model", "/dev/null"}), "--model /dev/null: not a directory");
  EXPECT_EQ(refusal({"--prompt-file", "/tmp"}), "--prompt-file /tmp: a directory, not a file");
  EXPECT_EQ(refusal({"--out", "/nowhere/x.bin"}), "--out /nowhere/x.bin: there is no folder /nowhere");
  EXPECT_EQ(refusal({"--out", "x.bin"}), "");
  EXPECT_EQ(refusal({"--out", "/tmp"}), "--out /tmp: is there and is not a regular file");
  EXPECT_EQ(refusal({"--out", "/dev/null"}), "--out /dev/null: is there and is not a regular file");
  EXPECT_TRUE(has(refusal({"--out", std::string(300, 'x')}), "File name too long"));
}

TEST(FlagSet, MissingValuesAndStrayArgumentsAreRefused) {
  EXPECT_TRUE(has(refusal({"--pool-size"}), "--pool-size needs a value"));
  EXPECT_TRUE(has(refusal({"--json=yes"}), "takes no value"));
  EXPECT_TRUE(has(refusal({"file.txt"}), "unexpected argument \"file.txt\""));
}

TEST(FlagSet, RequiredOptionsMustBeGiven) {
  std::string model;
  FlagSet flags("tidepool test", "for tests");
  flags.text("--model", &model, "DIR").required();
  EXPECT_THROW(flags.parse({}), UsageError);
  EXPECT_EQ(flags.parse(std::vector<std::string>{"--help"}), FlagSet::kHelp);
}

TEST(FlagSet, ARequiredOptionIsExcusedByTheOneThatCanSayIt) {
  std::string model, config;
  FlagSet flags("tidepool test", "for tests");
  flags.text("--model", &model, "DIR").required_unless("--config");
  flags.text("--config", &config, "F");
  EXPECT_THROW(flags.parse({}), UsageError);
  EXPECT_EQ(flags.parse(std::vector<std::string>{"--config", "x"}), FlagSet::kRun);
  EXPECT_TRUE(has(flags.help_text(), "required unless --config says it"));
}

TEST(FlagSet, HelpSaysTypeUnitLimitsDefaultAndWhatIsMissing) {
  Options o;
  FlagSet flags("tidepool test", "for tests");
  declare(flags, o);
  const std::string help = flags.help_text();
  EXPECT_TRUE(has(help, "integer, 16 to 65536 rows; default 1024"));
  EXPECT_TRUE(has(help, "rows per request and layer"));
  EXPECT_TRUE(has(help, "--offload off|select"));
  EXPECT_TRUE(has(help, "default off; not available yet: gather"));
  EXPECT_TRUE(has(help, "default 4096,16384"));
  EXPECT_TRUE(has(help, "file, may be repeated"));
  EXPECT_TRUE(has(help, "--chat"));
  EXPECT_LT(help.find("Cache"), help.find("The rest"));
}

TEST(FlagSet, ANameDeclaredTwiceIsAnError) {
  bool a = false;
  FlagSet flags("tidepool test", "for tests");
  flags.toggle("--json", &a);
  EXPECT_THROW(flags.toggle("--json", &a), Error);
}

}  // namespace
}  // namespace tidepool::base
