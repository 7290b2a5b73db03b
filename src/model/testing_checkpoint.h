// For tests: copies of made checkpoints with chosen tensors changed, dropped or added.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "model/make_model.h"
#include "model/presets.h"
#include "model/safetensors.h"
#include "model/safetensors_writer.h"
#include "model/testing.h"

namespace tidepool::model::testing {

struct Tensor {
  TensorInfo info;
  std::vector<std::byte> bytes;
};

inline std::vector<Tensor> read_tensors(const std::string& directory) {
  const Checkpoint checkpoint(directory);
  std::vector<Tensor> tensors;
  for (const auto& [name, view] : checkpoint.tensors()) {
    tensors.push_back({{name, view.type, view.shape}, {view.data, view.data + view.bytes}});
  }
  return tensors;
}

// Writes config.json and one model.safetensors into an existing directory.
inline void write_checkpoint(const std::string& directory, const Config& config, const std::vector<Tensor>& tensors) {
  std::vector<TensorInfo> infos;
  std::vector<const void*> data;
  for (const Tensor& tensor : tensors) {
    infos.push_back(tensor.info);
    data.push_back(tensor.bytes.data());
  }
  write_safetensors(directory + "/model.safetensors", infos, data);
  base::write_text_file(directory + "/config.json", config.to_json().dump());
}

inline float value_of(const Tensor& tensor, size_t index) {
  const std::byte* at = tensor.bytes.data() + index * dtype_bytes(tensor.info.type);
  uint32_t bits = 0;
  std::memcpy(&bits, at, std::min(sizeof(bits), dtype_bytes(tensor.info.type)));
  switch (tensor.info.type) {
    case DType::kBF16:
      return bf16_to_f32(static_cast<uint16_t>(bits));
    case DType::kF16:
      return f16_to_f32(static_cast<uint16_t>(bits));
    case DType::kF8E4M3:
      return f8e4m3_to_f32(static_cast<uint8_t>(bits));
    default:
      return std::bit_cast<float>(bits);
  }
}

inline Tensor& find(std::vector<Tensor>& tensors, const std::string& name) {
  for (Tensor& tensor : tensors) {
    if (tensor.info.name == name) return tensor;
  }
  throw Error("no tensor " + name);
}

// `tensor` in fp32; exact.
inline void widen(Tensor& tensor) {
  const size_t count = tensor.bytes.size() / dtype_bytes(tensor.info.type);
  std::vector<std::byte> bytes(count * 4);
  for (size_t i = 0; i < count; ++i) {
    const float value = value_of(tensor, i);
    std::memcpy(&bytes[i * 4], &value, 4);
  }
  tensor.info.type = DType::kF32;
  tensor.bytes = std::move(bytes);
}

}  // namespace tidepool::model::testing
