// One kernel for every number of rows: a tile of kRows rows and kSubs sub-panels keeps its sums in registers over a
// k-block. A sub-panel is two vectors of lanes: a whole panel on AVX3, half of one on AVX2, a quarter on SSE4 and NEON.
//
// bf16 pairs are widened in place: of each 32-bit word the low half becomes an even lane, the high half an odd lane,
// one instruction each. Sums stay in that order (even lanes, odd lanes) until the last k-block, which interleaves them.
#include "nn/cpu/product_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "nn/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/cpu/product_block.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tidepool::nn::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using VF = hn::Vec<F32>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
constexpr int kSubLanes = 2 * kLanes;
constexpr int kSubsPerPanel = kPanelRows / kSubLanes;
static_assert(kSubsPerPanel * kSubLanes == kPanelRows);
constexpr bool kManyRegisters = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON;  // 32 vector registers
constexpr int kTileRows = kManyRegisters ? 12 : 6;

// x rows of a tile are copied here: rows of a real model lie a multiple of 4 KiB apart, where they would evict each
// other from the first-level cache. The 16 spare floats spread them over its sets.
constexpr int kXStride = kProductBlock + 16;

// Weights are prefetched this far ahead: the machine's own prefetchers stop at every 4 KiB, and one stream of them does
// not reach the read bandwidth.
constexpr int kPrefetchBytes = 3072;

// How a sub-panel's values of one k become two vectors, and in which order the vectors hold the lanes.
struct F32Weights {
  static constexpr int kBytes = 4;
  static constexpr bool kScaled = false;
  static HWY_INLINE void load(const std::byte* p, VF, VF& v0, VF& v1) {
    v0 = hn::LoadU(F32(), reinterpret_cast<const float*>(p));
    v1 = hn::LoadU(F32(), reinterpret_cast<const float*>(p) + kLanes);
  }
  static HWY_INLINE void store(VF v0, VF v1, float* out) {
    hn::StoreU(v0, F32(), out);
    hn::StoreU(v1, F32(), out + kLanes);
  }
};

struct BF16Weights {
  static constexpr int kBytes = 2;
  static constexpr bool kScaled = false;
  static HWY_INLINE void load(const std::byte* p, VF, VF& v0, VF& v1) {
    const auto pairs = hn::LoadU(U32(), reinterpret_cast<const uint32_t*>(p));
    v0 = hn::BitCast(F32(), hn::ShiftLeft<16>(pairs));
    v1 = hn::BitCast(F32(), hn::And(pairs, hn::Set(U32(), 0xffff0000u)));
  }
  static HWY_INLINE void store(VF v0, VF v1, float* out) { hn::StoreInterleaved2(v0, v1, F32(), out); }
};

// e4m3: the seven value bits shifted into an fp32 pattern whose exponent is 120 too small, as in dtype.h. kPlain: no
// code is NaN and 2^120 times the scale is exact, so that one multiplication does both.
template <bool kPlain>
struct F8Weights {
  static constexpr int kBytes = 1;
  static constexpr bool kScaled = true;
  static constexpr float kScaleFactor = kPlain ? 0x1p120f : 1.0f;
  template <class V>
  static HWY_INLINE VF widen(V code_on_top, VF scale) {  // code in bits 24..31, anything below
    const hn::RebindToSigned<F32> i32;
    const auto shifted = hn::BitCast(U32(), hn::ShiftRight<4>(hn::BitCast(i32, code_on_top)));
    const VF small = hn::BitCast(F32(), hn::And(shifted, hn::Set(U32(), 0x87f00000u)));
    if constexpr (kPlain) return hn::Mul(small, scale);
    const auto value_bits = hn::Set(U32(), 0x07f00000u);
    const auto is_nan = hn::RebindMask(F32(), hn::Eq(hn::And(shifted, value_bits), value_bits));
    const VF nan = hn::BitCast(F32(), hn::Set(U32(), 0x7fc00000u));
    return hn::Mul(hn::IfThenElse(is_nan, nan, hn::Mul(small, hn::Set(F32(), 0x1p120f))), scale);
  }
  static HWY_INLINE void load(const std::byte* p, VF scale, VF& v0, VF& v1) {
    const hn::Rebind<uint16_t, F32> u16;
    const auto pairs = hn::PromoteTo(U32(), hn::LoadU(u16, reinterpret_cast<const uint16_t*>(p)));
    v0 = widen(hn::ShiftLeft<24>(pairs), scale);
    v1 = widen(hn::ShiftLeft<16>(pairs), scale);
  }
  static HWY_INLINE void store(VF v0, VF v1, float* out) { hn::StoreInterleaved2(v0, v1, F32(), out); }
};

