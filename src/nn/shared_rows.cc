#include "nn/shared_rows.h"

#include <algorithm>
#include <cstring>

namespace tidepool::nn {
namespace {

constexpr int32_t kMaxRows = kMaxSharedRows * kAttentionBlock;

// Keys -> numbers 0, 1, ... in order of first appearance.
class Numbering {
 public:
  Numbering() { std::memset(table_, 0xff, sizeof(table_)); }
  int32_t size() const { return size_; }
  // The neighbour of the number before is tried first: the lists of query rows mostly agree.
  int32_t number(uint64_t key, int32_t before) {
    if (before + 1 < size_ && keys_[before + 1] == key) return before + 1;
    uint32_t place = static_cast<uint32_t>((key * 0x9E3779B97F4A7C15u) >> 54);
    for (; table_[place] != kEmpty; place = (place + 1) % kPlaces) {
      if (keys_[table_[place]] == key) return table_[place];
    }
    table_[place] = static_cast<uint16_t>(size_);
    keys_[size_] = key;
    return size_++;
  }

 private:
  static constexpr uint32_t kPlaces = 1024;  // 2^(64 - 54), at least twice the keys
  static constexpr uint16_t kEmpty = 0xffff;
  uint16_t table_[kPlaces];
  uint64_t keys_[kMaxRows];
  int32_t size_ = 0;
};

}  // namespace

void share_rows(const SparseAttentionParams& p, int32_t m, int32_t count, int32_t block, SharedRows& rows) {
  Numbering numbering;
  rows.num_rows = 0;
  std::fill_n(rows.num_entries, kMaxSharedRows, 0);
  for (int32_t q = 0; q < count; ++q) {
    const int32_t begin = block * kAttentionBlock, end = std::min(begin + kAttentionBlock, p.num_selected[m + q]);
    const RowLocation* list = row_list(p, m + q);
    const int32_t* positions = p.positions == nullptr ? nullptr : p.positions + static_cast<int64_t>(m + q) * p.topk;
    int32_t row = -1, n = 0;
    for (int32_t i = begin; i < end; ++i) {
      if (list[i].place == Place::kNone) continue;
      const auto index = static_cast<uint32_t>(positions == nullptr ? list[i].index : positions[i]);
      const auto place = static_cast<uint64_t>(positions == nullptr ? list[i].place : Place::kNone);
      row = numbering.number(place << 32 | index, row);
      if (numbering.size() > rows.num_rows) rows.at[rows.num_rows++] = list[i];
      rows.row_of[q][n++] = static_cast<uint16_t>(row);
    }
    rows.num_entries[q] = n;
  }
}

}  // namespace tidepool::nn
