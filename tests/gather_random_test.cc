// gather in protected memory, on streams with random schedules, with a store that delays and reorders: whatever
// requests, drafts and lists came before, every listed position reads back its newest row.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "device/executor.h"
#include "op_cases.h"

namespace tidepool::testing {
namespace {

using device::Event;
using device::Executor;
using device::kMainStream;
using device::kSideStream;

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

constexpr int32_t kSlots = 3, kLayers = 2, kMaxPositions = 160;

// Three cache slots whose requests decode with drafts: rows of a step are written at [len, len + q_len), some of them
// stay. Every row's bytes depend on request, layer, position, and how often the position was written.
class RandomRequests {
 public:
  RandomRequests(uint64_t seed, bool cpu)
      : random_(seed),
        ops_(cpu ? cpu_ops() : ref_ops()),
        arena_("gather", 16u << 20, device::Guard::kProtected),
        executor_({.schedule = device::Schedule::kRandom, .seed = seed, .check_order = true}) {
    q_len_ = 1 + below(4);
    topk_ = 1 + below(24);
    window_rows_ = 2 * q_len_ + below(6);
    block_size_ = 1 + below(9);
    max_blocks_ = (kMaxPositions + block_size_ - 1) / block_size_;
    status_queries_ = q_len_ + below(2);
    format_ = std::array{RowFormat{DType::kBF16, 8, 4}, RowFormat{DType::kI8, 130, 2},
                         RowFormat{DType::kF32, 3, 0}}[static_cast<size_t>(below(3))];
    layout_ = below(2) == 0 ? Layout::kInterleaved : Layout::kSeparate;
    const auto entries = static_cast<uint64_t>(kSlots * q_len_ * topk_);
    inner_ = std::make_unique<MemoryRowStore>(std::vector<int32_t>{kLayers}, kSlots * max_blocks_ * block_size_,
                                              format_, layout_);
    store_ = std::make_unique<DelayedRowStore>(*inner_, DelayOptions{.seed = seed});
    block_table_.resize(static_cast<size_t>(kSlots * max_blocks_));
    std::iota(block_table_.begin(), block_table_.end(), 0);
    std::shuffle(block_table_.begin(), block_table_.end(), random_);
    for (Layer& layer : layers_) {
      layer.window = rows(kSlots * window_rows_, "window");
      layer.selection = rows(kSlots * status_queries_ * topk_, "selection");
      layer.places =
          arena_.allocate_array<int32_t>(static_cast<uint64_t>(kSlots * status_queries_ * (topk_ + 1)), "place_status");
      layer.locations = arena_.allocate_array<RowLocation>(entries, "locations");
      layer.copies = arena_.allocate_array<ops::RowCopy>(entries, "copies");
      layer.spill_copies = arena_.allocate_array<ops::RowCopy>(kSlots * kMaxPositions, "copies of spill");
      layer.scratch = arena_.allocate_array<int32_t>(entries * ops::kGatherScratch, "scratch");
    }
    topk_indices_ = arena_.allocate_array<int32_t>(entries, "topk_indices");
    fetched_ = arena_.allocate_array<int64_t>(kSlots, "fetched_rows");
    counts_ = arena_.allocate_array<int64_t>(kSlots * 4, "counts");
    executor_.add_pump([this] { return store_->pump(); });
    executor_.protect(arena_);
  }

