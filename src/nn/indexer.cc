// The operators of the indexer: grids, declared accesses, costs. The arithmetic is in ref/ and cpu/.
#include "nn/indexer.h"

#include "nn/key_walk.h"

namespace tidepool::nn {
namespace {

size_t floats(int64_t n) { return static_cast<size_t>(n) * sizeof(float); }

int32_t num_prepare_pieces(const IndexPrepareParams& p) {
  return (p.rows.count() + kPrepareRowsPerPiece - 1) / kPrepareRowsPerPiece;
}

void declare_prepare(const IndexPrepareParams& p, device::AccessList& list) {
  list.read(p.rows.range, 2 * sizeof(int32_t));
  const int64_t begin = p.rows.begin(), count = p.rows.count(), dim = p.keys.dim, half = p.rope_dim / 2;
  if (count <= 0) return;
  const int64_t heads = p.num_heads;
  list.read(p.q + begin * heads * dim, floats(count * heads * dim));
  list.write(p.q + begin * heads * dim, floats(count * heads * dim));
  list.read(p.w + begin * heads, floats(count * heads));
  list.write(p.w + begin * heads, floats(count * heads));
  list.read(p.k + begin * dim, floats(count * dim));
  list.read(p.cos_table + begin * half, floats(count * half));
  list.read(p.sin_table + begin * half, floats(count * half));
  list.read(p.norm_weight, floats(dim));
  list.read(p.norm_bias, floats(dim));
  list.read(p.loc + begin, static_cast<size_t>(count) * sizeof(int32_t));
  // A key is one lane in each of dim rows of its tile: the tile stands for them.
  const std::byte* last = nullptr;
  for (int64_t m = begin; m < begin + count; ++m) {
    if (p.loc[m] < 0) continue;
    const std::byte* tile = tile_at(p.keys, p.loc[m]);
    if (tile != last) list.write(tile, p.keys.tile_bytes());
    last = tile;
  }
}

device::Cost prepare_cost(const IndexPrepareParams& p) {
  const int64_t count = p.rows.count(), dim = p.keys.dim, heads = p.num_heads;
  int64_t keys = 0;
  for (int32_t m = p.rows.begin(); m < p.rows.end(); ++m) keys += p.loc[m] >= 0;
  device::Cost cost;
  cost.read_bytes =
      floats(count * (heads * (dim + 1) + p.rope_dim) + keys * dim + 2 * dim) + static_cast<uint64_t>(4 * count);
  cost.write_bytes = floats(count * heads * (dim + 1)) + static_cast<uint64_t>(keys * dim) * dtype_bytes(p.keys.type);
  cost.multiply_adds = static_cast<uint64_t>(count * heads * (2 * p.rope_dim + 1) + keys * (2 * p.rope_dim + 3 * dim));
  return cost;
}

int32_t num_score_pieces(const IndexScoreParams& p) {
  int32_t tiles = 0;
  for (int32_t m = p.rows.begin(); m < p.rows.end(); ++m) {
    const int32_t row_tiles = num_scored_tiles(p, m);
    if (row_tiles > tiles) tiles = row_tiles;
  }
  return num_score_groups(p.rows) * ((tiles + kScoreTilesPerPiece - 1) / kScoreTilesPerPiece);
}

// Calls f(cache_slot, num_tiles) for each run of rows of one slot within a group of rows: what is read once.
template <typename F>
void for_each_key_run(const IndexScoreParams& p, F f) {
  for (int32_t m = p.rows.begin(); m < p.rows.end();) {
    const int32_t group_end = m + kScoreRowsPerPiece - (m - p.rows.begin()) % kScoreRowsPerPiece;
    const int32_t slot = p.table.cache_slot[m];
    int32_t tiles = 0;
    for (; m < group_end && m < p.rows.end() && p.table.cache_slot[m] == slot; ++m) {
      const int32_t row_tiles = num_scored_tiles(p, m);
      if (row_tiles > tiles) tiles = row_tiles;
    }
    if (tiles > 0) f(slot, tiles);
  }
}

void declare_score(const IndexScoreParams& p, device::AccessList& list) {
  list.read(p.rows.range, 2 * sizeof(int32_t));
  const int64_t begin = p.rows.begin(), count = p.rows.count();
  if (count <= 0) return;
  list.read(p.table.position + begin, static_cast<size_t>(count) * sizeof(int32_t));
  list.read(p.table.cache_slot + begin, static_cast<size_t>(count) * sizeof(int32_t));
  for (int32_t m = p.rows.begin(); m < p.rows.end(); ++m) {
    const int32_t tiles = list.every_step() ? static_cast<int32_t>(p.score_stride / kKeyTile) : num_scored_tiles(p, m);
    if (tiles == 0) continue;
    list.read(p.q + static_cast<int64_t>(m) * p.num_heads * p.keys.dim,
              floats(static_cast<int64_t>(p.num_heads) * p.keys.dim));
    list.read(p.w + static_cast<int64_t>(m) * p.num_heads, floats(p.num_heads));
    list.write(score_row(p, m), floats(static_cast<int64_t>(tiles) * kKeyTile));
  }
  if (list.every_step()) {  // one tile stands for all keys
    for (int32_t m = p.rows.begin(); m < p.rows.end(); ++m) {
      if (num_visible(p.table, m) > 0)
        list.read(tile_of(p.keys, p.table, p.table.cache_slot[m], 0), p.keys.tile_bytes());
    }
    return;
  }
  int32_t last_slot = -1, last_tiles = 0;
  for_each_key_run(p, [&](int32_t slot, int32_t tiles) {
    // Rows of a prompt see ever longer prefixes of the same blocks: declare what is new.
    const int32_t from = slot == last_slot ? last_tiles : 0;
    const int32_t per_block = p.table.block_size / kKeyTile;
    for (int32_t t = from; t < tiles;) {
      const int32_t block_end = (t / per_block + 1) * per_block;
      const int32_t end = block_end < tiles ? block_end : tiles;
      list.read(p.table.block_table + static_cast<int64_t>(slot) * p.table.max_blocks + t / per_block, sizeof(int32_t));
      list.read(tile_of(p.keys, p.table, slot, t), static_cast<size_t>(end - t) * p.keys.tile_bytes());
      t = end;
    }
    last_tiles = slot == last_slot && last_tiles > tiles ? last_tiles : tiles;
    last_slot = slot;
  });
}

device::Cost score_cost(const IndexScoreParams& p) {
  device::Cost cost;
  for (int32_t m = p.rows.begin(); m < p.rows.end(); ++m) {
    if (num_scored_tiles(p, m) == 0) continue;
    const int64_t visible = num_visible(p.table, m), heads = p.num_heads;
    cost.read_bytes += floats(heads * (p.keys.dim + 1)) + 2 * sizeof(int32_t);
    cost.write_bytes += floats(visible);
    cost.multiply_adds += static_cast<uint64_t>(visible * heads * (p.keys.dim + 1));
  }
  for_each_key_run(
      p, [&](int32_t, int32_t tiles) { cost.read_bytes += static_cast<uint64_t>(tiles) * p.keys.tile_bytes(); });
  return cost;
}

}  // namespace

const device::OpType& index_prepare(Backend backend) {
  static constexpr device::OpType kRef =
      device::make_op_type<IndexPrepareParams, num_prepare_pieces, ref_index_prepare, declare_prepare, prepare_cost>(
          "index_prepare", device::Part::kIndexer);
  static constexpr device::OpType kCpu =
      device::make_op_type<IndexPrepareParams, num_prepare_pieces, cpu_index_prepare, declare_prepare, prepare_cost>(
          "index_prepare", device::Part::kIndexer);
  return backend == Backend::kRef ? kRef : kCpu;
}

const device::OpType& index_score(Backend backend) {
  static constexpr device::OpType kRef =
      device::make_op_type<IndexScoreParams, num_score_pieces, ref_index_score, declare_score, score_cost>(
          "index_score", device::Part::kIndexer);
  static constexpr device::OpType kCpu =
      device::make_op_type<IndexScoreParams, num_score_pieces, cpu_index_score, declare_score, score_cost>(
          "index_score", device::Part::kIndexer);
  return backend == Backend::kRef ? kRef : kCpu;
}

}  // namespace tidepool::nn
