// The arrays of a dump file, filled as the steps of one request record them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/checkpoint.h"
#include "tidepool/engine.h"

namespace tidepool::cli {

// What the drafts of each step were, and what became of them. Needs nothing where there are none.
class DraftRecording {
 public:
  DraftRecording(const ModelInfo& model, int32_t num_drafts) : model_(model), num_drafts_(num_drafts) {}

  // In order. Of steps that propose drafts; the next step in which the request decodes says how many were accepted.
  void add(const StepResult& step);
  // Borrows from this object. Throws when the fate of some drafts is not known.
  void append(std::vector<NamedTensor>& tensors) const;

 private:
  ModelInfo model_;
  int32_t num_drafts_;
  int64_t num_steps_ = 0;
  std::vector<int64_t> draft_ids_;      // [steps][drafts]
  std::vector<int64_t> accepted_;       // [steps]
  std::vector<float> hidden_, logits_;  // [steps][hidden], [steps][vocab]
  std::vector<int32_t> topk_;           // [steps][index_topk]
};

class Recording {
 public:
  Recording(const ModelInfo& model, const std::vector<int32_t>& prompt, int32_t num_tokens, int32_t num_drafts);

  // Rows: the prompt, then one for each token fed back. Of a position that was computed more than once, because its
  // draft was not accepted, the last row stands; rows behind the last wanted position are left out.
  void add(const StepResult& step);
  bool has_all_rows() const { return num_rows_ == prompt_len_ + num_tokens_; }
  int64_t num_generated() const { return std::ssize(generated_ids_); }
  void write(const std::string& path) const;

 private:
  void add_row(const RowRecord& row);

  ModelInfo model_;
  int64_t prompt_len_, num_tokens_, num_rows_ = 0;  // rows: different positions
  std::vector<bool> has_row_;
  std::vector<int64_t> input_ids_, generated_ids_;
  std::vector<float> logits_;               // [rows][vocab]
  std::vector<std::vector<float>> hidden_;  // [layers][rows][hidden]
  std::vector<std::vector<int32_t>> topk_;  // [layers][rows][index_topk]; empty for shared layers
  DraftRecording drafts_;
};

}  // namespace tidepool::cli
