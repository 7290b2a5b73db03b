#include "model/safetensors.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

namespace tidepool::model {
namespace {

// By DType.
constexpr std::array<const char*, 8> kNames = {"F32", "BF16", "F16", "F8_E4M3", "I32", "I64", "I8", "U8"};
constexpr size_t kMaxRank = 8;

uint64_t little_endian_u64(const std::byte* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = (value << 8) | static_cast<uint64_t>(bytes[i]);
  return value;
}

std::vector<int64_t> read_shape(const base::Json& json, const std::string& what) {
  const auto& list = json.at("shape", what).as_array(what + ": shape");
  tidepool_check(list.size() <= kMaxRank, "{}: shape has {} dimensions, the limit is {}", what, list.size(), kMaxRank);
  std::vector<int64_t> shape;
  for (const base::Json& side : list) {
    shape.push_back(side.as_int(what + ": shape"));
    tidepool_check(shape.back() >= 0, "{}: shape holds {}, a dimension cannot be negative", what, shape.back());
  }
  return shape;
}

// shape x dtype in bytes, without overflow.
uint64_t shape_bytes(const std::vector<int64_t>& shape, DType type, const std::string& what) {
  uint64_t bytes = dtype_bytes(type);
  for (int64_t side : shape) {
    tidepool_check(!__builtin_mul_overflow(bytes, static_cast<uint64_t>(side), &bytes), "{}: shape {} overflows", what,
                   shape_text(shape));
  }
  return bytes;
}

TensorView read_tensor(const base::Json& json, const std::byte* data, uint64_t data_bytes, const std::string& what) {
  TensorView view;
  view.type = dtype_from_safetensors(json.at("dtype", what).as_string(what + ": dtype"), what);
  view.shape = read_shape(json, what);
  const auto& offsets = json.at("data_offsets", what).as_array(what + ": data_offsets");
  tidepool_check(offsets.size() == 2, "{}: data_offsets has {} entries, it must have 2", what, offsets.size());
  const int64_t begin = offsets[0].as_int(what + ": data_offsets");
  const int64_t end = offsets[1].as_int(what + ": data_offsets");
  tidepool_check(begin >= 0 && begin <= end, "{}: data_offsets are [{}, {}], not a range", what, begin, end);
  tidepool_check(static_cast<uint64_t>(end) <= data_bytes,
                 "{}: data_offsets are [{}, {}], but the file holds {} bytes of data: truncated?", what, begin, end,
                 data_bytes);
  view.bytes = static_cast<uint64_t>(end - begin);
  const uint64_t expected = shape_bytes(view.shape, view.type, what);
  tidepool_check(view.bytes == expected, "{}: {} bytes of data, but shape {} of {} takes {}", what, view.bytes,
                 shape_text(view.shape), safetensors_dtype(view.type), expected);
  view.data = data + begin;
  return view;
}

// Every byte of the data belongs to exactly one tensor.
void check_cover(const TensorMap& tensors, const std::byte* data, uint64_t data_bytes, const std::string& what) {
  std::vector<const TensorMap::value_type*> by_offset;
  for (const auto& entry : tensors) {
    if (entry.second.bytes > 0) by_offset.push_back(&entry);
  }
  std::sort(by_offset.begin(), by_offset.end(), [](auto* a, auto* b) { return a->second.data < b->second.data; });
  uint64_t covered = 0;
  const std::string* previous = nullptr;
  for (const auto* entry : by_offset) {
    const uint64_t begin = static_cast<uint64_t>(entry->second.data - data);
    tidepool_check(begin >= covered, "{}: tensors \"{}\" and \"{}\" overlap", what, base::shown(*previous),
                   base::shown(entry->first));
    tidepool_check(begin == covered, "{}: bytes {}..{} of the data belong to no tensor", what, covered, begin);
    covered = begin + entry->second.bytes;
    previous = &entry->first;
  }
  tidepool_check(covered == data_bytes, "{}: bytes {}..{} of the data belong to no tensor", what, covered, data_bytes);
}

}  // namespace

DType dtype_from_safetensors(std::string_view name, std::string_view what) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<DType>(i);
  }
  tidepool_fail("{}: dtype \"{}\" is not supported (F32, BF16, F16, F8_E4M3, I32, I64, I8 and U8 are)", what,
                base::shown(name));
}

const char* safetensors_dtype(DType type) { return kNames[static_cast<size_t>(type)]; }

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (int64_t side : shape) text += (text.empty() ? "[" : ", ") + std::to_string(side);
  return text.empty() ? "[]" : text + "]";
}

