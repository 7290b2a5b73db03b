// tidepool tokenize and detokenize.
#include <unistd.h>

#include <limits>

#include "base/check.h"
#include "base/flags.h"
#include "commands.h"
#include "output.h"
#include "prompt.h"

namespace tidepool::cli {

int run_tokenize(const Arguments& arguments) {
  std::string model, text, file;
  bool no_special = false, json = false;
  base::FlagSet flags("tidepool tokenize", "the token ids of a text");
  flags.text("--model", &model, "DIR").input_directory().required().help("a directory with a tokenizer.json");
  flags.text("--text", &text).help("the text itself; without --text and --file it is read from standard input");
  flags.text("--file", &file, "F").input_file().help("a UTF-8 text");
  flags.toggle("--no-special", &no_special).help("leave out the tokens that the post-processor adds");
  flags.toggle("--json", &json).help("print {\"ids\": [...]} instead of [...]");
  if (flags.parse(arguments) == base::FlagSet::kHelp) return print(flags.help_text()), 0;
  if (flags.given("--text") && flags.given("--file")) throw base::UsageError("--text and --file exclude each other");
  if (!flags.given("--text")) text = flags.given("--file") ? read_file(file) : read_stdin();
  check_text(text, flags.given("--text") ? "--text" : flags.given("--file") ? file : "standard input");
  base::Json ids = base::Json::array();
  for (const int32_t id : load_tokenizer(model).encode(text, !no_special)) ids.push_back(id);
  if (json) {
    base::Json out = base::Json::object();
    out.set("ids", std::move(ids));
    print_json(out);
  } else {
    print(ids.dump() + "\n");
  }
  return 0;
}

int run_detokenize(const Arguments& arguments) {
  std::string model, file;
  bool skip_special = false, json = false;
  base::FlagSet flags("tidepool detokenize", "the text of token ids");
  flags.text("--model", &model, "DIR").input_directory().required().help("a directory with a tokenizer.json");
  flags.text("--ids", &file, "F.json").input_file().required().help("token ids: [1,2,3] or {\"ids\": [1,2,3]}");
  flags.toggle("--skip-special", &skip_special).help("leave special tokens out of the text");
  flags.toggle("--json", &json).help("print {\"text\": ...} instead of the text");
  if (flags.parse(arguments) == base::FlagSet::kHelp) return print(flags.help_text()), 0;
  const text::Tokenizer tokenizer = load_tokenizer(model);
  const std::string text = tokenizer.decode(read_ids(file, tokenizer.vocab_size()), skip_special);
  if (json) {
    base::Json out = base::Json::object();
    out.set("text", text);
    print_json(out);
  } else {
    print(text + "\n");
  }
  return 0;
}

}  // namespace tidepool::cli