constexpr int kChunk = 128;  // values of k between two changes of scale or of the row to prefetch
static_assert(kChunk == kScaleBlock);
constexpr int kChunksPerBlock = kProductBlock / kChunk;

// A tile's place in the block.
struct Tile {
  const ProductBlock* block;
  BlockSums* sums;
  int first_row, first_sub;
  int first_k, num_k;                    // of this k-block
  const float* const* next_x = nullptr;  // rows of the tile that comes next, their k-block at next_k
  int num_next = 0, next_k = 0;
  // What to prefetch during a chunk of a sub-panel: one row of the next tile.
  const float* upcoming(int sub, int chunk, const float* otherwise) const {
    const int row = (first_sub + sub) * kChunksPerBlock + chunk;
    return row < num_next ? next_x[row] + next_k : otherwise;
  }
  const std::byte* weights(int sub, int bytes) const {
    const int index = first_sub + sub;
    return block->panels[index / kSubsPerPanel] +
           (static_cast<ptrdiff_t>(first_k) * kPanelRows + (index % kSubsPerPanel) * kSubLanes) * bytes;
  }
  float* at(int sub, int row) const {
    const int index = first_sub + sub;
    return sums->row(*block, index / kSubsPerPanel, first_row + row) + (index % kSubsPerPanel) * kSubLanes;
  }
};

// Adds the sums of a k-block to those before it.
template <class W>
HWY_INLINE void fold_block(VF v0, VF v1, const Tile& tile, float* at) {
  if (tile.first_k > 0) {
    v0 = hn::Add(hn::LoadU(F32(), at), v0);
    v1 = hn::Add(hn::LoadU(F32(), at + kLanes), v1);
  }
  if (tile.first_k + tile.num_k == tile.block->k) {
    W::store(v0, v1, at);
  } else {
    hn::StoreU(v0, F32(), at);
    hn::StoreU(v1, F32(), at + kLanes);
  }
}