TensorMap parse_safetensors(const std::byte* data, uint64_t size, const std::string& what,
                            std::map<std::string, std::string>* metadata) {
  tidepool_check(size >= 8, "{}: {} bytes long, too short for a safetensors header: truncated?", what, size);
  const uint64_t header_bytes = little_endian_u64(data);
  tidepool_check(header_bytes <= kMaxHeaderBytes, "{}: header length is {}, the limit is {}: not a safetensors file?",
                 what, header_bytes, kMaxHeaderBytes);
  tidepool_check(header_bytes <= size - 8, "{}: header length is {}, but only {} bytes follow: truncated?", what,
                 header_bytes, size - 8);
  const std::string_view text(reinterpret_cast<const char*>(data) + 8, header_bytes);
  const base::Json header = base::Json::parse(text, what + ": header");
  const std::byte* values = data + 8 + header_bytes;
  const uint64_t value_bytes = size - 8 - header_bytes;
  TensorMap tensors;
  for (const auto& [name, entry] : header.as_object(what + ": header")) {
    if (name == "__metadata__") {
      for (const auto& [key, value] : entry.as_object(what + ": __metadata__")) {
        const std::string& string = value.as_string(what + ": __metadata__." + base::shown(key));
        if (metadata != nullptr) metadata->emplace(key, string);
      }
      continue;
    }
    const std::string tensor = what + ": tensor \"" + base::shown(name) + "\"";
    tidepool_check(entry.is_object(), "{}: expected an object, found {}", tensor, entry.kind());
    tensors.emplace(name, read_tensor(entry, values, value_bytes, tensor));
  }
  check_cover(tensors, values, value_bytes, what);
  return tensors;
}

MappedFile::MappedFile(const std::string& path) {
  const int fd = base::open_regular_file(path);
  struct stat status {};
  const bool known = ::fstat(fd, &status) == 0;
  void* mapping = MAP_FAILED;
  int error = errno;
  if (known && status.st_size > 0) {
    mapping = ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED, fd, 0);
    error = errno;
  }
  ::close(fd);
  if (known && status.st_size == 0) return;
  tidepool_check(mapping != MAP_FAILED, "{}: cannot be mapped: {}", path, std::strerror(error));
  data_ = static_cast<std::byte*>(mapping);
  size_ = static_cast<uint64_t>(status.st_size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path), file_(path), tensors_(parse_safetensors(file_.data(), file_.size(), path, &metadata_)) {}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

const TensorView& SafetensorsFile::at(std::string_view name) const {
  const TensorView* view = find(name);
  tidepool_check(view != nullptr, "{}: tensor \"{}\" is missing", path_, name);
  return *view;
}

Checkpoint::Checkpoint(const std::string& directory) : directory_(directory) {
  const std::string index_path = directory + "/model.safetensors.index.json";
  if (base::path_exists(directory + "/model.safetensors")) {
    add_file("model.safetensors");
    return;
  }
  tidepool_check(base::path_exists(index_path),
                 "{}: neither model.safetensors nor model.safetensors.index.json is there", directory);
  const base::Json index = base::Json::parse_file(index_path);
  const auto& weight_map = index.at("weight_map", index_path).as_object(index_path + ": weight_map");
  std::set<std::string> shards;
  for (const auto& [name, file] : weight_map) {
    const std::string& shard = file.as_string(index_path + ": weight_map." + base::shown(name));
    tidepool_check(!shard.empty() && shard.find('/') == std::string::npos,
                   "{}: tensor \"{}\" lies in \"{}\", not a file name", index_path, base::shown(name),
                   base::shown(shard));
    shards.insert(shard);
  }
  tidepool_check(!shards.empty(), "{}: weight_map is empty", index_path);
  for (const std::string& shard : shards) add_file(shard);
  for (const auto& [name, file] : weight_map) {
    const TensorView* view = find(name);
    tidepool_check(view != nullptr && files_[static_cast<size_t>(view->file)] == file.as_string(),
                   "{}: tensor \"{}\" should lie in {}, but is not there", index_path, base::shown(name),
                   base::shown(file.as_string()));
  }
}

void Checkpoint::add_file(const std::string& name) {
  const std::string path = directory_ + "/" + name;
  mappings_.emplace_back(path);
  files_.push_back(name);
  TensorMap found = parse_safetensors(mappings_.back().data(), mappings_.back().size(), path);
  for (auto& [tensor, view] : found) {
    view.file = static_cast<int32_t>(files_.size() - 1);
    tensor_bytes_ += view.bytes;
    const auto [it, is_new] = tensors_.emplace(tensor, std::move(view));
    tidepool_check(is_new, "{}: tensor \"{}\" is also in {}", path, base::shown(tensor),
                   files_[static_cast<size_t>(it->second.file)]);
  }
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace tidepool::model
