// gather without its fetches: what finding, moving and listing the rows of a list of 2048 costs beside the link. The
// lists are ascending, as the indexer gives them; the argument is how many percent of a list were in the one before.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tidepool/ops/gather.h"

namespace {

using namespace tidepool;

constexpr int32_t kTopk = 2048, kPositions = 60000, kLists = 50, kWindowRows = 16, kBlock = 64;

class NoStore : public ops::RowStore {
 public:
  void fetch(const ops::RowTransfer&, device::Event& done) override { done.finish_piece(); }
  void store(const ops::RowTransfer&, device::Event& done) override { done.finish_piece(); }
  uint64_t resource(int32_t, int32_t) const override { return 1; }
};

std::vector<std::vector<int32_t>> make_lists(int32_t kept_percent) {
  std::mt19937 random(1);
  std::vector<std::vector<int32_t>> lists(kLists);
  for (size_t i = 0; i < lists.size(); ++i) {
    std::vector<int32_t>& list = lists[i];
    std::vector<bool> is_listed(kPositions);
    const auto add = [&](int32_t id) {
      if (!is_listed[static_cast<size_t>(id)]) list.push_back(id);
      is_listed[static_cast<size_t>(id)] = true;
    };
    add(kPositions - 1);  // the query's own
    if (i > 0) {
      for (int32_t id : lists[i - 1]) {
        if (static_cast<int32_t>(random() % 100) < kept_percent) add(id);
      }
    }
    while (list.size() < kTopk) add(static_cast<int32_t>(random() % kPositions));
    std::sort(list.begin(), list.end());
  }
  return lists;
}

void gather(benchmark::State& state, const device::OpType& type) {
  const auto lists = make_lists(static_cast<int32_t>(state.range(0)));
  const RowFormat format{DType::kBF16, 512, 64};
  NoStore store;
  device::Event done;
  std::vector<std::byte> window(kWindowRows * static_cast<size_t>(format.row_bytes()));
  std::vector<std::byte> selection(kTopk * static_cast<size_t>(format.row_bytes()));
  std::vector<int32_t> places(kTopk + 1, -1), scratch(kTopk * ops::kGatherScratch), blocks(kPositions / kBlock + 1);
  std::vector<RowLocation> locations(kTopk);
  std::vector<ops::RowCopy> copies(kTopk);
  const int32_t num_rows = 1, cache_slot = 0, seq_len = kPositions, spilled_len = kPositions - 1;
  int32_t status = 0;
  int64_t fetched = 0, counts[4] = {};
  ops::GatherParams p{.batch = {1, 1, &num_rows, &cache_slot, &seq_len, &spilled_len},
                      .num_cache_slots = 1,
                      .topk = kTopk,
                      .window_rows = kWindowRows,
                      .window = joint_planes(window.data(), format),
                      .store = &store,
                      .block_table = blocks.data(),
                      .max_blocks = static_cast<int32_t>(blocks.size()),
                      .block_size = kBlock,
                      .done = &done,
                      .place_status = places.data(),
                      .selection = joint_planes(selection.data(), format),
                      .locations = locations.data(),
                      .copies = copies.data(),
                      .scratch = scratch.data(),
                      .status = &status,
                      .fetched_rows = &fetched,
                      .counts = counts};
  size_t next = 0;
  for (auto _ : state) {
    p.topk_indices = lists[next++ % kLists].data();
    done.start(1);
    type.run(&p, 0, 1);
  }
  state.counters["hits"] = static_cast<double>(counts[0]) / static_cast<double>(counts[0] + counts[1] + counts[2]);
}
BENCHMARK_CAPTURE(gather, cpu, ops::gather_cpu())->ArgName("kept")->Arg(0)->Arg(60)->Arg(85)->Arg(100);
BENCHMARK_CAPTURE(gather, ref, ops::gather_ref())->ArgName("kept")->Arg(60);

}  // namespace

BENCHMARK_MAIN();
