// Query rows that are attended together: which cache rows the lists of one block have in common.
#pragma once

#include <cstdint>

#include "nn/attention_walk.h"

namespace tidepool::nn {

struct SharedRows {
  int32_t num_rows = 0;                              // distinct cache rows
  int32_t num_entries[kMaxSharedRows] = {};          // of each query row, skipped entries left out
  RowLocation at[kMaxSharedRows * kAttentionBlock];  // [num_rows] where each is read: where the first list has it
  uint16_t row_of[kMaxSharedRows][kAttentionBlock];  // [entry] -> its cache row

  int32_t total_entries() const {
    int32_t total = 0;
    for (int32_t n : num_entries) total += n;
    return total;
  }
};

// Entries [block * kAttentionBlock, ..) of query rows m .. m + count - 1, which belong to one request. Two entries are
// one cache row when their positions are equal or, without positions, when they are read from one place.
void share_rows(const SparseAttentionParams& p, int32_t m, int32_t count, int32_t block, SharedRows& rows);

}  // namespace tidepool::nn
