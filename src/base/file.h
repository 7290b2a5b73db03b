// Files: whole ones in, and out under a temporary name, so that no half-written file ever has its final name.
// Errors: tidepool::Error that names the path and the system's reason. Thread safe for different paths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tidepool::base {

// Whether something has this name, be it a symbolic link that leads nowhere new (opening it then tells the reason).
bool path_exists(const std::string& path);

// A descriptor for reading; refuses everything but regular files: reading a pipe or a device may never end.
int open_regular_file(const std::string& path);
std::string read_regular_file(const std::string& path);

// A short name in the folder of `path`, of this process alone: tidepool-PID-NUMBER.partial. Short, because a name as
// long as the system allows has no room for a suffix.
std::string temporary_name(const std::string& path);

// A file that gets its final name, replacing one that is there, in finish(). Without finish() (an exception, a full
// disk) nothing is left of it.
class PendingFile {
 public:
  // Refuses a path that is there and is not a regular file: renaming onto a device would replace it.
  explicit PendingFile(std::string path);
  ~PendingFile();
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  const std::string& path() const { return path_; }
  void resize(uint64_t bytes);  // what is not written reads as zero and takes no disk space (a hole)
  // Thread safe for ranges that do not overlap.
  void write(uint64_t position, const void* data, uint64_t size) const;
  void finish();

 private:
  std::string path_, temporary_path_;
  int fd_ = -1;
};

// A small text file by way of a PendingFile; what is a device or a pipe already is written to as it is.
void write_text_file(const std::string& path, const std::string& text);

}  // namespace tidepool::base
