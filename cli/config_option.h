// --config FILE: a configuration of the published system as values of this program's options.
#pragma once

#include <optional>
#include <string>

#include "base/flags.h"
#include "engine_flags.h"
#include "published_config.h"

namespace tidepool::cli {

// Reads the file that --config names, nothing when it names none. The file is checked as it stands: schema, published
// rules, limits of one rank. Then every option of `v` that was not given takes the file's value: --model, --exec,
// --offload, --pool-size, --block-size, --num-draft-tokens. Returned with next_n and pa_block_size as they are then, so
// that what is computed from them holds for the run.
// Throws base::UsageError; the model that is left over must be a directory, with weights that can be read here.
std::optional<PublishedConfig> apply_config(const base::FlagSet& flags, EngineFlags& v);

// As exe_mode spells it.
const char* published_mode(ExecMode mode);

// Says on standard error, in one line, which options of the file have no effect here; nothing when all have one.
void note_options_without_effect(const std::optional<PublishedConfig>& config);

}  // namespace tidepool::cli
