// Staging of a prompt tile's earlier rows, and the locations of resident rows.
#include "tidepool/ops/stage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "test_store.h"

namespace tidepool::ops {
namespace {

using tidepool::testing::read_row;
using tidepool::testing::write_row;

constexpr int32_t kSlot = 1, kFirst = 200, kCount = 30;  // the chunk
constexpr int32_t kRowBase = 3;                          // decode rows before it
constexpr int32_t kTopk = 8, kBlockSize = 16, kMaxBlocks = 16, kIdRange = 256, kChunkRows = 40;

class Stage : public ::testing::Test {
 protected:
  Stage()
      : store_({1, 2}, 2 * kMaxBlocks * kBlockSize, kFormat),
        staging_(kChunkRows + 200, 1, kFormat, tidepool::testing::Layout::kSeparate) {
    std::iota(blocks_.begin(), blocks_.end(), 0);
    std::shuffle(blocks_.begin(), blocks_.end(), random_);
    for (int32_t record = 0; record < 2 * kMaxBlocks * kBlockSize; ++record) {
      for (int32_t layer = 0; layer < 2; ++layer) write_row(store_.planes(1, layer), record, contents(layer, record));
    }
    // Ascending lists: up to six earlier positions, then positions of the chunk, -1 behind.
    for (int32_t m = 0; m < kCount; ++m) {
      std::set<int32_t> chosen;
      while (chosen.size() < 6) chosen.insert(static_cast<int32_t>(random_() % kFirst));
      if (m > 0) chosen.insert(kFirst + static_cast<int32_t>(random_() % static_cast<uint64_t>(m)));
      std::copy(chosen.begin(), chosen.end(), topk_.begin() + m * kTopk);
    }
  }
  static std::vector<std::byte> contents(int32_t layer, int32_t record) {
    std::vector<std::byte> bytes(static_cast<size_t>(kFormat.row_bytes()));
    uint64_t state = static_cast<uint64_t>(layer * 100'000 + record);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>((state = (state + 1) * 0x9E3779B97F4A7C15u) >> 56);
    return bytes;
  }
  int32_t record_of(int32_t position) const {
    return blocks_[static_cast<size_t>(kSlot * kMaxBlocks + position / kBlockSize)] * kBlockSize +
           position % kBlockSize;
  }
  std::set<int32_t> earlier() const {
    std::set<int32_t> all;
    for (int32_t m = tile_[0] - kRowBase; m < tile_[1] - kRowBase; ++m) {
      for (int32_t i = 0; i < kTopk; ++i) {
        const int32_t id = topk_[static_cast<size_t>(m * kTopk + i)];
        if (id >= 0 && id < kFirst) all.insert(id);
      }
    }
    return all;
  }
  StageTile tile() {
    return {.rows = tile_,
            .row_base = kRowBase,
            .chunk = chunk_,
            .topk = kTopk,
            .topk_indices = topk_.data(),
            .stage_capacity = capacity_,
            .chunk_capacity = kChunkRows,
            .copies = copies_.data(),
            .num_copies = &num_copies_,
            .locations = locations_.data(),
            .seen = seen_.data(),
            .index_of = index_of_.data(),
            .id_range = kIdRange,
            .block_table = blocks_.data(),
            .max_blocks = kMaxBlocks,
            .block_size = kBlockSize,
            .status = status_};
  }
  StageFetchParams fetch(int32_t layer) {
    return {.chunk = chunk_,
            .block_table = blocks_.data(),
            .max_blocks = kMaxBlocks,
            .block_size = kBlockSize,
            .copies = copies_.data(),
            .num_copies = &num_copies_,
            .store = &store_,
            .group = 1,
            .layer_in_group = layer,
            .staging = staging_.planes(0),
            .stage_capacity = capacity_,
            .chunk_capacity = kChunkRows,
            .status = status_,
            .fetched_rows = &fetched_,
            .done = &done_};
  }
  template <typename Params>
  static int32_t run(const device::OpType& type, const Params& params) {
    const int32_t pieces = type.num_pieces(&params);
    for (int32_t piece = pieces - 1; piece >= 0; --piece) type.run(&params, piece, pieces);
    return pieces;
  }
  static bool covers(const device::AccessList& list, const void* base, size_t bytes, bool write) {
    const auto begin = reinterpret_cast<uint64_t>(base);
    return std::any_of(list.ranges().begin(), list.ranges().end(), [&](const auto& a) {
      return a.space == 0 && a.write == write && a.begin <= begin && begin + bytes <= a.end;
    });
  }

  static constexpr RowFormat kFormat{DType::kBF16, 8, 4};
  std::mt19937_64 random_{5};
  tidepool::testing::MemoryRowStore store_;
  tidepool::testing::RowMemory staging_;
  std::vector<int32_t> blocks_ = std::vector<int32_t>(2 * kMaxBlocks);
  int32_t tile_[2] = {kRowBase + 4, kRowBase + 28};
  int32_t chunk_[3] = {kSlot, kFirst, kCount};
  int32_t capacity_ = 200, num_copies_ = -1, status_[2] = {0, 0};
  std::vector<int32_t> topk_ = std::vector<int32_t>(kCount * kTopk, -1);
  std::vector<RowCopy> copies_ = std::vector<RowCopy>(201, RowCopy{-9, -9});
  std::vector<RowLocation> locations_ = std::vector<RowLocation>(kCount * kTopk, RowLocation{Place::kPool, -9});
  std::vector<uint64_t> seen_ = std::vector<uint64_t>(kIdRange / 64);
  std::vector<int32_t> index_of_ = std::vector<int32_t>(kIdRange, -9);
  int64_t fetched_ = 0;
  device::Event done_;
};

TEST_F(Stage, every_earlier_position_of_a_tile_is_listed_once_in_ascending_order) {
  run(stage_list(), StageListParams{tile()});
  const auto want = earlier();
  ASSERT_EQ(num_copies_, static_cast<int32_t>(want.size()));
  int32_t i = 0;
  for (int32_t position : want) {
    EXPECT_EQ(copies_[static_cast<size_t>(i)].record, record_of(position));
    EXPECT_EQ(copies_[static_cast<size_t>(i)].row, kChunkRows + i);
    ++i;
  }
  EXPECT_EQ(copies_[static_cast<size_t>(i)].record, -9);
  for (uint64_t word : seen_) EXPECT_EQ(word, 0u);
}

TEST_F(Stage, locations_are_rows_of_the_chunk_or_of_the_stage_part_for_the_rows_of_the_tile_only) {
  run(stage_list(), StageListParams{tile()});
  EXPECT_EQ(run(stage_locate(), StageLocateParams{tile()}), 24);
  const auto want = earlier();
  for (int32_t m = 0; m < kCount; ++m) {
    for (int32_t i = m * kTopk; i < (m + 1) * kTopk; ++i) {
      const int32_t id = topk_[static_cast<size_t>(i)];
      const RowLocation& at = locations_[static_cast<size_t>(i)];
      if (m < 4 || m >= 28) {
        EXPECT_EQ(at.index, -9) << "row of another tile";
      } else if (id < 0) {
        EXPECT_EQ(at.place, Place::kNone);
      } else {
        EXPECT_EQ(at.place, Place::kStaging);
        const auto rank = static_cast<int32_t>(std::distance(want.begin(), want.find(id)));
        EXPECT_EQ(at.index, id >= kFirst ? id - kFirst : kChunkRows + rank);
      }
    }
  }
}

TEST_F(Stage, a_fetch_of_several_slices_brings_each_listed_row_of_its_layer) {
  run(stage_list(), StageListParams{tile()});
  ASSERT_GT(num_copies_, kStageSlice);
  for (int32_t layer = 0; layer < 2; ++layer) {
    const StageFetchParams p = fetch(layer);
    const int32_t pieces = stage_fetch().num_pieces(&p);
    EXPECT_EQ(pieces, (num_copies_ + kStageSlice - 1) / kStageSlice);
    done_.start(static_cast<uint64_t>(pieces));
    run(stage_fetch(), p);
    EXPECT_EQ(done_.completed(), static_cast<uint64_t>(layer + 1));
    EXPECT_EQ(fetched_, int64_t{layer + 1} * num_copies_);
    int32_t row = kChunkRows;
    for (int32_t position : earlier())
      ASSERT_EQ(read_row(staging_.planes(0), row++), contents(layer, record_of(position)));
    EXPECT_EQ(read_row(staging_.planes(0), row), std::vector<std::byte>(24));
    EXPECT_EQ(read_row(staging_.planes(0), kChunkRows - 1), std::vector<std::byte>(24));
  }
  EXPECT_EQ(status_[kSlot], 0);
}

TEST_F(Stage, more_rows_than_fit_fail_the_request_and_stay_inside_the_buffer) {
  capacity_ = 5;
  run(stage_list(), StageListParams{tile()});
  EXPECT_EQ(num_copies_, 5);
  EXPECT_EQ(copies_[5].record, -9);
  EXPECT_EQ(status_[kSlot], static_cast<int32_t>(RequestStatus::kBadPosition));
  EXPECT_EQ(status_[1 - kSlot], 0);
  for (uint64_t word : seen_) EXPECT_EQ(word, 0u);
}

TEST_F(Stage, declares_what_it_reads_and_writes_and_no_row_of_the_chunk) {
  device::AccessList list, locate, fetched;
  const StageListParams list_params{tile()};
  const StageLocateParams locate_params{tile()};
  const StageFetchParams fetch_params = fetch(0);
  stage_list().declare(&list_params, list);
  stage_locate().declare(&locate_params, locate);
  stage_fetch().declare(&fetch_params, fetched);
  const size_t first = 4 * kTopk, entries = 24 * kTopk;
  for (const auto* each : {&list, &locate}) EXPECT_TRUE(covers(*each, topk_.data() + first, entries * 4, false));
  EXPECT_TRUE(covers(list, index_of_.data(), kIdRange * 4, true));
  EXPECT_TRUE(covers(list, seen_.data(), kIdRange / 8, true));
  EXPECT_TRUE(covers(list, copies_.data(), 200 * sizeof(RowCopy), true));
  EXPECT_TRUE(covers(list, &num_copies_, 4, true));
  EXPECT_TRUE(covers(locate, index_of_.data(), kIdRange * 4, false));
  EXPECT_TRUE(covers(locate, locations_.data() + first, entries * sizeof(RowLocation), true));
  EXPECT_FALSE(covers(locate, locations_.data(), sizeof(RowLocation), true));
  EXPECT_TRUE(covers(fetched, copies_.data(), 200 * sizeof(RowCopy), false));
  EXPECT_TRUE(covers(fetched, &num_copies_, 4, false));
  // Every record before the chunk, none of the chunk's own: its spill may be on its way.
  int64_t records = 0;
  for (const auto& range : fetched.ranges()) {
    if (range.space != store_.resource(1, 0)) continue;
    EXPECT_FALSE(range.write);
    records += static_cast<int64_t>(range.end - range.begin);
  }
  EXPECT_EQ(records, chunk_[1]);
  const RowPlanes planes = staging_.planes(0);
  for (const RowPlane& plane : {planes.latent, planes.rope}) {
    const auto bytes = static_cast<size_t>(plane.bytes);
    for (int32_t row : {kChunkRows, kChunkRows + 77, kChunkRows + 199})
      EXPECT_TRUE(covers(fetched, plane.row(row), bytes, true));
    EXPECT_FALSE(covers(fetched, plane.row(kChunkRows - 1), 1, true));
  }
}

TEST_F(Stage, resident_rows_lie_where_the_block_table_of_their_request_says) {
  const int32_t slots[] = {0, 1, -1, 1};
  const int32_t rows[] = {1, 4};
  const int32_t ids[] = {1, 2, 0, 17, 255, 3, 9, -1};  // two a row; row 0 is not of the range
  std::vector<RowLocation> out(8, RowLocation{Place::kPool, -9});
  const LocateResidentParams p{rows, 4, 2, slots, ids, blocks_.data(), kMaxBlocks, kBlockSize, out.data()};
  EXPECT_EQ(run(locate_resident(), p), 3);
  EXPECT_EQ(out[0].index, -9);
  EXPECT_EQ(out[2].place, Place::kResident);
  EXPECT_EQ(out[2].index, record_of(0));
  EXPECT_EQ(out[3].index, record_of(17));
  EXPECT_EQ(out[4].place, Place::kNone) << "a row of no request";
  EXPECT_EQ(out[6].index, record_of(9));
  EXPECT_EQ(out[7].place, Place::kNone);
}

}  // namespace
}  // namespace tidepool::ops
