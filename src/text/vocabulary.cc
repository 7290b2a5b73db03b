#include "text/vocabulary.h"

#include "base/check.h"
#include "text/byte_level.h"

namespace tidepool::text {

void Vocabulary::add(std::string token, int64_t id, std::string_view where) {
  tidepool_check(id >= 0 && id < kMaxSize, "{}: id {} of token \"{}\" lies outside 0 .. {}", where, id, token,
                 kMaxSize - 1);
  tidepool_check(!contains(id), "{}: id {} belongs to two tokens, \"{}\" and \"{}\"", where, id,
                 entry(static_cast<int32_t>(id)).token, token);
  tidepool_check(!find(token), "{}: token \"{}\" occurs twice", where, token);
  auto index = static_cast<size_t>(id);
  if (index >= entry_of_id_.size()) entry_of_id_.resize(index + 1, -1);
  entry_of_id_[index] = static_cast<int32_t>(entries_.size());
  std::string bytes = byte_level_bytes(token).value_or(token);
  entries_.push_back({std::move(token), std::move(bytes), false});
  id_of_.emplace(entries_.back().token, static_cast<int32_t>(id));
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  auto found = id_of_.find(token);
  if (found == id_of_.end()) return std::nullopt;
  return found->second;
}

std::optional<int32_t> Vocabulary::find_in_model(std::string_view token) const {
  auto id = find(token);
  if (!id || static_cast<size_t>(entry_of_id_[static_cast<size_t>(*id)]) >= num_model_tokens_) return std::nullopt;
  return id;
}

}  // namespace tidepool::text
