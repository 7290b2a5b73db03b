#include "tiny_models.h"

#include <unistd.h>

#include <filesystem>

#include "tidepool/checkpoint.h"

namespace tidepool::test {
namespace {

class TemporaryModel {
 public:
  explicit TemporaryModel(const char* preset) {
    path_ =
        (std::filesystem::temp_directory_path() / ("tidepool-" + std::string(preset) + "-" + std::to_string(getpid())))
            .string();
    MakeModelOptions options;
    options.preset = preset;
    options.out = path_;
    options.seed = 7;
    options.num_threads = 1;
    make_model(options);
  }
  ~TemporaryModel() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

const std::string& tiny_model() {
  static const TemporaryModel model("tiny");
  return model.path();
}

}  // namespace tidepool::test
