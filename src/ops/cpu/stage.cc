#include "tidepool/ops/stage.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "ops/accesses.h"

namespace tidepool::ops {
namespace {

using device::AccessList;
using device::Cost;

int32_t record_of(const int32_t* block_table, int32_t max_blocks, int32_t block_size, int32_t slot, int32_t position) {
  return block_table[static_cast<int64_t>(slot) * max_blocks + position / block_size] * block_size +
         position % block_size;
}

int32_t list_pieces(const StageListParams& p) { return p.tile.rows[1] > p.tile.rows[0] ? 1 : 0; }

void mark_earlier(const StageTile& t, int32_t first) {
  for (int32_t row = t.rows[0]; row < t.rows[1]; ++row) {
    const int32_t* ids = t.topk_indices + static_cast<int64_t>(row - t.row_base) * t.topk;
    for (int32_t i = 0; i < t.topk && ids[i] >= 0 && ids[i] < first; ++i)
      t.seen[ids[i] / 64] |= uint64_t{1} << (ids[i] % 64);
  }
}

void run_list(const StageListParams& p, int32_t, int32_t) {
  const StageTile& t = p.tile;
  const int32_t slot = t.chunk[0], first = std::min(t.chunk[1], t.id_range);
  mark_earlier(t, first);
  int32_t count = 0;
  for (int32_t word = 0; word * 64 < first; ++word) {
    for (uint64_t bits = t.seen[word]; bits != 0; bits &= bits - 1) {
      const int32_t position = word * 64 + std::countr_zero(bits);
      if (count == t.stage_capacity) {  // tiles are sized so that this cannot happen; never write past the buffer
        set_status(&t.status[slot], RequestStatus::kBadPosition);
        continue;
      }
      t.copies[count] = {record_of(t.block_table, t.max_blocks, t.block_size, slot, position),
                         t.chunk_capacity + count};
      t.index_of[position] = t.chunk_capacity + count++;
    }
    t.seen[word] = 0;
  }
  *t.num_copies = count;
}

void declare_tile_inputs(const StageTile& t, AccessList& list) {
  const int64_t rows = t.rows[1] - t.rows[0];
  list.read(t.topk_indices + static_cast<int64_t>(t.rows[0] - t.row_base) * t.topk, rows * t.topk * sizeof(int32_t));
}

void declare_list(const StageListParams& p, AccessList& list) {
  const StageTile& t = p.tile;
  declare_tile_inputs(t, list);
  list.write(t.seen, static_cast<size_t>((t.id_range + 63) / 64) * sizeof(uint64_t));
  list.write(t.index_of, static_cast<size_t>(t.id_range) * sizeof(int32_t));
  list.write(t.copies, static_cast<size_t>(t.stage_capacity) * sizeof(RowCopy));
  list.write(t.num_copies, sizeof(int32_t));
  list.write(t.status + t.chunk[0], sizeof(int32_t));
}

Cost list_cost(const StageListParams& p) {
  const uint64_t rows = static_cast<uint64_t>(p.tile.rows[1] - p.tile.rows[0]);
  return {rows * p.tile.topk * sizeof(int32_t), 0, 0, 0};
}

int32_t locate_pieces(const StageLocateParams& p) { return p.tile.rows[1] - p.tile.rows[0]; }

void run_locate(const StageLocateParams& p, int32_t piece, int32_t) {
  const StageTile& t = p.tile;
  const int64_t row = t.rows[0] - t.row_base + piece;
  const int32_t first = t.chunk[1];
  const int32_t* ids = t.topk_indices + row * t.topk;
  RowLocation* out = t.locations + row * t.topk;
  for (int32_t i = 0; i < t.topk; ++i) {
    if (ids[i] < 0) {
      out[i] = {Place::kNone, 0};
    } else {
      out[i] = {Place::kStaging, ids[i] >= first ? ids[i] - first : t.index_of[ids[i]]};
    }
  }
}

void declare_locate(const StageLocateParams& p, AccessList& list) {
  const StageTile& t = p.tile;
  declare_tile_inputs(t, list);
  list.read(t.index_of, static_cast<size_t>(t.id_range) * sizeof(int32_t));
  const int64_t rows = t.rows[1] - t.rows[0];
  list.write(t.locations + static_cast<int64_t>(t.rows[0] - t.row_base) * t.topk, rows * t.topk * sizeof(RowLocation));
}

Cost locate_cost(const StageLocateParams& p) {
  const uint64_t entries = static_cast<uint64_t>(p.tile.rows[1] - p.tile.rows[0]) * p.tile.topk;
  return {entries * sizeof(int32_t), entries * sizeof(RowLocation), 0, 0};
}

int32_t fetch_pieces(const StageFetchParams& p) { return (*p.num_copies + kStageSlice - 1) / kStageSlice; }

void run_fetch(const StageFetchParams& p, int32_t piece, int32_t) {
  const int32_t begin = piece * kStageSlice;
  const int32_t count = std::min(kStageSlice, *p.num_copies - begin);
  std::atomic_ref<int64_t>(*p.fetched_rows).fetch_add(count, std::memory_order_relaxed);
  RowTransfer transfer;
  transfer.group = p.group;
  transfer.layer_in_group = p.layer_in_group;
  transfer.copies = p.copies + begin;
  transfer.count = count;
  transfer.device = p.staging;
  transfer.status = p.status + p.chunk[0];
  p.store->fetch(transfer, *p.done);
}

// The list is made by an earlier operation of the same step, so what is declared is all it can name: the whole stage
// part, and every record of the layer before the chunk. Status words are not declared (plan_format.h).
void declare_fetch(const StageFetchParams& p, AccessList& list) {
  list.read(p.copies, static_cast<size_t>(p.stage_capacity) * sizeof(RowCopy));
  list.read(p.num_copies, sizeof(int32_t));
  declare_rows(list, p.staging, p.chunk_capacity, p.stage_capacity, Mode::kWrite);
  if (p.chunk[0] >= 0) {
    declare_records(list, *p.store, p.group, p.layer_in_group,
                    p.block_table + static_cast<int64_t>(p.chunk[0]) * p.max_blocks, p.max_blocks, p.block_size, 0,
                    p.chunk[1], Mode::kRead);
  }
  list.write(p.fetched_rows, sizeof(int64_t));
}

Cost fetch_cost(const StageFetchParams& p) {
  const uint64_t bytes =
      static_cast<uint64_t>(*p.num_copies) * static_cast<uint64_t>(p.staging.latent.bytes + p.staging.rope.bytes);
  return {0, bytes, bytes, 0};
}

int32_t resident_pieces(const LocateResidentParams& p) { return p.rows[1] - p.rows[0]; }

void run_resident(const LocateResidentParams& p, int32_t piece, int32_t) {
  const int64_t row = p.rows[0] + piece;
  const int32_t slot = p.cache_slot[row];
  const int32_t* ids = p.topk_indices + row * p.topk;
  RowLocation* out = p.locations + row * p.topk;
  for (int32_t i = 0; i < p.topk; ++i) {
    if (ids[i] < 0 || slot < 0) {
      out[i] = {Place::kNone, 0};
    } else {
      out[i] = {Place::kResident, record_of(p.block_table, p.max_blocks, p.block_size, slot, ids[i])};
    }
  }
}

void declare_resident(const LocateResidentParams& p, AccessList& list) {
  const int64_t rows = p.rows[1] - p.rows[0];
  list.read(p.topk_indices + static_cast<int64_t>(p.rows[0]) * p.topk, rows * p.topk * sizeof(int32_t));
  list.write(p.locations + static_cast<int64_t>(p.rows[0]) * p.topk, rows * p.topk * sizeof(RowLocation));
}

Cost resident_cost(const LocateResidentParams& p) {
  const uint64_t entries = static_cast<uint64_t>(p.rows[1] - p.rows[0]) * p.topk;
  return {entries * sizeof(int32_t), entries * sizeof(RowLocation), 0, 0};
}

}  // namespace

const device::OpType& stage_list() {
  static constexpr device::OpType kType =
      device::make_op_type<StageListParams, list_pieces, run_list, declare_list, list_cost>("stage_list",
                                                                                            device::Part::kPlan);
  return kType;
}

const device::OpType& stage_locate() {
  static constexpr device::OpType kType =
      device::make_op_type<StageLocateParams, locate_pieces, run_locate, declare_locate, locate_cost>(
          "stage_locate", device::Part::kPlan);
  return kType;
}

const device::OpType& stage_fetch() {
  static constexpr device::OpType kType =
      device::make_op_type<StageFetchParams, fetch_pieces, run_fetch, declare_fetch, fetch_cost>("stage_fetch",
                                                                                                 device::Part::kServe);
  return kType;
}

const device::OpType& locate_resident() {
  static constexpr device::OpType kType =
      device::make_op_type<LocateResidentParams, resident_pieces, run_resident, declare_resident, resident_cost>(
          "locate_resident", device::Part::kPlan);
  return kType;
}

}  // namespace tidepool::ops
