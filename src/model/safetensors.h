// The safetensors format: 8 bytes little-endian header length, a JSON header (name -> dtype, shape, [begin, end) in the
// data that follows), the data. Reader: one file, and the tensors of a checkpoint directory (one file or shards).
//
// Files are mapped, not read: a view points into the mapping and stays valid as long as its owner. Everything here is
// immutable after construction; any number of threads may read. Every error names the file and, where there is one, the
// tensor. The header is checked whole before any view is given out: offsets inside the file, no overlap, no byte that
// belongs to no tensor, shape x dtype == bytes, known dtype, no name twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace tidepool::model {

// The longest header accepted: what the reference implementation accepts.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

struct TensorView {
  DType type = DType::kF32;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;  // into the mapping, row-major; need not be aligned to the type
  uint64_t bytes = 0;
  int32_t file = 0;  // index into Checkpoint::files(); 0 in a single file
  uint64_t num_values() const { return bytes / dtype_bytes(type); }
};

using TensorMap = std::map<std::string, TensorView, std::less<>>;

// "F32", "BF16", ... Throws for a name that is none of the eight types; `what` names the tensor in the error.
DType dtype_from_safetensors(std::string_view name, std::string_view what);
const char* safetensors_dtype(DType type);

std::string shape_text(const std::vector<int64_t>& shape);  // "[64, 128]"

// Checks a whole file image at `data` and returns its tensors, pointing into it. `what` names it in errors.
// metadata, where not null, receives the strings of __metadata__.
TensorMap parse_safetensors(const std::byte* data, uint64_t size, const std::string& what,
                            std::map<std::string, std::string>* metadata = nullptr);

// A read-only mapping of a file; move-only. An empty file has data() null.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  const std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  const TensorMap& tensors() const { return tensors_; }
  const TensorView* find(std::string_view name) const;  // null when absent
  const TensorView& at(std::string_view name) const;    // throws when absent
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  uint64_t size() const { return file_.size(); }

 private:
  std::string path_;
  MappedFile file_;
  std::map<std::string, std::string> metadata_;
  TensorMap tensors_;
};

// The tensors of a Hugging Face directory: model.safetensors, else the shards that model.safetensors.index.json names.
class Checkpoint {
 public:
  explicit Checkpoint(const std::string& directory);
  const std::string& directory() const { return directory_; }
  const TensorMap& tensors() const { return tensors_; }
  const TensorView* find(std::string_view name) const;              // null when absent
  const std::vector<std::string>& files() const { return files_; }  // names within the directory
  uint64_t tensor_bytes() const { return tensor_bytes_; }

 private:
  void add_file(const std::string& name);

  std::string directory_;
  std::vector<std::string> files_;
  std::vector<MappedFile> mappings_;  // as files_
  TensorMap tensors_;
  uint64_t tensor_bytes_ = 0;
};

}  // namespace tidepool::model
