#include "model/make_model.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/parallel.h"
#include "model/random_values.h"
#include "model/safetensors_writer.h"
#include "model/tensor_list.h"

namespace tidepool::model {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieceValues = 1 << 19;
constexpr float kNormSpread = 0.1f, kBiasSpread = 0.1f;
constexpr float kFp8Std = 64.0f;  // of the e4m3 values before scaling: the largest are about 222 of 448

// One tensor to write: a tensor of the list, or the scales of an fp8 one.
struct Output {
  TensorInfo info;
  TensorRole role = TensorRole::kMatrix;
  bool is_scale = false;
  float std = 1;  // of the effective weight
};

struct Shard {
  std::string file;
  size_t first = 0, last = 0;  // outputs
};

// A directory under a temporary name, removed unless kept.
class PendingDirectory {
 public:
  explicit PendingDirectory(const std::string& final_path) : final_path_(final_path) {
    while (final_path_.size() > 1 && final_path_.back() == '/') final_path_.pop_back();
    std::error_code error;
    const bool exists = fs::exists(final_path_, error);
    tidepool_check(!exists || (fs::is_directory(final_path_, error) && fs::is_empty(final_path_, error)),
                   "{}: is there already and is not an empty directory", final_path_);
    path_ = base::temporary_name(final_path_);
    fs::create_directory(path_, error);
    tidepool_check(!error, "{}: cannot be created: {}", final_path_, error.message());
  }
  ~PendingDirectory() {
    std::error_code error;
    if (!path_.empty()) fs::remove_all(path_, error);
  }
  PendingDirectory(const PendingDirectory&) = delete;
  PendingDirectory& operator=(const PendingDirectory&) = delete;

  const std::string& path() const { return path_; }
  void keep() {
    std::error_code error;
    fs::rename(path_, final_path_, error);  // replaces an empty directory
    tidepool_check(!error, "{}: cannot be renamed to {}: {}", path_, final_path_, error.message());
    path_.clear();
  }

 private:
  std::string final_path_, path_;
};

std::vector<Output> list_outputs(const Config& config, bool fp8) {
  std::vector<Output> outputs;
  for (const TensorSpec& spec : tensor_list(config)) {
    if (spec.ignored) continue;
    Output output;
    const bool is_fp8 = fp8 && spec.role == TensorRole::kMatrix;
    const DType type = spec.role == TensorRole::kRouterBias ? DType::kF32 : is_fp8 ? DType::kF8E4M3 : DType::kBF16;
    output.info = {spec.name, type, spec.shape};
    output.role = spec.role;
    const bool is_matrix = spec.role == TensorRole::kMatrix || spec.role == TensorRole::kPlainMatrix;
    if (is_matrix) output.std = 1.0f / std::sqrt(static_cast<float>(spec.shape[1]));
    outputs.push_back(output);
    if (!is_fp8) continue;
    output.info = {scale_name(spec.name), DType::kF32, scale_shape(spec.shape)};
    output.is_scale = true;
    outputs.push_back(output);
  }
  return outputs;
}

std::vector<Shard> cut_shards(const std::vector<Output>& outputs, uint64_t shard_bytes) {
  std::vector<Shard> shards;
  uint64_t filled = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const uint64_t bytes = outputs[i].info.bytes();
    if (shards.empty() || filled + bytes > shard_bytes) {
      shards.push_back({"", i, i});
      filled = 0;
    }
    filled += bytes;
    shards.back().last = i + 1;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].file = shards.size() == 1 ? "model.safetensors"
                                        : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
  return shards;
}

// The e4m3 code nearest to a magnitude (ties to the even code), with its sign.
class Fp8Rounder {
 public:
  Fp8Rounder() {
    for (size_t i = 0; i < kNumValues; ++i) values_[i] = f8e4m3_to_f32(static_cast<uint8_t>(i));
  }
  uint8_t round(float x) const {
    const float magnitude = std::abs(x);
    const auto above = std::lower_bound(values_.begin(), values_.end(), magnitude);
    size_t code = above == values_.end() ? kNumValues - 1 : static_cast<size_t>(above - values_.begin());
    if (code > 0) {
      const float up = values_[code] - magnitude, down = magnitude - values_[code - 1];
      if (down < up || (down == up && code % 2 == 1)) --code;
    }
    return static_cast<uint8_t>(code | (std::signbit(x) ? 0x80u : 0u));
  }

 private:
  static constexpr size_t kNumValues = 127;
  std::array<float, kNumValues> values_;
};

// Values [begin, end) of one tensor, in its type.
std::vector<std::byte> generate(const Output& output, uint64_t seed, int64_t begin, int64_t end,
                                const Fp8Rounder& rounder) {
  const RandomValues random(seed, output.info.name);
  std::vector<std::byte> bytes(static_cast<size_t>(end - begin) * dtype_bytes(output.info.type));
  for (int64_t i = begin; i < end; ++i) {
    const float n = random.normal(static_cast<uint64_t>(i));
    float value = n * output.std;
    if (output.is_scale) {
      value = output.std / kFp8Std * (1.0f + n / 8.0f);  // blocks differ, so that a wrong block shows
    } else if (output.role == TensorRole::kNorm) {
      value = 1.0f + n * kNormSpread;
    } else if (output.role == TensorRole::kNormBias || output.role == TensorRole::kRouterBias) {
      value = n * kBiasSpread;
    }
    const auto at = static_cast<size_t>(i - begin);
    if (output.info.type == DType::kF8E4M3) {
      bytes[at] = static_cast<std::byte>(rounder.round(n * kFp8Std));
    } else if (output.info.type == DType::kBF16) {
      const uint16_t bits = f32_to_bf16(value);
      std::memcpy(&bytes[at * 2], &bits, 2);
    } else {
      std::memcpy(&bytes[at * 4], &value, 4);
    }
  }
  return bytes;
}

