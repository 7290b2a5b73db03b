#include "ops/accesses.h"

#include <algorithm>

#include "ops/batch.h"
#include "ops/rows.h"
#include "ops/spill_turn.h"

namespace tidepool::ops {
namespace {

using device::AccessList;

void declare_bytes(AccessList& list, const void* base, int64_t bytes, Mode mode) {
  if (bytes <= 0) return;
  if (mode == Mode::kWrite) {
    list.write(base, static_cast<size_t>(bytes));
  } else {
    list.read(base, static_cast<size_t>(bytes));
  }
}

// Elements [first, first + count) of an array.
template <typename T>
void declare_part(AccessList& list, const T* array, int64_t first, int64_t count, Mode mode) {
  declare_bytes(list, array + first, count * static_cast<int64_t>(sizeof(T)), mode);
}

void declare_plane(AccessList& list, const RowPlane& plane, int64_t first, int64_t count, Mode mode) {
  if (plane.bytes == 0 || count <= 0) return;
  if (plane.stride == plane.bytes) {
    declare_bytes(list, plane.row(first), count * plane.bytes, mode);
    return;
  }
  // The bytes between the rows are another layer's: one range per row.
  for (int64_t i = first; i < first + count; ++i) declare_bytes(list, plane.row(i), plane.bytes, mode);
}

}  // namespace

void declare_rows(AccessList& list, const RowPlanes& planes, int64_t first, int64_t count, Mode mode) {
  if (is_joint(planes)) {
    declare_plane(list, {planes.latent.base, planes.latent.stride, planes.latent.bytes + planes.rope.bytes}, first,
                  count, mode);
    return;
  }
  declare_plane(list, planes.latent, first, count, mode);
  declare_plane(list, planes.rope, first, count, mode);
}

namespace {

// Rows base + (p - origin) % rows of positions p in [begin, end).
void declare_ring(AccessList& list, const RowPlanes& planes, int64_t base, int64_t origin, int64_t rows, int64_t begin,
                  int64_t end, Mode mode) {
  if (end <= begin) return;
  if (end - begin >= rows) {
    declare_rows(list, planes, base, rows, mode);
    return;
  }
  const int64_t first = (begin - origin) % rows;
  const int64_t before_wrap = std::min(end - begin, rows - first);
  declare_rows(list, planes, base + first, before_wrap, mode);
  declare_rows(list, planes, base, end - begin - before_wrap, mode);
}

}  // namespace

void declare_records(AccessList& list, const RowStore& store, int32_t group, int32_t layer_in_group,
                     const int32_t* blocks, int32_t max_blocks, int32_t block_size, int64_t begin, int64_t end,
                     Mode mode) {
  end = std::min(end, static_cast<int64_t>(max_blocks) * block_size);
  if (end <= begin) return;
  const uint64_t space = store.resource(group, layer_in_group);
  const int64_t first_block = begin / block_size;
  declare_part(list, blocks, first_block, (end - 1) / block_size - first_block + 1, Mode::kRead);
  for (int64_t at = begin; at < end;) {
    const int64_t block = at / block_size;
    const int64_t stop = std::min(end, (block + 1) * block_size);
    if (blocks[block] >= 0) {
      const int64_t record = static_cast<int64_t>(blocks[block]) * block_size + at % block_size;
      const auto from = static_cast<uint64_t>(record), to = static_cast<uint64_t>(record + stop - at);
      if (mode == Mode::kWrite) {
        list.write_resource(space, from, to);
      } else {
        list.read_resource(space, from, to);
      }
    }
    at = stop;
  }
}

namespace {

void declare_batch(AccessList& list, const DecodeBatch& batch) {
  declare_part(list, batch.num_rows, 0, 1, Mode::kRead);
  declare_part(list, batch.cache_slot, 0, batch.max_rows, Mode::kRead);
}

void declare_batch_lengths(AccessList& list, const DecodeBatch& batch) {
  declare_part(list, batch.seq_len, 0, batch.max_rows, Mode::kRead);
  declare_part(list, batch.spilled_len, 0, batch.max_rows, Mode::kRead);
  if (batch.final_len != nullptr) declare_part(list, batch.final_len, 0, batch.max_rows, Mode::kRead);
}

}  // namespace

void declare_plan(const PlanParams& p, AccessList& list) {
  declare_batch(list, p.batch);
  declare_batch_lengths(list, p.batch);
  declare_part(list, p.num_records, 0, p.batch.max_rows, Mode::kWrite);
  declare_part(list, p.num_unique_misses, 0, p.batch.max_rows, Mode::kWrite);
  const int64_t entries = static_cast<int64_t>(p.batch.q_len) * p.topk;
  for (int32_t b = 0; b < p.batch.max_rows; ++b) {
    const int64_t slot = active_slot(p.batch, b);
    if (slot < 0) continue;
    declare_part(list, p.topk_indices, b * entries, entries, Mode::kRead);
    declare_part(list, p.state.slot_of_token, slot * p.state.id_range, p.state.id_range, Mode::kRead);
    declare_part(list, p.state.slot_state, slot * p.state.pool_size(), p.state.pool_size(), Mode::kRead);
    declare_part(list, p.state.generation, slot, 1, Mode::kRead);
    declare_part(list, p.plan, b * entries, entries, Mode::kWrite);
    declare_part(list, p.valid_len, static_cast<int64_t>(b) * p.batch.q_len, p.batch.q_len, Mode::kWrite);
    declare_part(list, p.records, b * entries, entries, Mode::kWrite);
    declare_part(list, p.unique_misses, b * entries, entries, Mode::kWrite);
    declare_part(list, p.seen, b * bitset_words(p.state.id_range), bitset_words(p.state.id_range), Mode::kWrite);
    declare_part(list, p.counts, slot * 4, 4, Mode::kWrite);
  }
}

namespace {

// Rows of the ring and of the host store that a step may want for batch row b.
template <typename Params>
void declare_sources(AccessList& list, const Params& p, int32_t b, int64_t slot) {
  // Wanted from the ring: what is newer than the final bound or not spilled yet, as far as the ring still has it.
  const int64_t seq_len = p.batch.seq_len[b], spilled_len = std::max(p.batch.spilled_len[b], 0);
  int64_t newest_final = final_bound(p.batch, b);
  if (list.every_step()) newest_final = std::min(newest_final, seq_len - 2);
  const int64_t oldest = std::max({std::min(newest_final + 1, spilled_len), seq_len - p.window_rows, int64_t{0}});
  declare_ring(list, p.window, slot * p.window_rows, 0, p.window_rows, oldest, seq_len, Mode::kRead);
  const int64_t end = list.every_step() ? std::max<int64_t>(spilled_len, 1) : spilled_len;
  declare_records(list, *p.store, p.group, p.layer_in_group, p.block_table + slot * p.max_blocks, p.max_blocks,
                  p.block_size, 0, end, Mode::kRead);
}

}  // namespace

void declare_serve(const ServeParams& p, AccessList& list) {
  declare_batch(list, p.batch);
  declare_batch_lengths(list, p.batch);
  const int64_t entries = static_cast<int64_t>(p.batch.q_len) * p.topk;
  for (int32_t b = 0; b < p.batch.max_rows; ++b) {
    const int64_t slot = active_slot(p.batch, b);
    if (slot < 0) continue;
    declare_part(list, p.plan, b * entries, entries, Mode::kRead);
    declare_rows(list, p.pool, slot * p.pool_size, p.pool_size, Mode::kRead);
    declare_sources(list, p, b, slot);
    declare_rows(list, p.selection, b * entries, entries, Mode::kWrite);
    declare_part(list, p.locations, b * entries, entries, Mode::kWrite);
    declare_part(list, p.copies, b * entries, entries, Mode::kWrite);
    declare_part(list, p.fetched_rows, slot, 1, Mode::kWrite);
  }
}

void declare_gather(const GatherParams& p, AccessList& list) {
  declare_batch(list, p.batch);
  declare_batch_lengths(list, p.batch);
  const int64_t q_len = p.batch.q_len, entries = q_len * p.topk;
  for (int32_t b = 0; b < p.batch.max_rows; ++b) {
    const int64_t slot = active_slot(p.batch, b);
    if (slot < 0) continue;
    declare_part(list, p.topk_indices, b * entries, entries, Mode::kRead);
    declare_sources(list, p, b, slot);
    // Which places change depends on what lies there: the whole selections of the queries of the step.
    const int64_t query = slot * p.status_queries;
    declare_part(list, p.place_status, query * (p.topk + 1), q_len * (p.topk + 1), Mode::kWrite);
    declare_rows(list, p.selection, query * p.topk, entries, Mode::kWrite);
    declare_part(list, p.locations, b * entries, entries, Mode::kWrite);
    declare_part(list, p.copies, b * entries, entries, Mode::kWrite);
    declare_part(list, p.scratch, b * entries * kGatherScratch, entries * kGatherScratch, Mode::kWrite);
    declare_part(list, p.fetched_rows, slot, 1, Mode::kWrite);
    if (p.counts != nullptr) declare_part(list, p.counts, slot * 4, 4, Mode::kWrite);
  }
}

void declare_gather_reset(const GatherResetParams& p, AccessList& list) {
  declare_part(list, p.num_slots, 0, 1, Mode::kRead);
  const int32_t count = used_rows(*p.num_slots, p.num_cache_slots);
  declare_part(list, p.slots, 0, count, Mode::kRead);
  const int64_t words = static_cast<int64_t>(p.status_queries) * (p.topk + 1);
  for (int32_t i = 0; i < count; ++i) {
    const int64_t slot = p.slots[i];
    if (slot < 0 || slot >= p.num_cache_slots) continue;
    declare_part(list, p.place_status, slot * words, words, Mode::kWrite);
  }
}

void declare_install(const InstallParams& p, AccessList& list) {
  declare_batch(list, p.batch);
  const GroupState& state = p.state;
  const int64_t entries = static_cast<int64_t>(p.batch.q_len) * p.topk;
  for (int32_t b = 0; b < p.batch.max_rows; ++b) {
    const int64_t slot = active_slot(p.batch, b);
    if (slot < 0) continue;
    declare_part(list, p.num_records, b, 1, Mode::kRead);
    declare_part(list, p.records, b * entries, entries, Mode::kRead);
    declare_rows(list, p.selection, b * entries, entries, Mode::kRead);
    declare_rows(list, p.pool, slot * state.pool_size(), state.pool_size(), Mode::kWrite);
    declare_part(list, p.seen, b * bitset_words(state.id_range), bitset_words(state.id_range), Mode::kWrite);
    declare_part(list, p.cursor_copy, static_cast<int64_t>(b) * state.num_sets, state.num_sets, Mode::kWrite);
    const Mode metadata = p.metadata_update != 0 ? Mode::kWrite : Mode::kRead;
    declare_part(list, state.cursor, slot * state.num_sets, state.num_sets, metadata);
    if (p.metadata_update == 0) continue;
    declare_part(list, state.slot_of_token, slot * state.id_range, state.id_range, Mode::kWrite);
    declare_part(list, state.token_of_slot, slot * state.pool_size(), state.pool_size(), Mode::kWrite);
    declare_part(list, state.slot_state, slot * state.pool_size(), state.pool_size(), Mode::kWrite);
    declare_part(list, state.generation, slot, 1, Mode::kRead);
    declare_part(list, p.counts, slot * 3, 3, Mode::kWrite);
  }
}

void declare_reset(const ResetParams& p, AccessList& list) {
  const GroupState& state = p.state;
  declare_part(list, p.num_slots, 0, 1, Mode::kRead);
  const int32_t count = used_rows(*p.num_slots, state.num_cache_slots);
  declare_part(list, p.slots, 0, count, Mode::kRead);
  for (int32_t i = 0; i < count; ++i) {
    const int64_t slot = p.slots[i];
    if (slot < 0 || slot >= state.num_cache_slots) continue;
    declare_part(list, state.slot_of_token, slot * state.id_range, state.id_range, Mode::kWrite);
    declare_part(list, state.token_of_slot, slot * state.pool_size(), state.pool_size(), Mode::kWrite);
    declare_part(list, state.slot_state, slot * state.pool_size(), state.pool_size(), Mode::kWrite);
    declare_part(list, state.cursor, slot * state.num_sets, state.num_sets, Mode::kWrite);
  }
}

void declare_spill(const SpillParams& params, AccessList& list) {
  const SpillParams p = at_turn(params, list.about_to_run());
  if (params.turn != nullptr) declare_part(list, params.turn, 0, 1, Mode::kRead);
  declare_part(list, p.num_rows, 0, 1, Mode::kRead);
  const int32_t rows = used_rows(*p.num_rows, p.max_rows);
  for (const int32_t* array : {p.cache_slot, p.first, p.count, p.source_base, p.source_origin, p.source_rows}) {
    declare_part(list, array, 0, rows, Mode::kRead);
  }
  int64_t copies = 0;
  for (int32_t b = 0; b < rows; ++b) {
    const int64_t slot = p.cache_slot[b], count = p.count[b];
    if (slot < 0 || count <= 0) continue;
    const int64_t begin = std::max({p.first[b], p.source_origin[b], 0}), end = p.first[b] + count;
    if (copies + count <= p.max_copies && p.source_rows[b] > 0) {
      declare_part(list, p.copies, copies, count, Mode::kWrite);
      declare_ring(list, p.source, p.source_base[b], p.source_origin[b], p.source_rows[b], begin, end, Mode::kRead);
      declare_records(list, *p.store, p.group, p.layer_in_group, p.block_table + slot * p.max_blocks, p.max_blocks,
                      p.block_size, begin, end, Mode::kWrite);
    }
    copies += count;
  }
}

}  // namespace tidepool::ops
