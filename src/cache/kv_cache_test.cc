// The cache without a model: contents, order by events, quarantine, the window, admission.
#include "cache/kv_cache.h"

#include <gtest/gtest.h>

#include <set>

#include "cache/test_held_store.h"
#include "cache/test_requests.h"
#include "cache/test_steps.h"
#include "device/ring.h"
#include "test_store.h"
#include "tidepool/error.h"

namespace tidepool::cache {
namespace {

using device::kMainStream;
using testing::HeldStore;
using testing::RandomRequests;
using testing::small_options;
using testing::TestSteps;
using tidepool::testing::DelayedRowStore;

StepRows decode(std::vector<StepRows::Decode> rows) { return {std::move(rows), {}}; }

struct Held {
  explicit Held(device::Schedule schedule, uint64_t seed, int32_t window_rows)
      : options(make_options(window_rows)),
        steps(options, {.schedule = schedule, .seed = seed, .check_order = true}, seed) {
    steps.executor.add_pump([this] { return store->release_newest(); });
  }
  CacheOptions make_options(int32_t window_rows) {
    CacheOptions o = small_options();
    o.window_rows = window_rows;
    o.decorate_store = [this](std::unique_ptr<ops::RowStore> made) -> std::unique_ptr<ops::RowStore> {
      auto held = std::make_unique<HeldStore>(std::move(made));
      store = held.get();
      return held;
    };
    return o;
  }
  void finish(const StepRows& rows) {
    steps.push_layers(rows);
    steps.cache.end_pass();
    steps.executor.synchronize(kMainStream);
  }
  bool holds(int32_t slot, int32_t position) const { return store->holds(steps.cache.host_record(slot, position)); }

