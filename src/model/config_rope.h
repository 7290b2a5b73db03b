// The RoPE part of a config.json: both spellings (`rope_parameters`; `rope_theta` with `rope_scaling`), and yarn.
#pragma once

#include "model/config.h"
#include "model/json_fields.h"

namespace tidepool::model {

// Sets rope_theta and rope_scaling of `config`, whose max_position must be set already.
void read_rope(const JsonFields& fields, Config& config);

}  // namespace tidepool::model
