// Where the rows of a prompt chunk's selections lie (prefill), and where resident rows lie (route off).
//
// Prefill of a chunk [first, first + count) with the cache in host memory: rows of the chunk itself lie in the chunk
// part of the staging buffer (row position - first), earlier rows are fetched behind it, each once per tile of queries.
// stage_list names them, stage_locate fills in the locations, stage_fetch (once per layer) brings them.
#pragma once

#include "tidepool/op.h"
#include "tidepool/ops/plan_format.h"
#include "tidepool/ops/row_store.h"
#include "tidepool/row_table.h"

namespace tidepool::ops {

// One tile of queries of a chunk. Everything that varies is behind pointers.
struct StageTile {
  const int32_t* rows = nullptr;   // [2] begin and end row of the tile, in rows of the step
  int32_t row_base = 0;            // topk_indices, num_selected and locations are indexed by row - row_base
  const int32_t* chunk = nullptr;  // [3] cache slot, first position, count
  int32_t topk = 0;
  const int32_t* topk_indices = nullptr;  // [.., topk] ascending, -1 as suffix
  int32_t stage_capacity = 0;             // rows that fit behind the chunk part
  int32_t chunk_capacity = 0;             // rows of the chunk part
  RowCopy* copies = nullptr;              // [stage_capacity] record -> staging row, ascending position
  int32_t* num_copies = nullptr;          // [1]
  RowLocation* locations = nullptr;       // [.., topk]
  // Workspace: all zero before and after / undefined.
  uint64_t* seen = nullptr;     // [ceil(id_range / 64)]
  int32_t* index_of = nullptr;  // [id_range] staging row of a position
  int32_t id_range = 0;
  const int32_t* block_table = nullptr;  // [num_cache_slots, max_blocks]
  int32_t max_blocks = 0;
  int32_t block_size = 0;
  int32_t* status = nullptr;  // [num_cache_slots]
};
struct StageListParams {
  StageTile tile;
};
const device::OpType& stage_list();  // one piece
struct StageLocateParams {
  StageTile tile;
};
const device::OpType& stage_locate();  // one piece per row; after stage_list

struct StageFetchParams {
  const int32_t* chunk = nullptr;        // [3]
  const int32_t* block_table = nullptr;  // [num_cache_slots, max_blocks], for declare()
  int32_t max_blocks = 0;
  int32_t block_size = 0;
  const RowCopy* copies = nullptr;
  const int32_t* num_copies = nullptr;
  RowStore* store = nullptr;
  int32_t group = 0, layer_in_group = 0;
  RowPlanes staging;
  int32_t stage_capacity = 0;
  int32_t chunk_capacity = 0;
  int32_t* status = nullptr;        // [num_cache_slots]
  int64_t* fetched_rows = nullptr;  // [1] added to
  device::Event* done = nullptr;
};
inline constexpr int32_t kStageSlice = 64;
const device::OpType& stage_fetch();  // asynchronous; pieces of kStageSlice rows

// Locations of rows that all lie on the device: {kResident, block_table[slot][p / block_size] * block_size + p %
// block_size}.
struct LocateResidentParams {
  const int32_t* rows = nullptr;  // [2]
  int32_t max_rows = 0;
  int32_t topk = 0;
  const int32_t* cache_slot = nullptr;    // [max_rows]
  const int32_t* topk_indices = nullptr;  // [max_rows, topk]
  const int32_t* block_table = nullptr;   // [num_cache_slots, max_blocks]
  int32_t max_blocks = 0;
  int32_t block_size = 0;
  RowLocation* locations = nullptr;  // [max_rows, topk]
};
const device::OpType& locate_resident();  // one piece per row

}  // namespace tidepool::ops
