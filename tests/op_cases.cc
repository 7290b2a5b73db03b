#include "op_cases.h"

#include <algorithm>

#include "case_builder.h"

namespace tidepool::testing {
namespace {

using Row = CaseBuilder::Row;

void add_small(std::vector<OpCase>& cases, const OpGeometry& base) {
  {
    CaseBuilder c("no rows at all", base);
    c.step({});
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.max_rows = 5, g.num_cache_slots = 4;
    CaseBuilder c("inactive rows among active ones, fewer rows than there is room for", g);
    for (int32_t i = 0; i < 3; ++i) c.step({{-1, 50}, {3, 60 + i}, {-1, 0}, {1, 90 + i}});
    c.step({{-1, 0}, {-1, 0}});
    c.step({{1, 93}, {-1, 60}, {3, 63}});
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.q_len = 4;
    CaseBuilder c("sequences no longer than the queries of a step", g);
    for (int32_t seq_len : {0, 1, 2, 3, 4, 5, 6, 9}) c.step({{0, seq_len}});
    c.step({{0, -3, 0}}, {.future_percent = 100});
    c.step({{0, 3}}, {.future_percent = 50});
    cases.push_back(c.finish());
  }
  {
    CaseBuilder c("lists without any id", base);
    c.step({{0, 40}}, {.list_len = 0});
    c.step({{0, 41}});
    c.step({{0, 42}}, {.list_len = 0});
    cases.push_back(c.finish());
  }
  {
    CaseBuilder c("other negative numbers end a list too", base);
    OpStep& step = c.step({{0, 40}});
    step.topk[5] = -7;
    std::fill(step.topk.begin() + 6, step.topk.begin() + base.topk, -1);
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.q_len = 2;
    CaseBuilder c("fewer visible positions than places in the list", g);
    for (int32_t i = 0; i < 6; ++i) c.step({{1, 5 + 2 * i}});
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.q_len = 3;
    CaseBuilder c("duplicates within a list and across the queries of a row", g);
    for (int32_t i = 0; i < 4; ++i) c.step({{0, 60 + 2 * i}}, {.duplicate_percent = 50});
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.id_range = 40;
    CaseBuilder c("ids at and beyond the id range", g);
    c.step({{0, 40}});
    c.step({{0, 100}});
    c.step({{0, 101}});
    OpStep& step = c.step({{1, 45}});
    for (int32_t i = 0; i < 8; ++i) step.topk[static_cast<size_t>(i)] = 36 + i;
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.q_len = 2;
    CaseBuilder c("ids after the query's own position", g);
    for (int32_t i = 0; i < 3; ++i) c.step({{0, 30 + i}}, {.future_percent = 40});
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.num_sets = 1;
    CaseBuilder c("one set", g);
    for (int32_t i = 0; i < 5; ++i) c.step({{0, 70 + i}});
    cases.push_back(c.finish());
  }
}

void add_pool(std::vector<OpCase>& cases, const OpGeometry& base) {
  {
    OpGeometry g = base;
    g.topk = 40, g.q_len = 2, g.num_sets = 4;
    CaseBuilder c("more misses in one set than it has ways", g);
    for (int32_t i = 0; i < 5; ++i) c.step({{0, 400 + i}}, {.reuse_percent = 30, .stride = 4});
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.num_ways = 3, g.num_sets = 2;
    CaseBuilder c("a number of ways that is no power of two", g);
    for (int32_t i = 0; i < 5; ++i) c.step({{0, 50 + i}});
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.max_rows = 3, g.num_cache_slots = 4;
    CaseBuilder c("one cache slot gets a new request between steps", g);
    for (int32_t i = 0; i < 3; ++i) c.step({{2, 80 + i}, {0, 60 + i}, {1, 50 + i}});
    c.step({{2, 83}, {0, 20}, {1, 53}}).resets = {0};
    for (int32_t i = 0; i < 2; ++i) c.step({{0, 21 + i}, {2, 84 + i}, {1, 54 + i}});
    c.step({{3, 9}, {2, 30}}).resets = {3, 2};
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.max_rows = 2;
    CaseBuilder c("a request that has failed already", g);
    c.step({{0, 60}, {1, 60}});
    c.step({{0, 61}, {1, 61}}).failed = {{1, ops::RequestStatus::kSpillFailed}};
    c.step({{0, 62}, {1, 62}});
    cases.push_back(c.finish());
  }
}

void add_store(std::vector<OpCase>& cases, const OpGeometry& base) {
  {
    OpGeometry g = base;
    g.q_len = 2, g.window_rows = 24;
    CaseBuilder c("final rows that are not spilled yet", g);
    for (int32_t i = 0; i < 6; ++i) c.step({{0, 60 + i, 60 + i - 22 + 3 * (i % 4)}}, {.below = 1 << 30});
    cases.push_back(c.finish());
  }
  {
    CaseBuilder c("rows that are neither spilled nor in the window", base);
    c.step({{0, 60, 40}});
    c.step({{1, 30, 0}});
    c.step({{0, 61, 53}});
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.max_blocks = 3;
    CaseBuilder c("positions beyond the block table", g);
    c.step({{0, 48}});
    c.step({{0, 55, 48}});
    c.step({{1, 70, 48}});
    c.step({{0, 56, 48}});
    cases.push_back(c.finish());
    cases.back().steps[2].spilled_len[0] = 69;
  }
  {
    CaseBuilder c("a block that is not there", base);
    c.step({{0, 70}}).missing_blocks = {{0, 2}};
    c.step({{0, 71}});
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.window_rows = 4, g.q_len = 4;
    CaseBuilder c("a window of exactly the rows of a step", g);
    for (int32_t i = 0; i < 6; ++i) c.step({{0, 30 + 1 + i % 4 + 3 * i}});
    cases.push_back(c.finish());
  }
}

void add_final_len(std::vector<OpCase>& cases, const OpGeometry& base) {
  OpGeometry g = base;
  g.q_len = 2, g.window_rows = 12;
  for (const auto& [behind, name] : {std::pair{2, "final lengths as published"},
                                     {5, "rows of earlier steps that are not final"},
                                     {1, "final rows among those of the step"},
                                     {100, "no row is final"}}) {
    CaseBuilder c(name, g);
    for (int32_t i = 0; i < 4; ++i) {
      const int32_t seq_len = 8 + 3 * i, final_len = std::max(seq_len - behind, 0);
      c.step({{1, seq_len, std::min(final_len, seq_len - 2)}}).final_len.assign(1, final_len);
    }
    c.step({{1, 20}});  // and a step without
    cases.push_back(c.finish());
  }
}

void add_shapes(std::vector<OpCase>& cases, const OpGeometry& base) {
  for (int32_t q_len = 1; q_len <= 4; ++q_len) {
    OpGeometry g = base;
    g.q_len = q_len, g.max_rows = 3, g.num_cache_slots = 3, g.topk = 32, g.num_layers = 4;
    CaseBuilder c("three requests with q_len " + std::to_string(q_len), g);
    int32_t seq_len[3] = {70, 200, 20};
    for (int32_t i = 0; i < 8; ++i) {
      c.step({{i % 3, seq_len[0]}, {(i + 1) % 3, seq_len[1]}, {(i + 2) % 3, seq_len[2]}}, {.duplicate_percent = 5});
      std::rotate(seq_len, seq_len + 1, seq_len + 3);
      for (int32_t& len : seq_len) len += 1 + c.below(q_len);
    }
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.topk = 2 * ops::kServeSlice + 7, g.id_range = 2048, g.max_blocks = 128, g.num_sets = 16, g.q_len = 2;
    CaseBuilder c("lists longer than one slice of serve", g);
    for (int32_t i = 0; i < 3; ++i) c.step({{0, 1500 + i}}, {.reuse_percent = 90});
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.format = {DType::kBF16, 512, 64};
    CaseBuilder c("rows of the published size, bfloat16", g);
    for (int32_t i = 0; i < 3; ++i) c.step({{0, 70 + i}});
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.format = {DType::kF32, 512, 64}, g.num_layers = 1;
    CaseBuilder c("rows of the published size, float32, in a group of one layer", g);
    for (int32_t i = 0; i < 3; ++i) c.step({{0, 70 + i}});
    cases.push_back(c.finish());
  }
}

}  // namespace

std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases;
  for (Layout layout : {Layout::kInterleaved, Layout::kSeparate}) {
    OpGeometry base;
    base.layout = layout;
    std::vector<OpCase> of_layout;
    add_small(of_layout, base);
    add_pool(of_layout, base);
    add_store(of_layout, base);
    add_final_len(of_layout, base);
    add_shapes(of_layout, base);
    for (OpCase& c : of_layout) {
      c.name += std::string(", ") + layout_name(layout);
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

}  // namespace tidepool::testing
