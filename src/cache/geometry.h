// Tokens <-> sets, ways, blocks, bytes. Nothing else does this arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/row_table.h"

namespace tidepool::cache {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t multiple) { return ceil_div(a, multiple) * multiple; }

struct PoolGeometry {
  int32_t pool_size = 0;  // rows per request and layer
  int32_t num_ways = 0;
  int32_t num_sets = 0;  // a power of two, at least 1
  // Throws Error naming the value and the rule when pool_size is not num_sets x num_ways with num_sets a power of two.
  static PoolGeometry make(int32_t pool_size, int32_t num_ways);
  // A pool that holds a whole request gains nothing from more; up to the published 16,384 rows any may be asked for.
  static int64_t most_rows(int32_t num_ways, int32_t max_model_len);
};

// How the records of one layer group lie in a store. A record holds the rows of one token in all layers of the group.
// In memory: one record a unit, rounded up to 64 bytes (a cache line), so one-layer bf16 records of 1,152 bytes stay
// dense. In a file (for the disk store): records are aligned to 512-byte sectors; records of at most 2,048 bytes share
// 4,096-byte units (three 1,152-byte records a unit) and never straddle one, because a disk read costs the same for a
// part of a unit.
struct RecordLayout {
  int64_t record_bytes = 0;  // payload
  int64_t unit_bytes = 0;
  int32_t records_per_unit = 1;
  int64_t stride_in_unit = 0;

  static RecordLayout in_memory(int32_t num_layers, int32_t row_bytes);
  static RecordLayout in_file(int32_t num_layers, int32_t row_bytes);
  constexpr int64_t offset(int64_t record) const {
    return record / records_per_unit * unit_bytes + record % records_per_unit * stride_in_unit;
  }
  constexpr int64_t bytes(int64_t num_records) const { return ceil_div(num_records, records_per_unit) * unit_bytes; }
};

// Layer -> (group, index in it), from the groups.
struct LayerPlace {
  int32_t group = 0;
  int32_t index = 0;
  bool is_owner = false;
  bool is_last = false;
};
std::vector<LayerPlace> layer_places(const std::vector<std::vector<int32_t>>& groups, int32_t num_layers);

}  // namespace tidepool::cache
