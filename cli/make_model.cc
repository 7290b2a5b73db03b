// tidepool make-model: writes a checkpoint of random weights.
#include "base/check.h"
#include "base/flags.h"
#include "commands.h"
#include "output.h"
#include "tidepool/checkpoint.h"
#include "tidepool/engine.h"

namespace tidepool::cli {

int run_make_model(const Arguments& arguments) {
  MakeModelOptions options;
  bool json = false;
  base::FlagSet flags("tidepool make-model", "writes a checkpoint of random weights in Hugging Face form");
  flags.choice("--preset", &options.preset, model_presets()).help("a configuration by name");
  flags.text("--config", &options.config_path, "config.json").input_file().help("a configuration of one's own");
  flags.text("--out", &options.out, "DIR")
      .output_directory()
      .required()
      .help("the directory to make; empty or not there yet");
  flags.integer("--seed", &options.seed).help("the weights depend on it alone");
  flags.toggle("--sparse", &options.sparse)
      .help("write headers and holes only: every weight reads as 0, no disk is used");
  flags.integer("--threads", &options.num_threads)
      .unit("threads")
      .range(0, kMaxThreads)
      .help("0: all that the process may use");
  flags.toggle("--json", &json).help("print one JSON object");
  if (flags.parse(arguments) == base::FlagSet::kHelp) return print(flags.help_text()), 0;
  if (options.preset.empty() == options.config_path.empty()) {
    throw base::UsageError("one of --preset NAME and --config config.json is required");
  }
  Progress progress("writing", "bytes");
  options.progress = [&](uint64_t done, uint64_t total) {
    if (interrupted()) throw Interrupted();
    progress.update(done, total);
  };
  const InterruptGuard guard;
  const MadeModel made = make_model(options);
  progress.clear();
  if (json) {
    base::Json out = base::Json::object();
    out.set("parameters", made.parameters);
    out.set("bytes", made.bytes);
    print_json(out);
  } else {
    print(fmt::format("{}: {} parameters, {}\n", options.out, count_text(made.parameters),
                      bytes_text(static_cast<uint64_t>(made.bytes))));
  }
  return 0;
}

}  // namespace tidepool::cli
