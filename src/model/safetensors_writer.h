// Writing safetensors files, and checkpoint shards, so that no half-written file ever has its final name.
//
// A file is written as a base::PendingFile, at its full length from the start, and renamed by finish(). Whatever was
// not written reads as zero and takes no disk space (a hole). Errors name the file and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "tensor/dtype.h"

namespace tidepool::model {

struct TensorInfo {
  std::string name;
  DType type = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t bytes() const;
};

class SafetensorsWriter {
 public:
  // Lays out `tensors` in the given order; names must differ. An empty metadata map writes no __metadata__.
  SafetensorsWriter(std::string path, std::vector<TensorInfo> tensors,
                    const std::map<std::string, std::string>& metadata);

  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  uint64_t file_bytes() const { return file_bytes_; }

  // Writes bytes [offset, offset + size) of tensor `tensor`. Thread safe for ranges that do not overlap.
  void write(size_t tensor, uint64_t offset, const void* data, uint64_t size) const;
  // Gives the file its final name, replacing one that is there.
  void finish() { file_.finish(); }

 private:
  std::vector<TensorInfo> tensors_;
  std::vector<uint64_t> positions_;  // of each tensor in the file
  uint64_t file_bytes_ = 0;
  base::PendingFile file_;
};

// A whole file from arrays in memory: data[i] is tensors[i].
void write_safetensors(const std::string& path, const std::vector<TensorInfo>& tensors,
                       const std::vector<const void*>& data, const std::map<std::string, std::string>& metadata = {});

}  // namespace tidepool::model
