// Writes a checkpoint of random weights in Hugging Face form: config.json, generation_config.json, a byte-level
// tokenizer (one token per byte, no merges) and the tensors, in one file or in shards with an index.
//
// Matrices have mean 0 and standard deviation 1 / sqrt(inputs) (the embedding 1), norm weights lie near 1, biases are
// not zero. Weights are bf16, router biases fp32. The result depends on config, seed, fp8 and shard_bytes alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "model/config.h"

namespace tidepool::model {

struct MakeModelOptions {
  uint64_t seed = 0;
  bool sparse = false;  // headers and holes only: every weight reads as 0 and takes no disk space
  bool fp8 = false;     // what fp8 releases keep in 8 bits: e4m3 with [128, 128] block scales
  int num_threads = 1;
  uint64_t shard_bytes =
      5'000'000'000;  // of tensor data; a larger model is cut into shards of at most this (or one tensor)
  // Called now and then from the calling thread; may be empty.
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;
};

struct MadeModel {
  uint64_t parameters = 0;  // as count_parameters()
  uint64_t bytes = 0;       // of all safetensors files, holes included
};

// `directory` must not exist or be empty; it appears under its name only when complete. Throws, leaving nothing behind,
// when the disk is or would become full. Thread safe for different directories.
MadeModel make_model(const Config& config, const std::string& directory, const MakeModelOptions& options);

// tokenizer.json of `vocab_size` >= 256 tokens: id b is byte b for b < 256; the ids above, up to 65,536, are fillers
// that no text is encoded to.
std::string byte_tokenizer_json(int32_t vocab_size);

}  // namespace tidepool::model
