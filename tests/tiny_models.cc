#include "tiny_models.h"

#include <cstring>

#include "model/presets.h"
#include "model/testing.h"
#include "model/testing_checkpoint.h"
#include "tidepool/checkpoint.h"

namespace tidepool::test {
namespace {

using model::testing::Tensor;

// In a directory whose name nothing had before: a test that was killed leaves its own behind.
class TemporaryModel {
 public:
  explicit TemporaryModel(const std::string& name) : path_(directory_ / name) {}
  const std::string& path() const { return path_; }

 private:
  model::testing::TemporaryDirectory directory_;
  std::string path_;
};

class Tiny : public TemporaryModel {
 public:
  Tiny() : TemporaryModel("tiny") {
    MakeModelOptions options;
    options.preset = "tiny";
    options.out = path();
    options.seed = 7;
    options.num_threads = 1;
    make_model(options);
  }
};

void set_bf16(Tensor& tensor, size_t index, float value) {
  const uint16_t bits = f32_to_bf16(value);
  std::memcpy(&tensor.bytes[index * 2], &bits, 2);
}

void scale(Tensor& tensor, float factor) {
  for (size_t i = 0; i < tensor.bytes.size() / 2; ++i)
    set_bf16(tensor, i, factor * model::testing::value_of(tensor, i));
}

// The embedding passes as it is, the hidden state a little.
void let_embedding_pass(Tensor& eh_proj) {
  constexpr float kHiddenShare = 0.2f;
  const auto width = static_cast<size_t>(eh_proj.info.shape[0]);
  for (size_t row = 0; row < width; ++row) {
    for (size_t i = 0; i < 2 * width; ++i) {
      const size_t at = row * 2 * width + i;
      const float hidden = kHiddenShare * model::testing::value_of(eh_proj, at);
      set_bf16(eh_proj, at, i >= width ? hidden : i == row ? 1.0f : 0.0f);
    }
  }
}

class Accepting : public TemporaryModel {
 public:
  explicit Accepting(bool shares_index) : TemporaryModel(shares_index ? "accepting" : "accepting-unshared") {
    constexpr float kLayerShare = 0.1f;
    model::Config config = model::preset_config("tiny");
    config.vocab_size = 64;
    config.index_share_for_mtp_iteration = shares_index;
    model::MakeModelOptions options;
    options.seed = 7;
    model::make_model(config, path(), options);
    auto tensors = model::testing::read_tensors(path());
    for (Tensor& tensor : tensors) {
      const std::string& name = tensor.info.name;
      if (name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight")) scale(tensor, kLayerShare);
      if (name.ends_with("eh_proj.weight")) let_embedding_pass(tensor);
    }
    model::testing::write_checkpoint(path(), config, tensors);
  }
};

}  // namespace

const std::string& tiny_model() {
  static const Tiny model;
  return model.path();
}

const std::string& accepting_model(bool shares_index) {
  if (shares_index) {
    static const Accepting model(true);
    return model.path();
  }
  static const Accepting model(false);
  return model.path();
}

}  // namespace tidepool::test