template <class W, int kRows, int kSubs>
HWY_NOINLINE void run_tile(const Tile& tile, const float* HWY_RESTRICT x) {
  const F32 d;
  const std::byte* p[kSubs];
  VF scale[kSubs];
  VF acc[kRows][2 * kSubs];
  for (int s = 0; s < kSubs; ++s) p[s] = tile.weights(s, W::kBytes);
  for (int s = 0; s < kSubs; ++s) scale[s] = hn::Zero(d);
  for (int r = 0; r < kRows; ++r) {
    for (int s = 0; s < 2 * kSubs; ++s) acc[r][s] = hn::Zero(d);
  }
  for (int begin = 0; begin < tile.num_k; begin += kChunk) {
    if constexpr (W::kScaled) {
      for (int s = 0; s < kSubs; ++s) {
        const int panel = (tile.first_sub + s) / kSubsPerPanel;
        scale[s] = hn::Set(d, tile.block->scales[panel][(tile.first_k + begin) / kScaleBlock] * W::kScaleFactor);
      }
    }
    const int end = std::min(tile.num_k, begin + kChunk);
    const float* upcoming = kRows > 4 ? tile.upcoming(0, begin / kChunk, x) : x;
    for (int k = begin; k < end; ++k) {
      VF w[2 * kSubs];
      if constexpr (kRows > 4) __builtin_prefetch(upcoming + (k - begin) * kChunksPerBlock, 0, 2);
      for (int s = 0; s < kSubs; ++s) {
        const std::byte* at = p[s] + static_cast<ptrdiff_t>(k) * (kPanelRows * W::kBytes);
        __builtin_prefetch(at + kPrefetchBytes);
        W::load(at, scale[s], w[2 * s], w[2 * s + 1]);
      }
      for (int r = 0; r < kRows; ++r) {
        const VF xk = hn::Set(d, x[r * kXStride + k]);
        for (int s = 0; s < 2 * kSubs; ++s) acc[r][s] = hn::MulAdd(w[s], xk, acc[r][s]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int s = 0; s < kSubs; ++s) fold_block<W>(acc[r][2 * s], acc[r][2 * s + 1], tile, tile.at(s, r));
  }
}

// Sub-panels that a tile of `rows` rows takes at once: enough independent sums to hide the latency of a multiply-add.
constexpr int subs_at_once(int rows) {
  if (kManyRegisters) return rows <= 2 ? 4 : rows <= 4 ? 2 : 1;
  return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
}

template <class W, int kRows, int kSubs>
void run_row_tile(Tile& tile, const float* x) {
  const int num_subs = tile.block->num_panels * kSubsPerPanel;
  for (; tile.first_sub + kSubs <= num_subs; tile.first_sub += kSubs) run_tile<W, kRows, kSubs>(tile, x);
  if constexpr (kSubs > 1) run_row_tile<W, kRows, kSubs / 2>(tile, x);
}

template <class W, int kRows = 1>
HWY_INLINE void run_rows(Tile tile, int rows, const float* x) {
  if constexpr (kRows < kTileRows) {
    if (rows > kRows) return run_rows<W, kRows + 1>(tile, rows, x);
  }
  run_row_tile<W, kRows, subs_at_once(kRows)>(tile, x);
}

// Whether F8Weights<true> may be used for k-values [k, k + num_k) of every panel.
bool is_plain(const ProductBlock& block, int k, int num_k) {
  for (int panel = 0; panel < block.num_panels; ++panel) {
    for (int i = k / kScaleBlock; i <= (k + num_k - 1) / kScaleBlock; ++i) {
      const float scale = std::fabs(block.scales[panel][i]);
      if (scale != 0 && !(scale >= 0x1p-100f && scale <= 64)) return false;
    }
  }
  return block.no_nan;
}

// run(tile, rows, x) for every k-block and tile of rows; x: the tile's rows of the k-block, kXStride apart.
template <class Run>
HWY_INLINE void for_each_tile(const ProductBlock& block, BlockSums& sums, const Run& run) {
  alignas(64) float x_tile[kTileRows * kXStride];
  const int num_tiles = (block.num_rows + kTileRows - 1) / kTileRows;
  for (int k = 0; k < block.k; k += kProductBlock) {
    const int num_k = std::min(kProductBlock, block.k - k);
    int row = 0;
    for (int t = 0; t < num_tiles; ++t) {
      const int rows = block.num_rows / num_tiles + (t < block.num_rows % num_tiles ? 1 : 0);
      const float* x = x_tile;
      if (rows == 1) x = block.x[row] + k;
      for (int r = 0; rows > 1 && r < rows; ++r) {
        std::memcpy(x_tile + r * kXStride, block.x[row + r] + k, static_cast<size_t>(num_k) * sizeof(float));
      }
      Tile tile{&block, &sums, row, 0, k, num_k};
      row += rows;
      const int next_row = t + 1 == num_tiles ? 0 : row;
      tile.next_x = block.x + next_row;
      tile.next_k = next_row == 0 ? k + kProductBlock : k;
      if (tile.next_k < block.k) tile.num_next = std::min(rows, block.num_rows - next_row);
      run(tile, rows, x);
    }
  }
}

template <class W>
void run_block(const ProductBlock& block, BlockSums& sums) {
  for_each_tile(block, sums, [](const Tile& tile, int rows, const float* x) { run_rows<W>(tile, rows, x); });
}

void run_f8_block(const ProductBlock& block, BlockSums& sums) {
  bool plain = false;
  for_each_tile(block, sums, [&](const Tile& tile, int rows, const float* x) {
    if (tile.first_row == 0) plain = is_plain(block, tile.first_k, tile.num_k);
    if (plain) return run_rows<F8Weights<true>>(tile, rows, x);
    run_rows<F8Weights<false>>(tile, rows, x);
  });
}

void product_block_target(const ProductBlock& block, BlockSums& sums) {
  switch (block.type) {
    case DType::kF32:
      return run_block<F32Weights>(block, sums);
    case DType::kF8E4M3:
      return run_f8_block(block, sums);
    default:
      return run_block<BF16Weights>(block, sums);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tidepool::nn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidepool::nn::cpu {

HWY_EXPORT(product_block_target);

void product_block(const ProductBlock& block, BlockSums& sums) {
  if (block.k == 0) std::memset(&sums, 0, sizeof(sums));  // no k-block would write them
  HWY_DYNAMIC_DISPATCH(product_block_target)(block, sums);
}

void add_panel(ProductBlock& block, const PackedMatrix& w, int32_t panel) {
  const int32_t i = block.num_panels++;
  block.type = w.type;
  block.k = w.k;
  block.no_nan = (i == 0 || block.no_nan) && w.no_nan != 0;
  block.panels[i] = w.data + static_cast<size_t>(panel) * w.panel_bytes();
  const int32_t scale_row = panel / (kScaleBlock / kPanelRows);
  const int32_t scale_columns = (w.k + kScaleBlock - 1) / kScaleBlock;
  block.scales[i] = w.scale == nullptr ? nullptr : w.scale + static_cast<ptrdiff_t>(scale_row) * scale_columns;
}

}  // namespace tidepool::nn::cpu
#endif
