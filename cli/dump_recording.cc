#include "dump_recording.h"

#include <algorithm>

#include "base/check.h"

namespace tidepool::cli {
namespace {

template <typename T>
void check_width(const std::vector<T>& row, int64_t width) {
  tidepool_check(std::ssize(row) == width, "a recorded row has {} values, not {}", row.size(), width);
}

template <typename T>
void copy(const std::vector<T>& from, std::vector<T>& to, int64_t row, int64_t width) {
  check_width(from, width);
  std::copy(from.begin(), from.end(), to.begin() + row * width);
}

template <typename From, typename To>
void append(const std::vector<From>& from, std::vector<To>& to, int64_t width) {
  check_width(from, width);
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

void DraftRecording::add(const StepResult& step) {
  if (step.decode_tokens > 0 && std::ssize(accepted_) < num_steps_) accepted_.push_back(step.accepted_tokens);
  for (const DraftRecord& record : step.drafts) {
    cli::append(record.draft_ids, draft_ids_, num_drafts_);
    cli::append(record.hidden, hidden_, model_.hidden_size);
    cli::append(record.logits, logits_, model_.vocab_size);
    cli::append(record.topk, topk_, model_.index_topk);
    ++num_steps_;
  }
}

void DraftRecording::append(std::vector<NamedTensor>& tensors) const {
  if (num_drafts_ == 0) return;
  tidepool_check(std::ssize(accepted_) == num_steps_, "the run recorded drafts of {} steps, and the fate of {}",
                 num_steps_, accepted_.size());
  tensors.push_back({"draft_ids", DType::kI64, {num_steps_, num_drafts_}, draft_ids_.data()});
  tensors.push_back({"accepted", DType::kI64, {num_steps_}, accepted_.data()});
  tensors.push_back({"draft_hidden", DType::kF32, {num_steps_, model_.hidden_size}, hidden_.data()});
  tensors.push_back({"draft_logits", DType::kF32, {num_steps_, model_.vocab_size}, logits_.data()});
  tensors.push_back({"draft_topk", DType::kI32, {num_steps_, model_.index_topk}, topk_.data()});
}

Recording::Recording(const ModelInfo& model, const std::vector<int32_t>& prompt, int32_t num_tokens, int32_t num_drafts)
    : model_(model), prompt_len_(std::ssize(prompt)), num_tokens_(num_tokens), drafts_(model, num_drafts) {
  input_ids_.assign(prompt.begin(), prompt.end());
  const auto rows = static_cast<size_t>(prompt_len_ + num_tokens);
  const auto layers = static_cast<size_t>(model.num_layers);
  has_row_.resize(rows);
  logits_.resize(rows * static_cast<size_t>(model.vocab_size));
  hidden_.assign(layers, std::vector<float>(rows * static_cast<size_t>(model.hidden_size)));
  topk_.resize(layers);
  for (size_t layer = 0; layer < layers; ++layer) {
    if (model.is_full[layer]) topk_[layer].resize(rows * static_cast<size_t>(model.index_topk));
  }
}

void Recording::add(const StepResult& step) {
  for (const RowRecord& row : step.rows) add_row(row);
  for (const Output& out : step.outputs) {
    // The last row makes at least one token more than is wanted.
    if (out.token >= 0 && num_generated() < num_tokens_) generated_ids_.push_back(out.token);
  }
  drafts_.add(step);
}

void Recording::add_row(const RowRecord& row) {
  tidepool_check(row.position >= 0, "the run recorded position {}", row.position);
  if (row.position >= prompt_len_ + num_tokens_) return;
  copy(row.logits, logits_, row.position, model_.vocab_size);
  for (size_t layer = 0; layer < hidden_.size(); ++layer) {
    copy(row.hidden.at(layer), hidden_[layer], row.position, model_.hidden_size);
    if (!topk_[layer].empty()) copy(row.topk.at(layer), topk_[layer], row.position, model_.index_topk);
  }
  const auto at = static_cast<size_t>(row.position);
  num_rows_ += !has_row_[at];
  has_row_[at] = true;
}

void Recording::write(const std::string& path) const {
  const int64_t rows = prompt_len_ + num_tokens_, vocab = model_.vocab_size;
  std::vector<NamedTensor> tensors{
      {"input_ids", DType::kI64, {prompt_len_}, input_ids_.data()},
      {"generated_ids", DType::kI64, {num_tokens_}, generated_ids_.data()},
      {"logits.prefill", DType::kF32, {prompt_len_, vocab}, logits_.data()},
      {"logits.decode", DType::kF32, {num_tokens_, vocab}, logits_.data() + prompt_len_ * vocab}};
  for (size_t layer = 0; layer < hidden_.size(); ++layer) {
    tensors.push_back(
        {fmt::format("hidden.{}", layer), DType::kF32, {rows, model_.hidden_size}, hidden_[layer].data()});
  }
  for (size_t layer = 0; layer < topk_.size(); ++layer) {
    if (topk_[layer].empty()) continue;
    tensors.push_back({fmt::format("topk.{}", layer), DType::kI32, {rows, model_.index_topk}, topk_[layer].data()});
  }
  drafts_.append(tensors);
  write_safetensors(path, tensors);
}

}  // namespace tidepool::cli
