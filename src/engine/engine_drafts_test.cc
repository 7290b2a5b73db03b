// What drafts ask of a checkpoint.
#include <gtest/gtest.h>

#include "engine/engine_impl.h"
#include "model/make_model.h"
#include "model/presets.h"
#include "model/testing.h"

namespace tidepool {
namespace {

class EngineDrafts : public ::testing::Test {
 protected:
  std::string made(int32_t num_mtp_layers) {
    auto config = model::preset_config("tiny");
    config.num_mtp_layers = num_mtp_layers;
    config.index_share_for_mtp_iteration = num_mtp_layers > 0;
    const std::string path = directory_ / std::to_string(num_mtp_layers);
    model::make_model(config, path, {});
    return path;
  }
  static std::string refusal(const std::string& model, int32_t num_draft_tokens) {
    EngineOptions options;
    options.model = model;
    options.num_threads = 1;
    options.max_model_len = 64;
    options.num_draft_tokens = num_draft_tokens;
    return model::testing::error_of([&] { EngineImpl engine(options); });
  }
  model::testing::TemporaryDirectory directory_;
};

TEST_F(EngineDrafts, a_model_without_an_mtp_layer_drafts_nothing_and_says_so) {
  const std::string path = made(0);
  EXPECT_EQ(refusal(path, 0), "");
  EXPECT_EQ(refusal(path, 2), path +
                                  ": --num-draft-tokens 2 needs an MTP layer, and the model has none "
                                  "(num_nextn_predict_layers)");
}

TEST_F(EngineDrafts, a_checkpoint_without_the_tensors_of_its_mtp_layer_is_refused_when_they_are_needed) {
  const std::string path = made(0), config = model::testing::read_file(made(1) + "/config.json");
  model::testing::write_file(path + "/config.json", config);
  EXPECT_EQ(refusal(path, 0), "");
  EXPECT_EQ(refusal(path, 1), path +
                                  ": --num-draft-tokens 1 needs the tensors of the MTP layer, and the checkpoint has "
                                  "none of them");
}

TEST_F(EngineDrafts, more_than_three_or_less_than_none_are_refused) {
  const std::string path = made(1);
  EXPECT_EQ(refusal(path, 3), "");
  EXPECT_EQ(refusal(path, 4), "--num-draft-tokens 4: the value must be 0 to 3");
  EXPECT_EQ(refusal(path, -1), "--num-draft-tokens -1: the value must be 0 to 3");
}

}  // namespace
}  // namespace tidepool