void check_disk_space(const std::string& on, const std::string& directory, uint64_t bytes) {
  struct statvfs status;
  if (::statvfs(on.c_str(), &status) != 0) return;  // then writing will tell
  const uint64_t free_bytes = static_cast<uint64_t>(status.f_bavail) * status.f_frsize;
  tidepool_check(bytes <= free_bytes,
                 "{}: the weights take {} bytes, but the disk has {} bytes free (sparse writes none)", directory, bytes,
                 free_bytes);
}

// Counts what has been written and reports it from one thread.
class Progress {
 public:
  Progress(const MakeModelOptions& options, uint64_t total_bytes) : options_(options), total_bytes_(total_bytes) {}
  void add(uint64_t bytes) {
    const uint64_t done = done_bytes_.fetch_add(bytes) + bytes;
    if (options_.progress && std::this_thread::get_id() == caller_) options_.progress(done, total_bytes_);
  }

 private:
  const MakeModelOptions& options_;
  const uint64_t total_bytes_;
  const std::thread::id caller_ = std::this_thread::get_id();
  std::atomic<uint64_t> done_bytes_{0};
};

// Writes one shard's file; returns its length.
uint64_t write_shard(const std::vector<Output>& outputs, const Shard& shard, const std::string& path,
                     const MakeModelOptions& options, Progress& progress) {
  std::vector<TensorInfo> tensors;
  for (size_t i = shard.first; i < shard.last; ++i) tensors.push_back(outputs[i].info);
  SafetensorsWriter writer(path, std::move(tensors), {{"format", "pt"}});
  struct Piece {
    size_t tensor;
    int64_t begin, end;
  };
  std::vector<Piece> pieces;
  for (size_t t = 0; t < writer.tensors().size() && !options.sparse; ++t) {
    const TensorInfo& info = writer.tensors()[t];
    const auto num_values = static_cast<int64_t>(info.bytes() / dtype_bytes(info.type));
    for (int64_t begin = 0; begin < num_values; begin += kPieceValues) {
      pieces.push_back({t, begin, std::min(num_values, begin + kPieceValues)});
    }
  }
  const Fp8Rounder rounder;
  base::parallel_for(static_cast<int64_t>(pieces.size()), options.num_threads, [&](int64_t i) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    const Output& output = outputs[shard.first + piece.tensor];
    const auto bytes = generate(output, options.seed, piece.begin, piece.end, rounder);
    writer.write(piece.tensor, static_cast<uint64_t>(piece.begin) * dtype_bytes(output.info.type), bytes.data(),
                 bytes.size());
    progress.add(bytes.size());
  });
  const uint64_t file_bytes = writer.file_bytes();
  writer.finish();
  return file_bytes;
}

void write_index(const std::vector<Output>& outputs, const std::vector<Shard>& shards, uint64_t tensor_bytes,
                 const std::string& directory) {
  base::JsonObject weight_map;
  for (const Shard& shard : shards) {
    for (size_t i = shard.first; i < shard.last; ++i) weight_map.emplace_back(outputs[i].info.name, shard.file);
  }
  base::Json index = base::JsonObject{{"metadata", base::JsonObject{{"total_size", tensor_bytes}}},
                                      {"weight_map", std::move(weight_map)}};
  base::write_text_file(directory + "/model.safetensors.index.json", index.dump_pretty() + "\n");
}

void write_json_files(const Config& config, bool fp8, const std::string& directory) {
  Config written = config;
  written.quantization = fp8 ? "fp8" : "";
  written.dtype = "bfloat16";
  const base::Json json = written.to_json();
  base::write_text_file(directory + "/config.json", json.dump_pretty() + "\n");
  base::Json generation = base::JsonObject{{"do_sample", true}, {"temperature", 1.0}, {"top_p", 0.95}};
  if (!config.eos_ids.empty()) generation.set("eos_token_id", *json.find("eos_token_id"));
  base::write_text_file(directory + "/generation_config.json", generation.dump_pretty() + "\n");
  if (config.vocab_size < 256) return;
  base::write_text_file(directory + "/tokenizer.json", byte_tokenizer_json(config.vocab_size) + "\n");
  const base::Json tokenizer = base::JsonObject{{"tokenizer_class", "PreTrainedTokenizerFast"},
                                                {"clean_up_tokenization_spaces", false},
                                                {"model_max_length", config.max_position}};
  base::write_text_file(directory + "/tokenizer_config.json", tokenizer.dump_pretty() + "\n");
}

}  // namespace

MadeModel make_model(const Config& config, const std::string& directory, const MakeModelOptions& options) {
  tidepool_check(options.num_threads >= 1, "num_threads is {}, it must be at least 1", options.num_threads);
  tidepool_check(options.shard_bytes >= 1, "shard_bytes is 0, it must be at least 1");
  const std::vector<Output> outputs = list_outputs(config, options.fp8);
  const std::vector<Shard> shards = cut_shards(outputs, options.shard_bytes);
  uint64_t tensor_bytes = 0;
  for (const Output& output : outputs) tensor_bytes += output.info.bytes();
  PendingDirectory pending(directory);
  if (!options.sparse) check_disk_space(pending.path(), directory, tensor_bytes);
  MadeModel made;
  made.parameters = count_parameters(config).parameters;
  Progress progress(options, tensor_bytes);
  for (const Shard& shard : shards) {
    made.bytes += write_shard(outputs, shard, pending.path() + "/" + shard.file, options, progress);
  }
  if (shards.size() > 1) write_index(outputs, shards, tensor_bytes, pending.path());
  write_json_files(config, options.fp8, pending.path());
  pending.keep();
  return made;
}

}  // namespace tidepool::model
