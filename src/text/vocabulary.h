// The tokens of a model: id <-> token string, the bytes each decodes to, and which are special. Ids may have gaps.
//
// Filled once while loading, then immutable and thread safe. Not copyable. Views it returns live as long as it does.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tidepool::text {

class Vocabulary {
 public:
  static constexpr int64_t kMaxSize = int64_t{1}
                                      << 22;  // far above any model's; bounds the memory a bad file can ask for

  Vocabulary() = default;
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // Throws when the token or the id is taken, or the id lies outside 0 .. kMaxSize - 1. `where` names the place.
  void add(std::string token, int64_t id, std::string_view where);
  // The tokens so far are the model's own; later ones are found by find, not by find_in_model.
  void close_model() { num_model_tokens_ = entries_.size(); }
  // Requires contains(id).
  void mark_special(int32_t id) { entry(id).is_special = true; }

  int32_t size() const { return static_cast<int32_t>(entry_of_id_.size()); }  // largest id + 1
  bool contains(int64_t id) const { return id >= 0 && id < size() && entry_of_id_[static_cast<size_t>(id)] >= 0; }
  std::optional<int32_t> find(std::string_view token) const;
  std::optional<int32_t> find_in_model(std::string_view token) const;

  // These require contains(id).
  const std::string& token(int32_t id) const { return entry(id).token; }
  // What the token decodes to: its bytes in the byte-level alphabet, or its own UTF-8 when it is not written in that.
  const std::string& bytes(int32_t id) const { return entry(id).bytes; }
  bool is_special(int32_t id) const { return entry(id).is_special; }

 private:
  struct Entry {
    std::string token;
    std::string bytes;
    bool is_special = false;
  };
  const Entry& entry(int32_t id) const { return entries_[static_cast<size_t>(entry_of_id_[static_cast<size_t>(id)])]; }
  Entry& entry(int32_t id) { return entries_[static_cast<size_t>(entry_of_id_[static_cast<size_t>(id)])]; }

  std::deque<Entry> entries_;         // a deque, because id_of_ refers to its strings
  size_t num_model_tokens_ = 0;       // the first of entries_
  std::vector<int32_t> entry_of_id_;  // [size()], -1 in gaps
  std::unordered_map<std::string_view, int32_t> id_of_;
};

}  // namespace tidepool::text
