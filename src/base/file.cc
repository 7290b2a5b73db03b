#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/check.h"

namespace tidepool::base {
namespace {

constexpr uint64_t kMaxWrite = uint64_t{1} << 30;
constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;  // of a file that is read whole

// Empty when all went well, else the system's reason. `position` negative: where the descriptor is.
std::string write_all(int fd, const void* data, uint64_t size, int64_t position) {
  auto bytes = static_cast<const std::byte*>(data);
  while (size > 0) {
    const uint64_t count = std::min(size, kMaxWrite);
    const ssize_t n = position < 0 ? ::write(fd, bytes, count) : ::pwrite(fd, bytes, count, position);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? std::strerror(errno) : "nothing was written";
    bytes += n;
    size -= static_cast<uint64_t>(n);
    if (position >= 0) position += n;
  }
  return "";
}

}  // namespace

bool path_exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::status(path, error).type() != std::filesystem::file_type::not_found;
}

int open_regular_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // opening a pipe would wait for a writer
  tidepool_check(fd >= 0, "{}: cannot be read: {}", path, std::strerror(errno));
  struct stat status {};
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) return fd;
  ::close(fd);
  tidepool_fail("{}: cannot be read: not a regular file", path);
}

std::string read_regular_file(const std::string& path) {
  const int fd = open_regular_file(path);
  struct stat status {};
  std::string text, reason;
  uint64_t size = 0;
  if (::fstat(fd, &status) != 0) {
    reason = std::strerror(errno);
  } else {
    size = static_cast<uint64_t>(status.st_size);
    if (size > kMaxTextBytes) reason = fmt::format("{} bytes, the limit is {}", size, kMaxTextBytes);
  }
  try {
    if (reason.empty()) text.resize(size);
  } catch (...) {
    ::close(fd);
    throw;
  }
  uint64_t done = 0;
  while (reason.empty() && done < size) {
    const ssize_t n = ::read(fd, text.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) reason = std::strerror(errno);
    if (n <= 0) break;
    done += static_cast<uint64_t>(n);
  }
  ::close(fd);
  tidepool_check(reason.empty(), "{}: cannot be read: {}", path, reason);
  text.resize(done);
  return text;
}

std::string temporary_name(const std::string& path) {
  static std::atomic<uint32_t> number{0};
  const size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  return fmt::format("{}tidepool-{}-{}.partial", folder, ::getpid(), number.fetch_add(1));
}

PendingFile::PendingFile(std::string path) : path_(std::move(path)), temporary_path_(temporary_name(path_)) {
  struct stat status {};
  tidepool_check(::stat(path_.c_str(), &status) != 0 || S_ISREG(status.st_mode),
                 "{}: is there and is not a regular file", path_);
  fd_ = ::open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  tidepool_check(fd_ >= 0, "{}: cannot be written: {}", path_, std::strerror(errno));
}

PendingFile::~PendingFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_path_.c_str());
}

void PendingFile::resize(uint64_t bytes) {
  tidepool_check(::ftruncate(fd_, static_cast<off_t>(bytes)) == 0, "{}: cannot be written: {}", path_,
                 std::strerror(errno));
}

void PendingFile::write(uint64_t position, const void* data, uint64_t size) const {
  const std::string reason = write_all(fd_, data, size, static_cast<int64_t>(position));
  tidepool_check(reason.empty(), "{}: cannot be written: {}", path_, reason);
}

void PendingFile::finish() {
  tidepool_check(fd_ >= 0, "{}: finished twice", path_);
  int error = ::close(fd_) == 0 ? 0 : errno;  // some file systems report a full disk only here
  fd_ = -1;
  if (error == 0 && ::rename(temporary_path_.c_str(), path_.c_str()) != 0) error = errno;
  if (error == 0) return;
  ::unlink(temporary_path_.c_str());
  tidepool_fail("{}: cannot be written: {}", path_, std::strerror(error));
}

void write_text_file(const std::string& path, const std::string& text) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && (S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode))) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    std::string reason = fd < 0 ? std::strerror(errno) : write_all(fd, text.data(), text.size(), -1);
    if (fd >= 0 && ::close(fd) != 0 && reason.empty()) reason = std::strerror(errno);
    tidepool_check(reason.empty(), "{}: cannot be written: {}", path, reason);
    return;
  }
  PendingFile file(path);
  file.write(0, text.data(), text.size());
  file.finish();
}

}  // namespace tidepool::base