  HeldStore* store = nullptr;
  CacheOptions options;
  TestSteps steps;
};

TEST(KvCache, every_selected_row_is_the_one_that_was_written_whatever_the_order_of_streams_and_copies) {
  int64_t compared = 0, evicted = 0, unspilled = 0;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    CacheOptions o = small_options();
    const DType types[] = {DType::kF32, DType::kBF16, DType::kI8, DType::kF8E4M3};
    o.format.type = types[seed / 2 % 4];
    o.num_ways = seed % 4 == 0 ? 8 : 2;
    o.window_rows = seed % 5 == 0 ? 2 : 6;
    o.guard = seed % 4 == 3 ? device::Guard::kProtected : device::Guard::kNone;
    o.reference_ops = seed % 6 == 1;
    std::unique_ptr<ops::RowStore> inner;
    DelayedRowStore* store = nullptr;
    o.decorate_store = [&](std::unique_ptr<ops::RowStore> made) -> std::unique_ptr<ops::RowStore> {
      inner = std::move(made);
      auto delayed = std::make_unique<DelayedRowStore>(*inner, tidepool::testing::DelayOptions{seed, 40, 0, nullptr});
      store = delayed.get();
      return delayed;
    };
    TestSteps steps(o,
                    {.num_threads = 1 + static_cast<int>(seed % 2),
                     .schedule = device::Schedule::kRandom,
                     .seed = seed,
                     .check_order = true},
                    seed);
    steps.executor.add_pump([&] { return store->pump(); });
    RandomRequests(steps, o, seed).run(7);
    ASSERT_EQ(fmt::format("{}", fmt::join(steps.problems(), "\n")), "") << "seed " << seed;
    steps.cache.settle();
    ASSERT_EQ(fmt::format("{}", fmt::join(store->violations(), "\n")), "") << "seed " << seed;
    EXPECT_EQ(steps.cache.num_free_slots(), o.max_cache_slots);
    compared += steps.rows_compared();
    for (int32_t slot = 0; slot < o.max_cache_slots; ++slot) {
      EXPECT_EQ(steps.cache.status(slot), ops::RequestStatus::kOk);
      for (const Counts& counts : steps.cache.slot_counts(slot))
        evicted += counts.evicted, unspilled += counts.unspilled;
    }
  }
  EXPECT_GT(compared, 100'000);
  EXPECT_GT(evicted, 0);
  EXPECT_GT(unspilled, 0);
}

TEST(KvCache, resident_rows_are_the_ones_that_were_written) {
  CacheOptions o = small_options();
  o.route = Route::kOff;
  TestSteps steps(o, {.check_order = true});
  RandomRequests(steps, o, 3).run(7);
  EXPECT_EQ(fmt::format("{}", fmt::join(steps.problems(), "\n")), "");
  EXPECT_GT(steps.rows_compared(), 5'000);
}

// Pushes the same decode step again and again with nothing of the host in between; the order checker's sentence.
std::string refusal_back_to_back(const std::vector<std::vector<int32_t>>& groups) {
  CacheOptions o = small_options();
  o.layer_groups = groups;
  o.num_layers = groups.back().back() + 1;
  o.spill_turns = 1;
  TestSteps steps(o, {.check_order = true});
  const int32_t a = steps.open(100), b = steps.open(100);
  for (int32_t i = 0; i < 30; i += 10) steps.step({{}, {a, i, 10}});
  for (int32_t i = 0; i < 40; i += 20) steps.step({{}, {b, i, 20}});
  const StepRows rows = decode({{a, 31}, {b, 41}});
  device::OpList list;
  steps.begin(rows);
  steps.executor.begin_capture(list);
  std::string refusal;
  try {
    steps.push_layers(rows, false);
    steps.cache.end_pass();
    steps.executor.end_capture();
    for (int i = 0; i < 3; ++i) {
      steps.executor.replay(list);
      steps.cache.end_replayed_pass();
    }
  } catch (const Error& error) {
    refusal = error.what();
  }
  return refusal;
}

// The host waits between steps as well. Events must be enough without it: what a step replayed back to back relies on.
TEST(KvCache, steps_pushed_one_behind_the_other_without_the_host_are_ordered_by_events) {
  EXPECT_EQ(refusal_back_to_back({{0}}), "");
  EXPECT_EQ(refusal_back_to_back({{0, 1, 2}}), "");
  EXPECT_EQ(refusal_back_to_back({{0}, {1}, {2}}), "");
  EXPECT_EQ(refusal_back_to_back({{0}, {1}, {2, 3, 4, 5}}), "");
  EXPECT_EQ(refusal_back_to_back({{0, 1, 2}, {3}, {4, 5}}), "");
}

// Operations of a captured step, with what they declare when pushed.
template <typename Visit>
void each_operation(const device::OpList& list, Visit visit) {
  for (size_t at = 0; at < list.bytes().size();) {
    device::Entry entry;
    std::memcpy(&entry, &list.bytes()[at], sizeof(entry));
    alignas(16) std::byte params[device::kMaxParamsBytes];
    std::memcpy(params, &list.bytes()[at + sizeof(entry)], entry.params_bytes);
    if (entry.kind == device::EntryKind::kOp) visit(*entry.type, static_cast<const void*>(params));
    at += entry.bytes;
  }
}

TEST(KvCache, a_spill_declares_at_its_push_the_records_that_it_will_write) {
  Held held(device::Schedule::kPreferMain, 1, 16);
  TestSteps& steps = held.steps;
  const int32_t slot = steps.open(100);
  for (int32_t len = 1; len <= 5; ++len) {  // the spills of all these steps are still to come
    device::OpList list;
    steps.begin(decode({{slot, len}}));
    steps.executor.begin_capture(list);
    held.finish(decode({{slot, len}}));
    steps.executor.end_capture();
    std::set<uint64_t> records;
    each_operation(list, [&](const device::OpType& type, const void* params) {
      if (&type != &ops::spill_cpu()) return;
      device::AccessList accesses;
      type.declare(params, accesses);
      for (const auto& access : accesses.ranges()) {
        if (access.space != 0) records.insert(access.begin);
      }
    });
    EXPECT_EQ(records, std::set<uint64_t>{static_cast<uint64_t>(steps.cache.host_record(slot, len - 1))}) << len;
  }
}

TEST(KvCache, what_counts_as_spilled_is_in_the_store_and_the_ring_keeps_the_rest) {
  int64_t behind = 0, risen = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const int32_t window = seed % 2 == 0 ? 4 : 16;
    Held held(seed % 4 < 2 ? device::Schedule::kRandom : device::Schedule::kPreferMain, seed, window);
    auto& cache = held.steps.cache;
    const int32_t a = held.steps.open(190), b = held.steps.open(190);
    int32_t a_len = 0, b_len = 0;
    for (int32_t step = 0; step < 60; ++step) {
      StepRows rows = decode({{a, ++a_len}});
      if (step % 9 < 2) {
        rows.chunk = {b, b_len, 7};
        b_len += 7;
      }
      held.steps.begin(rows);
      ASSERT_GT(cache.spilled_len(a), a_len - 1 - window) << "the new row takes the place of one that is nowhere else";
      for (int32_t p = 0; p < cache.spilled_len(a); ++p) ASSERT_FALSE(held.holds(a, p)) << p;
      for (int32_t p = 0; p < cache.spilled_len(b); ++p) ASSERT_FALSE(held.holds(b, p)) << p;
      ASSERT_EQ(cache.spilled_len(b), b_len - rows.chunk.count) << "rows of a chunk are in no ring";
      behind += cache.spilled_len(a) < a_len - 1;
      risen += cache.spilled_len(a) > 0;
      held.finish(rows);
    }
    EXPECT_EQ(fmt::format("{}", fmt::join(held.steps.problems(), "\n")), "");
  }
  EXPECT_GT(behind, 100);
  EXPECT_GT(risen, 100);
}

TEST(KvCache, a_closed_slot_is_not_free_while_a_copy_to_its_blocks_is_to_come) {
  int64_t waited = 0, freed = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Held held(device::Schedule::kRandom, seed, 16);
    auto& cache = held.steps.cache;
    const int32_t a = held.steps.open(60), b = held.steps.open(60);
    for (int32_t len = 1; len <= 6; ++len) held.steps.step(decode({{a, len}, {b, len}}));
    std::vector<int32_t> records;
    for (int32_t p = 0; p < 6; ++p) records.push_back(cache.host_record(a, p));
    const int32_t free_before = cache.num_free_slots();
    cache.close(a);
    EXPECT_EQ(cache.num_free_slots(), free_before);
    for (int32_t len = 7; len <= 20; ++len) {
      held.steps.begin(decode({{b, len}}));
      const bool is_free = cache.num_free_slots() > free_before;
      for (int32_t record : records)
        ASSERT_FALSE(is_free && held.store->holds(record)) << "seed " << seed << " " << len;
      waited += !is_free;
      freed += is_free;
      held.finish(decode({{b, len}}));
    }
    cache.settle();
    EXPECT_GT(cache.num_free_slots(), free_before);
    for (int32_t record : records) EXPECT_FALSE(held.store->holds(record));
  }
  EXPECT_GT(waited, 20);
  EXPECT_GT(freed, 20);
}

TEST(KvCache, a_new_request_inherits_nothing_of_the_one_that_had_its_slot) {
  CacheOptions o = small_options();
  o.max_cache_slots = 1;
  TestSteps steps(o, {});
  const int32_t slot = steps.open(150);
  for (int32_t at = 0; at < 100; at += 20) steps.step({{}, {slot, at, 20}});
  for (int32_t len = 101; len <= 130; ++len) steps.step(decode({{slot, len}}));
  EXPECT_GE(steps.cache.spilled_len(slot), 100);
  Counts sum;
  for (const Counts& counts : steps.cache.slot_counts(slot)) sum += counts;
  for (int64_t count : {sum.hits, sum.misses, sum.window, sum.fetched_rows, sum.installed, sum.evicted})
    EXPECT_GT(count, 0);
  *const_cast<int32_t*>(steps.cache.status_word(slot)) = static_cast<int32_t>(ops::RequestStatus::kFetchFailed);
  steps.cache.close(slot);
  steps.cache.settle();
  ASSERT_EQ(steps.open(150), slot);
  EXPECT_EQ(steps.cache.status(slot), ops::RequestStatus::kOk);
  EXPECT_EQ(steps.cache.spilled_len(slot), 0);
  for (const Counts& c : steps.cache.slot_counts(slot)) {
    for (int64_t count : {c.hits, c.misses, c.window, c.unspilled, c.fetched_rows, c.installed, c.evicted, c.wraps})
      EXPECT_EQ(count, 0);
  }
  steps.step({{}, {slot, 0, 5}});  // resets, and installs nothing
  for (int32_t g = 0; g < 3; ++g) {
    const auto& state = steps.cache.group_state(g);
    EXPECT_TRUE(
        std::all_of(state.token_of_slot, state.token_of_slot + o.pool_size, [](int32_t token) { return token == -1; }));
    EXPECT_TRUE(
        std::all_of(state.slot_of_token, state.slot_of_token + state.id_range, [](int32_t at) { return at == -1; }));
    EXPECT_TRUE(std::all_of(state.cursor, state.cursor + state.num_sets, [](int32_t way) { return way == 0; }));
  }
  EXPECT_EQ(steps.cache.slot_resets(), 2);
}

TEST(KvCache, every_position_of_every_request_has_a_record_and_a_place_of_its_own) {
  TestSteps steps(small_options(), {});
  std::set<int32_t> records, locs;
  size_t positions = 0;
  for (int32_t tokens : {1, 33, 192}) {
    const int32_t slot = steps.open(tokens);
    for (int32_t p = 0; p < tokens; ++p) {
      records.insert(steps.cache.host_record(slot, p));
      locs.insert(steps.cache.device_loc(slot, p));
    }
    positions += static_cast<size_t>(tokens);
  }
  EXPECT_EQ(records.size(), positions);
  EXPECT_EQ(locs.size(), positions);
}

TEST(KvCache, what_does_not_fit_is_told_which_budget_is_short) {
  CacheOptions o = small_options();
  const auto says = [](const Fit& fit, Fit::Answer answer, const char* word) {
    EXPECT_EQ(fit.answer, answer) << fit.short_budget;
    EXPECT_NE(fit.short_budget.find(word), std::string::npos) << fit.short_budget;
  };
  {
    TestSteps steps(o, {});
    says(steps.cache.fit(193), Fit::Answer::kNever, "max_model_len");
    for (int i = 0; i < 3; ++i) steps.open(32);
    says(steps.cache.fit(32), Fit::Answer::kLater, "--max-num-seqs");
  }
  HostStoreOptions store;
  store.layers_of_group = {3, 1, 2};
  store.format = o.format;
  store.block_size = 32;
  o.host_budget_bytes = static_cast<uint64_t>(host_block_bytes(store)) * 8;
  {
    TestSteps steps(o, {});
    const int32_t slot = steps.open(64);
    EXPECT_EQ(steps.cache.fit(192).answer, Fit::Answer::kNow);
    steps.open(160);
    EXPECT_EQ(steps.cache.fit(32).answer, Fit::Answer::kNow);
    says(steps.cache.fit(33), Fit::Answer::kLater, "--host-kv-gib");
    steps.cache.close(slot);
    steps.cache.settle();
    EXPECT_EQ(steps.cache.fit(96).answer, Fit::Answer::kNow);
  }
  o.host_budget_bytes = static_cast<uint64_t>(host_block_bytes(store)) * 6 - 1;
  EXPECT_THROW(TestSteps(o, {}), Error);
  o.host_budget_bytes = 0;
  o.device_budget_bytes = TestSteps(o, {}).cache.arena().used_bytes();
  EXPECT_LE(TestSteps(o, {}).cache.arena().used_bytes(), o.device_budget_bytes);
  const uint64_t block = 32 * 4 * 2 * 3;  // keys of three groups
  o.device_budget_bytes -= 11 * block;
  {
    TestSteps steps(o, {});
    EXPECT_LE(steps.cache.arena().used_bytes(), o.device_budget_bytes);
    steps.open(192);
    EXPECT_EQ(steps.cache.fit(32).answer, Fit::Answer::kNow);
    says(steps.cache.fit(33), Fit::Answer::kLater, "--device-kv-gib");
  }
}

}  // namespace
}  // namespace tidepool::cache