  // Ends a request or two, decodes one step of some, and looks at every row that was listed.
  void step() {
    arena_.open_all();
    resets_.clear();
    num_rows_ = 0;
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      if (steps_ == 0 || below(12) == 0 || requests_[slot].len + 2 * q_len_ > kMaxPositions) begin_request(slot);
    }
    std::array<int32_t, kSlots> order{0, 1, 2};
    std::shuffle(order.begin(), order.end(), random_);
    for (int32_t slot : order) {
      if (below(5) > 0) add_row(below(8) == 0 ? -1 : slot);
    }
    num_resets_ = static_cast<int32_t>(resets_.size());
    resets_.resize(kSlots);
    push();
    executor_.synchronize_all();
    arena_.open_all();
    for (int32_t b = 0; b < num_rows_; ++b) expect_row(b);
    for (int32_t b = 0; b < num_rows_; ++b) {
      if (cache_slot_[b] >= 0) requests_[cache_slot_[b]].len += 1 + below(q_len_);
    }
    EXPECT_EQ(join(store_->violations()), "");
    ++steps_;
  }
  int64_t rows_seen() const { return rows_seen_; }
  int64_t hits() const { return counts_[0] + counts_[4] + counts_[8]; }

 private:
  struct Layer {
    RowPlanes window, selection;
    int32_t* places;
    RowLocation* locations;
    ops::RowCopy *copies, *spill_copies;
    int32_t* scratch;
    Event spilled, gathered;
  };
  struct Request {
    int32_t number = 0, len = 0, spilled = 0;
    std::vector<int32_t> versions, last;  // by position; positions listed before
  };

  int32_t below(int32_t limit) { return static_cast<int32_t>(random_() % static_cast<uint64_t>(limit)); }
  RowPlanes rows(int32_t count, const char* what) {
    const auto bytes = [&](int32_t of_row) { return static_cast<uint64_t>(count) * static_cast<uint64_t>(of_row); };
    if (layout_ == Layout::kInterleaved)
      return joint_planes(arena_.allocate(bytes(format_.row_bytes()), what), format_);
    const int32_t latent = format_.latent_bytes(), rope = format_.rope_bytes();
    const RowPlane latents{arena_.allocate(bytes(latent), what), latent, latent};
    return {latents, {rope == 0 ? latents.base : arena_.allocate(bytes(rope), what), rope, rope}};
  }
  std::vector<std::byte> bytes_of(int32_t slot, int32_t layer, int32_t position) const {
    const Request& request = requests_[slot];
    uint64_t state = 0;
    for (int32_t part : {slot, request.number, layer, position, request.versions[static_cast<size_t>(position)]}) {
      state = (state + static_cast<uint64_t>(part) + 1) * 0x9E3779B97F4A7C15u;
      state ^= state >> 29;
    }
    std::vector<std::byte> bytes(static_cast<size_t>(format_.row_bytes()));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>((state = state * 6364136223846793005u + 1) >> 56);
    return bytes;
  }
  void write_window(int32_t slot, int32_t position) {
    ++requests_[slot].versions[static_cast<size_t>(position)];
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      write_row(layers_[layer].window, slot * window_rows_ + position % window_rows_, bytes_of(slot, layer, position));
    }
  }
  int64_t record_of(int32_t slot, int32_t position) const {
    return int64_t{block_table_[static_cast<size_t>(slot * max_blocks_ + position / block_size_)]} * block_size_ +
           position % block_size_;
  }

