// Pictures of graphs: well formed, whatever the names are.
#include "graph/dot.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "base/file.h"
#include "graph/test_world.h"

namespace tidepool::graph {
namespace {

using testing::contains;
using testing::Step;
using testing::World;

// Goes through a picture: strings end on their line, braces and brackets match, edges lead from and to declared nodes.
// Returns what is wrong; "": nothing.
std::string fault_of(const std::string& dot) {
  std::set<std::string> declared;
  std::vector<std::pair<std::string, std::string>> edges;
  int braces = 0;
  size_t begin = 0;
  for (size_t end; begin < dot.size(); begin = end + 1) {
    end = dot.find('\n', begin);
    if (end == std::string::npos) return "the last line does not end";
    std::string code;  // the line without its strings
    bool quoted = false;
    for (size_t i = begin; i < end; ++i) {
      if (quoted && dot[i] == '\\') {
        ++i;
      } else if (dot[i] == '"') {
        quoted = !quoted;
      } else if (!quoted) {
        code += dot[i];
      }
    }
    if (quoted) return "a string does not end: " + dot.substr(begin, end - begin);
    int brackets = 0;
    for (char c : code) {
      braces += c == '{' ? 1 : c == '}' ? -1 : 0;
      brackets += c == '[' ? 1 : c == ']' ? -1 : 0;
    }
    if (brackets != 0) return "brackets do not match: " + code;
    const size_t arrow = code.find(" -> ");
    const std::string from = code.substr(0, arrow == std::string::npos ? code.find(" [") : arrow);
    if (arrow != std::string::npos) {
      edges.emplace_back(from, "  " + code.substr(arrow + 4, code.find(" [") - arrow - 4));
    } else {
      declared.insert(from);
    }
  }
  if (braces != 0) return "braces do not match";
  for (const auto& [from, to] : edges) {
    if (!declared.contains(from) || !declared.contains(to))
      return "an edge from" + from + " to" + to + " leads nowhere";
  }
  return edges.empty() ? "no edges" : "";
}

class Dot : public ::testing::Test {
 protected:
  Dot() {
    uint64_t* pool = w.device("pool of \"layer\" 3\\\nnext {line", 8);
    uint64_t *maps = w.device("maps", 8), *x = w.activation("x", 8);
    auto& store = w.resources.emplace_back(testing::Resource{5, std::vector<uint64_t>(8)});
    step.main("plan").reads(maps, 8).writes(x, 8);
    step.main("serve \"fast\"").reads(pool, 8).reads(x, 8).resource(store, 0, 8, false).async(done);
    step.side("install").writes(pool, 8).changes(maps, 8);
    step.spill("spill").reads(pool, 8).resource(store, 2, 3, true).async(spilled);
  }
  World w;
  Step step{w};
  device::Event done, spilled;
};

TEST_F(Dot, APictureIsWellFormedAndNamesAreEscaped) {
  const std::string dot = to_dot(step.graph(), "a \"title\"");
  EXPECT_EQ(fault_of(dot), "");
  EXPECT_TRUE(contains(dot, "digraph \"a \\\"title\\\"\" {"));
  EXPECT_TRUE(contains(dot, "pool of \\\"layer\\\" 3\\\\\\\\nnext {line"));
  EXPECT_TRUE(contains(dot, "serve \\\"fast\\\" 1 (asynchronous)"));
  EXPECT_TRUE(contains(dot, "clone 2"));
  EXPECT_TRUE(contains(dot, "resource 5 v0\\n8 positions"));
}

TEST_F(Dot, CompilingWritesOnePictureBeforeAndOneAfterEachPass) {
  const auto dir = std::filesystem::temp_directory_path() / ("tidepool-dot-" + std::to_string(getpid()));
  std::filesystem::remove_all(dir);  // of a test that was killed
  CompileOptions options = w.options();
  options.dump_dir = (dir / "new").string();
  options.name = "decode-3";
  compile(step.list, options);
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(dir / "new")) {
    names.insert(file.path().filename().string());
    EXPECT_EQ(fault_of(base::read_regular_file(file.path().string())), "") << file.path();
  }
  EXPECT_EQ(names, (std::set<std::string>{"decode-3-00-functional.dot", "decode-3-01-dead-code.dot",
                                          "decode-3-02-in-place.dot", "decode-3-03-streams.dot",
                                          "decode-3-04-buffer-reuse.dot", "decode-3-05-events.dot"}));
  const std::string last = base::read_regular_file((dir / "new" / "decode-3-05-events.dot").string());
  EXPECT_TRUE(contains(last, "style=dashed"));
  EXPECT_FALSE(contains(last, "clone"));
  std::filesystem::remove_all(dir);
}

TEST_F(Dot, AFolderThatCannotBeMadeIsAnError) {
  CompileOptions options = w.options();
  options.dump_dir = "/dev/null/pictures";
  EXPECT_TRUE(contains(testing::sentence_of([&] { compile(step.list, options); }), "/dev/null/pictures"));
}

}  // namespace
}  // namespace tidepool::graph
