#include "model/safetensors_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include "base/check.h"
#include "base/json.h"
#include "model/safetensors.h"

namespace tidepool::model {
namespace {

constexpr uint64_t kDataAlignment = 64;

// Renaming onto a device or a directory must not be tried: as root it would replace the device.
void check_target(const std::string& path) {
  struct stat status;
  tidepool_check(::stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode),
                 "{}: is there and is not a regular file", path);
}

int create_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  tidepool_check(fd >= 0, "{}: cannot be created: {}", path, std::strerror(errno));
  return fd;
}

// Empty when all went well, else the system's reason.
std::string pwrite_all(int fd, const std::byte* data, uint64_t size, uint64_t position) {
  while (size > 0) {
    const ssize_t n = ::pwrite(fd, data, std::min<uint64_t>(size, uint64_t{1} << 30), static_cast<off_t>(position));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? std::strerror(errno) : "nothing was written";
    data += n;
    size -= static_cast<uint64_t>(n);
    position += static_cast<uint64_t>(n);
  }
  return "";
}

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
    : path_(std::move(path)),
      temporary_path_(fmt::format("{}.partial-{}", path_, ::getpid())),
      tensors_(std::move(tensors)) {
  check_target(path_);
  std::set<std::string_view> names;
  for (const TensorInfo& tensor : tensors_) {
    tidepool_check(names.insert(tensor.name).second, "{}: tensor \"{}\" is given twice", path_, tensor.name);
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
  fd_ = create_file(temporary_path_);
  std::string reason = pwrite_all(fd_, reinterpret_cast<const std::byte*>(header.data()), header.size(), 0);
  if (reason.empty() && ::ftruncate(fd_, static_cast<off_t>(file_bytes_)) != 0) reason = std::strerror(errno);
  if (reason.empty()) return;
  ::close(fd_);  // the destructor does not run for an object that was never complete
  ::unlink(temporary_path_.c_str());
  tidepool_fail("{}: cannot be written: {}", path_, reason);
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_path_.c_str());
}

void SafetensorsWriter::write(size_t tensor, uint64_t offset, const void* data, uint64_t size) const {
  const uint64_t bytes = tensors_.at(tensor).bytes();
  tidepool_check(offset <= bytes && size <= bytes - offset, "{}: tensor \"{}\": bytes {}..{} of {}", path_,
                 tensors_[tensor].name, offset, offset + size, bytes);
  write_at(positions_[tensor] + offset, data, size);
}

void SafetensorsWriter::write_at(uint64_t position, const void* data, uint64_t size) const {
  const std::string reason = pwrite_all(fd_, static_cast<const std::byte*>(data), size, position);
  tidepool_check(reason.empty(), "{}: cannot be written: {}", path_, reason);
}

void SafetensorsWriter::finish() {
  tidepool_check(fd_ >= 0, "{}: finished twice", path_);
  int error = ::close(fd_) == 0 ? 0 : errno;  // some file systems report a full disk only here
  fd_ = -1;
  if (error == 0 && ::rename(temporary_path_.c_str(), path_.c_str()) != 0) error = errno;
  if (error == 0) return;
  ::unlink(temporary_path_.c_str());
  tidepool_fail("{}: cannot be written: {}", path_, std::strerror(error));
}

void write_safetensors(const std::string& path, const std::vector<TensorInfo>& tensors,
                       const std::vector<const void*>& data, const std::map<std::string, std::string>& metadata) {
  tidepool_check(tensors.size() == data.size(), "{}: {} tensors, {} arrays", path, tensors.size(), data.size());
  SafetensorsWriter writer(path, tensors, metadata);
  for (size_t i = 0; i < tensors.size(); ++i) writer.write(i, 0, data[i], tensors[i].bytes());
  writer.finish();
}

void write_text_file(const std::string& path, const std::string& text) {
  check_target(path);
  const std::string temporary = fmt::format("{}.partial-{}", path, ::getpid());
  const int fd = create_file(temporary);
  std::string reason = pwrite_all(fd, reinterpret_cast<const std::byte*>(text.data()), text.size(), 0);
  if (::close(fd) != 0 && reason.empty()) reason = std::strerror(errno);
  if (reason.empty() && ::rename(temporary.c_str(), path.c_str()) != 0) reason = std::strerror(errno);
  if (reason.empty()) return;
  ::unlink(temporary.c_str());
  tidepool_fail("{}: cannot be written: {}", path, reason);
}

}  // namespace tidepool::model
