#include "model/safetensors_writer.h"

#include <set>

#include "base/check.h"
#include "base/json.h"
#include "model/safetensors.h"

namespace tidepool::model {
namespace {

constexpr uint64_t kDataAlignment = 64;

std::string header_text(const std::vector<TensorInfo>& tensors, const std::map<std::string, std::string>& metadata) {
  base::JsonObject members;
  if (!metadata.empty()) {
    base::JsonObject strings;
    for (const auto& [key, value] : metadata) strings.emplace_back(key, value);
    members.emplace_back("__metadata__", std::move(strings));
  }
  uint64_t begin = 0;
  for (const TensorInfo& tensor : tensors) {
    base::JsonArray shape;
    for (int64_t side : tensor.shape) shape.emplace_back(side);
    const uint64_t end = begin + tensor.bytes();
    members.emplace_back(tensor.name, base::JsonObject{{"dtype", safetensors_dtype(tensor.type)},
                                                       {"shape", std::move(shape)},
                                                       {"data_offsets", base::JsonArray{begin, end}}});
    begin = end;
  }
  std::string text = base::Json(std::move(members)).dump();
  text.append((kDataAlignment - (8 + text.size()) % kDataAlignment) % kDataAlignment, ' ');
  return text;
}

}  // namespace

uint64_t TensorInfo::bytes() const {
  uint64_t total = dtype_bytes(type);
  for (int64_t side : shape) total *= static_cast<uint64_t>(side);
  return total;
}

SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<TensorInfo> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : tensors_(std::move(tensors)), file_(std::move(path)) {
  std::set<std::string_view> names;
  for (const TensorInfo& tensor : tensors_) {
    tidepool_check(names.insert(tensor.name).second, "{}: tensor \"{}\" is given twice", file_.path(), tensor.name);
  }
  std::string header = header_text(tensors_, metadata);
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i));
  header.insert(0, length);
  file_bytes_ = header.size();
  for (const TensorInfo& tensor : tensors_) {
    positions_.push_back(file_bytes_);
    file_bytes_ += tensor.bytes();
  }
  file_.write(0, header.data(), header.size());
  file_.resize(file_bytes_);
}

void SafetensorsWriter::write(size_t tensor, uint64_t offset, const void* data, uint64_t size) const {
  const uint64_t bytes = tensors_.at(tensor).bytes();
  tidepool_check(offset <= bytes && size <= bytes - offset, "{}: tensor \"{}\": bytes {}..{} of {}", file_.path(),
                 tensors_[tensor].name, offset, offset + size, bytes);
  file_.write(positions_[tensor] + offset, data, size);
}

void write_safetensors(const std::string& path, const std::vector<TensorInfo>& tensors,
                       const std::vector<const void*>& data, const std::map<std::string, std::string>& metadata) {
  tidepool_check(tensors.size() == data.size(), "{}: {} tensors, {} arrays", path, tensors.size(), data.size());
  SafetensorsWriter writer(path, tensors, metadata);
  for (size_t i = 0; i < tensors.size(); ++i) writer.write(i, 0, data[i], tensors[i].bytes());
  writer.finish();
}

}  // namespace tidepool::model
