#include "gzip.h"

#include <zlib.h>

#include "base/check.h"

namespace tidepool::testing {

std::string read_gzip_file(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  tidepool_check(file != nullptr, "{}: cannot be opened", path);
  std::string contents, chunk(1 << 16, '\0');
  int bytes = 0;
  while ((bytes = gzread(file, chunk.data(), static_cast<unsigned>(chunk.size()))) > 0) {
    contents.append(chunk, 0, static_cast<size_t>(bytes));
  }
  // gzclose reports what gzread could not know: a file that ends early.
  const int status = gzclose(file);
  tidepool_check(bytes == 0 && status == Z_OK, "{}: is not a whole gzip file", path);
  return contents;
}

}  // namespace tidepool::testing