  void begin_request(int32_t slot) {
    Request& request = requests_[slot];
    const int32_t prompt = 1 + below(40);
    request = {request.number + 1, prompt, prompt, std::vector<int32_t>(kMaxPositions + 8), {}};
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      for (int32_t p = 0; p < kMaxPositions; ++p) store_->forget(0, layer, record_of(slot, p), 1);
    }
    for (int32_t p = 0; p < prompt; ++p) {
      write_window(slot, p);
      for (int32_t layer = 0; layer < kLayers; ++layer) {
        write_row(inner_->planes(0, layer), record_of(slot, p), bytes_of(slot, layer, p));
        store_->mark_written(0, layer, record_of(slot, p), 1);
      }
    }
    resets_.push_back(slot);
  }

  // slot -1: an inactive row.
  void add_row(int32_t slot) {
    const int32_t b = num_rows_++;
    cache_slot_[b] = slot;
    spill_count_[b] = 0;
    spill_rows_[b] = window_rows_;
    spill_origin_[b] = 0;
    for (int32_t i = 0; i < q_len_ * topk_; ++i) topk_indices_[b * q_len_ * topk_ + i] = below(kMaxPositions);
    if (slot < 0) return;
    Request& request = requests_[slot];
    seq_len_[b] = request.len + q_len_;
    for (int32_t p = request.len; p < seq_len_[b]; ++p) write_window(slot, p);
    // Final rows leave at the latest before the ring loses them.
    const int32_t oldest = std::max({request.spilled, request.len + 2 * q_len_ - window_rows_, 0});
    spill_first_[b] = request.spilled;
    spilled_len_[b] = oldest + below(request.len - oldest + 1);
    spill_count_[b] = spilled_len_[b] - spill_first_[b];
    spill_base_[b] = slot * window_rows_;
    request.spilled = spilled_len_[b];
    final_len_[b] = request.len - below(std::max(request.len - std::max(seq_len_[b] - window_rows_, 0) + 1, 1));
    for (int32_t q = 0; q < q_len_; ++q) draw_list(request, topk_indices_ + (b * q_len_ + q) * topk_);
  }

  // Old and new positions, as they come or ascending, with what is no position of the query among them.
  void draw_list(Request& request, int32_t* list) {
    std::vector<int32_t> ids;
    const int32_t end = request.len + q_len_ + 2;
    for (int32_t id : request.last) {
      if (below(10) < 7) ids.push_back(id);
    }
    for (int32_t i = below(topk_ + 1); i > 0; --i)
      ids.push_back(below(2) == 0 ? below(end) : end - 1 - below(std::min(end, 9)));
    std::shuffle(ids.begin(), ids.end(), random_);
    std::vector<int32_t> distinct;
    for (int32_t id : ids) {
      if (std::find(distinct.begin(), distinct.end(), id) == distinct.end()) distinct.push_back(id);
    }
    distinct.resize(
        static_cast<size_t>(std::min(static_cast<int32_t>(distinct.size()), below(4) == 0 ? below(topk_ + 1) : topk_)));
    request.last = distinct;
    if (below(2) == 0) std::sort(distinct.begin(), distinct.end());
    distinct.resize(static_cast<size_t>(topk_), -1);
    if (below(3) == 0) std::shuffle(distinct.begin(), distinct.end(), random_);
    std::copy(distinct.begin(), distinct.end(), list);
  }

  void push() {
    has_final_len_ = below(2) == 0;
    for (int32_t l = 0; l < kLayers; ++l) {
      Layer& layer = layers_[l];
      executor_.push(
          kMainStream, ops_.gather_reset,
          ops::GatherResetParams{kSlots, status_queries_, topk_, layer.places, resets_.data(), &num_resets_});
      const ops::SpillParams spill{.max_rows = kSlots,
                                   .num_rows = &num_rows_,
                                   .cache_slot = cache_slot_.data(),
                                   .first = spill_first_.data(),
                                   .count = spill_count_.data(),
                                   .source_base = spill_base_.data(),
                                   .source_origin = spill_origin_.data(),
                                   .source_rows = spill_rows_.data(),
                                   .source = layer.window,
                                   .store = store_.get(),
                                   .layer_in_group = l,
                                   .block_table = block_table_.data(),
                                   .max_blocks = max_blocks_,
                                   .block_size = block_size_,
                                   .done = &layer.spilled,
                                   .copies = layer.spill_copies,
                                   .max_copies = kSlots * kMaxPositions,
                                   .status = status_.data()};
      executor_.push_async(kSideStream, ops_.spill, spill, layer.spilled);
    }
    for (int32_t l = 0; l < kLayers; ++l) {
      Layer& layer = layers_[l];
      executor_.wait(kMainStream, layer.spilled);
      executor_.push_async(kMainStream, ops_.gather, gather_params(l), layer.gathered);
      executor_.wait(kMainStream, layer.gathered);
    }
  }
  ops::GatherParams gather_params(int32_t l) {
    Layer& layer = layers_[l];
    return {.batch = {kSlots, q_len_, &num_rows_, cache_slot_.data(), seq_len_.data(), spilled_len_.data(),
                      has_final_len_ ? final_len_.data() : nullptr},
            .num_cache_slots = kSlots,
            .topk = topk_,
            .topk_indices = topk_indices_,
            .window_rows = window_rows_,
            .window = layer.window,
            .store = store_.get(),
            .layer_in_group = l,
            .block_table = block_table_.data(),
            .max_blocks = max_blocks_,
            .block_size = block_size_,
            .done = &layer.gathered,
            .place_status = layer.places,
            .status_queries = status_queries_,
            .selection = layer.selection,
            .locations = layer.locations,
            .copies = layer.copies,
            .scratch = layer.scratch,
            .status = status_.data(),
            .fetched_rows = fetched_,
            .counts = l == 0 ? counts_ : nullptr};
  }

  void expect_row(int32_t b) {
    const int32_t slot = cache_slot_[b];
    if (slot < 0) return;
    ASSERT_EQ(status_[static_cast<size_t>(slot)], 0);
    for (int32_t i = 0; i < q_len_ * topk_; ++i) {
      const int32_t entry = b * q_len_ * topk_ + i, q = i / topk_, id = topk_indices_[entry];
      const bool exists = id >= 0 && id <= requests_[slot].len + q;
      for (int32_t l = 0; l < kLayers; ++l) {
        const RowLocation at = layers_[l].locations[entry];
        ASSERT_EQ(at.place, exists ? Place::kSelection : Place::kNone);
        if (!exists) continue;
        ASSERT_EQ(at.index / topk_, slot * status_queries_ + q);
        ASSERT_EQ(layers_[l].places[at.index / topk_ * (topk_ + 1) + at.index % topk_], id);
        ASSERT_EQ(read_row(layers_[l].selection, at.index), bytes_of(slot, l, id)) << "position " << id;
        ++rows_seen_;
      }
    }
  }

  std::mt19937_64 random_;
  OpSet ops_;
  device::Arena arena_;
  int32_t q_len_, topk_, window_rows_, block_size_, max_blocks_, status_queries_;
  RowFormat format_;
  Layout layout_;
  std::unique_ptr<MemoryRowStore> inner_;
  std::unique_ptr<DelayedRowStore> store_;
  std::array<Layer, kLayers> layers_;
  std::array<Request, kSlots> requests_;
  std::vector<int32_t> block_table_, resets_, status_ = std::vector<int32_t>(kSlots);
  std::array<int32_t, kSlots> cache_slot_{}, seq_len_{}, spilled_len_{}, final_len_{}, spill_first_{}, spill_count_{},
      spill_base_{}, spill_origin_{}, spill_rows_{};
  int32_t num_rows_ = 0, num_resets_ = 0, steps_ = 0;
  bool has_final_len_ = false;
  int32_t* topk_indices_;
  int64_t *fetched_, *counts_, rows_seen_ = 0;
  Executor executor_;
};

void expect_newest_rows(bool cpu) {
  int64_t rows = 0, hits = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    RandomRequests requests(seed, cpu);
    for (int32_t step = 0; step < 20; ++step) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", step " + std::to_string(step));
      requests.step();
      if (::testing::Test::HasFailure()) return;
    }
    rows += requests.rows_seen(), hits += requests.hits();
  }
  EXPECT_GT(rows, 20'000);
  EXPECT_GT(hits, 2'000);
}

TEST(GatherOfRandomRequests, WhateverHappenedBeforeTheSelectionHoldsTheNewestRowsReference) {
  expect_newest_rows(false);
}
TEST(GatherOfRandomRequests, WhateverHappenedBeforeTheSelectionHoldsTheNewestRowsCpu) { expect_newest_rows(true); }

}  // namespace
}  // namespace tidepool::testing
