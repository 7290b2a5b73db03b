// Walking the index keys a row sees: lengths, tile addresses, and the grid of index_score. Shared by every backend.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nn/indexer.h"

namespace tidepool::nn {

// Rows that follow each other and belong to one cache slot share the tiles of a piece.
inline constexpr int32_t kScoreRowsPerPiece = 4;
inline constexpr int32_t kScoreTilesPerPiece = 16;
inline constexpr int32_t kPrepareRowsPerPiece = 8;

// Positions row m sees; 0 for rows that are pads (negative position).
inline int32_t num_visible(const KeyTable& table, int32_t m) {
  return table.position[m] < 0 ? 0 : table.position[m] + 1;
}

inline int32_t num_tiles(int32_t visible) { return (visible + kKeyTile - 1) / kKeyTile; }

inline std::byte* tile_at(const KeyTiles& keys, int64_t loc) {
  return keys.base + static_cast<size_t>(loc / kKeyTile) * keys.tile_bytes();
}

// Tile t (positions [t * kKeyTile, (t + 1) * kKeyTile)) of a cache slot.
inline const std::byte* tile_of(const KeyTiles& keys, const KeyTable& table, int32_t cache_slot, int32_t t) {
  const int32_t position = t * kKeyTile;
  const int64_t block =
      table.block_table[static_cast<int64_t>(cache_slot) * table.max_blocks + position / table.block_size];
  return tile_at(keys, block * table.block_size + position % table.block_size);
}

inline float* score_row(const IndexScoreParams& p, int32_t m) {
  return p.scores + static_cast<int64_t>(m - p.rows.begin()) * p.score_stride;
}

// Tiles that row m is scored on; 0 when its list is everything it sees.
inline int32_t num_scored_tiles(const IndexScoreParams& p, int32_t m) {
  const int32_t visible = num_visible(p.table, m);
  return visible > p.topk ? num_tiles(visible) : 0;
}

// One piece of index_score: rows [row_begin, row_end) and tiles [tile_begin, tile_end); rows see fewer tiles, maybe
// none.
struct ScorePiece {
  int32_t row_begin, row_end, tile_begin, tile_end;
};
inline int32_t num_score_groups(const Rows& rows) {
  return (rows.count() + kScoreRowsPerPiece - 1) / kScoreRowsPerPiece;
}
inline ScorePiece score_piece(const IndexScoreParams& p, int32_t piece, int32_t num_pieces) {
  const int32_t runs = num_pieces / num_score_groups(p.rows);
  const int32_t row = p.rows.begin() + piece / runs * kScoreRowsPerPiece;
  const int32_t tile = piece % runs * kScoreTilesPerPiece;
  const int32_t row_end = row + kScoreRowsPerPiece;
  return {row, row_end < p.rows.end() ? row_end : p.rows.end(), tile, tile + kScoreTilesPerPiece};
}

// The pieces, one function per backend; indexer.cc and topk.cc make operators of them.
void ref_index_prepare(const IndexPrepareParams& p, int32_t piece, int32_t num_pieces);
void cpu_index_prepare(const IndexPrepareParams& p, int32_t piece, int32_t num_pieces);
void ref_index_score(const IndexScoreParams& p, int32_t piece, int32_t num_pieces);
void cpu_index_score(const IndexScoreParams& p, int32_t piece, int32_t num_pieces);
void ref_topk(const TopkParams& p, int32_t piece, int32_t num_pieces);
void cpu_topk(const TopkParams& p, int32_t piece, int32_t num_pieces);

}  // namespace tidepool::nn
