// The cache with drafts: which rows leave the rings, and when, while what stands is known only after the pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "cache/kv_cache.h"
#include "cache/test_held_store.h"
#include "cache/test_steps.h"

namespace tidepool::cache {
namespace {

using testing::HeldStore;

constexpr int32_t kDrafts = 3, kLen = 190;
constexpr int32_t kMain = 0, kMtp = 3;  // groups

// One request that decodes with three drafts; nothing is computed and every list is empty.
class DraftSteps {
 public:
  explicit DraftSteps(uint64_t seed)
      : executor_({.schedule = seed % 2 == 0 ? device::Schedule::kRandom : device::Schedule::kPreferMain,
                   .seed = seed,
                   .check_order = true}),
        cache_(make_options(), executor_),
        lists_(static_cast<size_t>(cache_.options().topk * (1 + kDrafts + cache_.options().max_chunk_rows)), -1),
        slot_(cache_.open(kLen)) {
    executor_.add_pump([this] { return store_->release_newest(); });
  }
  ~DraftSteps() { executor_.synchronize_all(); }

  // Rows len ... len + kDrafts of every layer but the MTP layer.
  void begin(int32_t len) {
    StepRows rows;
    rows.decode = {{slot_, len + 1 + kDrafts}};
    cache_.begin_step(rows);
  }
  void main_pass() {
    cache_.use(Pass::kMain);
    push_layers(0, cache_.options().num_main_layers());
  }
  // The first `stand` of them and two drafts behind those, in the MTP layer.
  void mtp_passes(int32_t len, int32_t stand) {
    const std::vector<MtpRows> rows = {{slot_, len, stand}};
    cache_.begin_mtp_rows(rows);
    push_layers(cache_.options().num_main_layers(), cache_.options().num_layers);
    for (int32_t draft = 1; draft < kDrafts; ++draft) {
      cache_.begin_mtp_draft(rows, draft, true);
      push_layers(cache_.options().num_main_layers(), cache_.options().num_layers);
    }
  }
  // How often the position has been copied to the store, in all layers of the group.
  int32_t num_stored(int32_t group, int32_t position) const {
    const auto layers = static_cast<int32_t>(cache_.options().layer_groups[static_cast<size_t>(group)].size());
    return store_->num_stored(group, cache_.host_record(slot_, position)) / layers;
  }
  void finish_spills() { executor_.synchronize(device::kSpillStream); }
  int32_t window_rows() const { return cache_.options().window_rows; }
  int32_t spilled_len() const { return cache_.spilled_len(slot_); }

 private:
  CacheOptions make_options() {
    CacheOptions o = testing::small_options();
    o.layer_groups.push_back({6});
    o.num_layers = 7;
    o.has_mtp = true;
    o.q_len = 1 + kDrafts;
    o.max_cache_slots = 1;
    o.decorate_store = [this](std::unique_ptr<ops::RowStore> made) -> std::unique_ptr<ops::RowStore> {
      auto held = std::make_unique<HeldStore>(std::move(made));
      store_ = held.get();
      return held;
    };
    return o;
  }
  void push_layers(int32_t first, int32_t end) {
    const auto& groups = cache_.options().layer_groups;
    for (int32_t layer = first; layer < end; ++layer) {
      cache_.before_write(layer);
      cache_.after_write(layer);
      for (size_t g = 0; g < groups.size(); ++g) {
        if (groups[g].front() == layer) cache_.select(static_cast<int32_t>(g), lists_.data());
      }
      cache_.serve(layer);
      cache_.install(layer);
    }
    cache_.end_pass();
    executor_.synchronize(device::kMainStream);
  }

  HeldStore* store_ = nullptr;
  device::Executor executor_;
  KvCache cache_;
  std::vector<int32_t> lists_;
  int32_t slot_;
};

int32_t draw_stand(std::mt19937_64& random) { return 1 + static_cast<int32_t>(random() % (1 + kDrafts)); }

constexpr int32_t kLastBegin = kLen - 3 * kDrafts;

TEST(KvCacheDrafts, a_row_is_spilled_once_and_only_when_it_is_known_to_stand) {
  std::mt19937_64 random(1);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    DraftSteps steps(seed);
    for (int32_t len = 0; len < kLastBegin;) {
      const int32_t stand = draw_stand(random);
      steps.begin(len);
      steps.main_pass();
      steps.mtp_passes(len, stand);
      steps.finish_spills();
      for (int32_t p = 0; p <= len + 2 * kDrafts; ++p) {
        ASSERT_EQ(steps.num_stored(kMain, p), p < len) << p << " behind " << len;
        ASSERT_EQ(steps.num_stored(kMtp, p), p < len + stand) << p << " behind " << len;
      }
      len += stand;
    }
  }
}

TEST(KvCacheDrafts, no_ring_row_is_taken_before_what_it_holds_is_in_the_store) {
  std::mt19937_64 random(2);
  int32_t most_behind = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    DraftSteps steps(seed);
    for (int32_t len = 0; len < kLastBegin;) {
      const int32_t stand = draw_stand(random);
      const int32_t newest = len + kDrafts, newest_draft = newest + kDrafts - 1;
      steps.begin(len);
      ASSERT_GT(steps.spilled_len(), newest - steps.window_rows());
      for (int32_t p = 0; p <= newest - steps.window_rows(); ++p) ASSERT_EQ(steps.num_stored(kMain, p), 1) << p;
      for (int32_t p = 0; p <= newest_draft - steps.window_rows(); ++p) ASSERT_EQ(steps.num_stored(kMtp, p), 1) << p;
      most_behind = std::max(most_behind, len - steps.spilled_len());
      steps.main_pass();
      steps.mtp_passes(len, stand);
      len += stand;
    }
  }
  EXPECT_GE(most_behind, 8) << "the store has never been slow";
}

}  // namespace
}  // namespace tidepool::cache
