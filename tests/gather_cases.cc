#include <algorithm>
#include <numeric>

#include "case_builder.h"
#include "op_cases.h"

namespace tidepool::testing {
namespace {

using Ids = std::vector<int32_t>;

// Positions [first, first + count).
Ids range(int32_t first, int32_t count) {
  Ids ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

void add_lists(std::vector<OpCase>& cases, const OpGeometry& base) {
  {
    CaseBuilder c("an empty list, before and after one with ids", base);
    for (const Ids& ids : {Ids{}, range(3, 9), Ids{}, range(3, 9)}) c.step({{0, 40}}), c.list(0, 0, ids);
    cases.push_back(c.finish());
  }
  {
    CaseBuilder c("negative ids anywhere in a list", base);
    c.step({{0, 40}}), c.list(0, 0, {-1, 3, -1, -1, 4, 5, -7, 6});
    c.step({{0, 41}}), c.list(0, 0, {4, -1, 9, -2, 3, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 39});
    c.step({{0, 42}}), c.list(0, 0, {-1, -1, -1, 39});
    cases.push_back(c.finish());
  }
  {
    CaseBuilder c("ids after the query's own position among others", base);
    c.step({{0, 30}}), c.list(0, 0, {5, 30, 6, 500, 7, 29});
    c.step({{0, 31}}), c.list(0, 0, {7, 31, 29, 30, 1 << 30, 5});
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.max_blocks = 2, g.window_rows = 40;
    CaseBuilder c("ids beyond the block table", g);
    c.step({{0, 32, 31}}), c.list(0, 0, {31, 30, 3});
    c.step({{0, 34, 32}}), c.list(0, 0, {3, 32, 31, 33, 30});
    c.step({{0, 35, 32}}), c.list(0, 0, {34, 30, 4, 3});
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.q_len = 3;
    CaseBuilder c("nothing is final", g);
    for (int32_t seq_len = 0; seq_len < 7; ++seq_len) c.step({{1, seq_len}});
    cases.push_back(c.finish());
  }
  {
    CaseBuilder c("repeated ids", base);
    c.step({{0, 40}}), c.list(0, 0, {7, 7, 8, 39, 39, 7});
    c.step({{0, 41}}), c.list(0, 0, {8, 8, 7, 9, 7, 7, 7});
    c.step({{0, 42}}), c.list(0, 0, {7, 7});
    c.step({{0, 43}}, {.duplicate_percent = 60});
    c.step({{0, 44}}, {.duplicate_percent = 60});
    cases.push_back(c.finish());
  }
}

// The same selections in other places.
void add_places(std::vector<OpCase>& cases, const OpGeometry& base) {
  const auto reversed = [](Ids ids) { return std::reverse(ids.begin(), ids.end()), ids; };
  {
    CaseBuilder c("every id is a hit, in the same order and in another", base);
    for (const Ids& ids : {range(8, 16), range(8, 16), reversed(range(8, 16))}) c.step({{0, 40}}), c.list(0, 0, ids);
    cases.push_back(c.finish());
  }
  {
    CaseBuilder c("no id is a hit", base);
    for (int32_t i = 0; i < 4; ++i) c.step({{0, 90 + i}}), c.list(0, 0, range(16 * (i % 2), 16));
    cases.push_back(c.finish());
  }
  {
    CaseBuilder c("a shorter list whose hits lie behind it", base);
    c.step({{0, 60}}), c.list(0, 0, range(0, 16));
    c.step({{0, 61}}), c.list(0, 0, {15, 12, 2, 14, 0});  // two stay, three move to places 1, 3 and 4
    c.step({{0, 62}}), c.list(0, 0, {0, 1, 2, 3, 12, 14, 15, 40, 41});
    c.step({{0, 63}}), c.list(0, 0, {41});
    c.step({{0, 64}}), c.list(0, 0, range(34, 16));
    c.step({{0, 65}}), c.list(0, 0, {50, 48, 64, 49, 51, 34, 47});
    cases.push_back(c.finish());
  }
  {
    CaseBuilder c("lists that grow and shrink", base);
    for (int32_t len : {1, 5, 3, 16, 15, 16, 2, 9, 8, 8, 1, 16}) c.step({{0, 70 + len}}, {90, 0, 0, 1, 24, len});
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.topk = 1;
    CaseBuilder c("lists of one entry", g);
    for (int32_t id : {4, 4, 5, -1, 5, 39, 39}) c.step({{0, 40}}), c.list(0, 0, {id});
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.q_len = 3, g.status_queries = 5, g.max_rows = 3, g.num_cache_slots = 3;
    CaseBuilder c("room for more queries than a step has", g);
    for (int32_t i = 0; i < 4; ++i) c.step({{2, 50 + 2 * i}, {-1, 40}, {0, 30 + 3 * i}});
    c.step({{1, 20}, {2, 59}}).resets = {1};
    c.step({{0, 42}, {1, 22}, {2, 60}}).resets = {2};
    cases.push_back(c.finish());
  }
}

void add_versions(std::vector<OpCase>& cases, const OpGeometry& base) {
  for (int32_t accepted = 1; accepted <= 4; ++accepted) {
    OpGeometry g = base;
    g.q_len = 4;
    CaseBuilder c("drafts of which " + std::to_string(accepted) + " rows stay", g);
    int32_t seq_len = 14;
    for (int32_t i = 0; i < 5; ++i) {
      // Each list has every visible position it can hold, the rejected ones of the step before included.
      OpStep& step = c.step({{1, seq_len}}, {.reuse_percent = 0});
      for (int32_t q = 0; q < 4; ++q) c.list(0, q, range(std::max(seq_len - 4 + q - 15, 0), 16));
      if (i > 0) step.rewritten = {{1, seq_len - 4}};
      seq_len += accepted;
    }
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.q_len = 2, g.window_rows = 16;
    CaseBuilder c("rows of earlier steps that are written again", g);
    for (int32_t i = 0; i < 5; ++i) {
      const int32_t seq_len = 30 + 2 * i, final_len = 24 + i;
      OpStep& step = c.step({{0, seq_len, final_len}});
      for (int32_t q = 0; q < 2; ++q) c.list(0, q, range(seq_len - 16 + q, 15));
      step.final_len = {final_len};
      if (i > 0) step.rewritten = {{0, final_len}};
    }
    cases.push_back(c.finish());
  }
}

void add_failures(std::vector<OpCase>& cases, const OpGeometry& base) {
  {
    OpGeometry g = base;
    g.max_rows = 2;
    CaseBuilder c("a block that is not there, of one request of two", g);
    c.step({{0, 70}, {1, 70}}), c.list(0, 0, range(0, 16));
    // The zeroed rows are listed again: what is not there is no hit.
    for (int32_t i = 1; i < 3; ++i) {
      OpStep& step = c.step({{0, 70 + i}, {1, 70 + i}});
      c.list(0, 0, range(25, 16));
      if (i == 1) step.missing_blocks = {{0, 2}};
    }
    c.step({{0, 73}, {1, 73}}), c.list(0, 0, {40, 30, 33, 39});
    cases.push_back(c.finish());
  }
  {
    CaseBuilder c("rows that the ring has lost", base);
    c.step({{0, 60, 40}}), c.list(0, 0, {39, 40, 51, 52, 59});
    c.step({{0, 61, 40}}), c.list(0, 0, {59, 51, 39, 52});
    cases.push_back(c.finish());
  }
}

void add_formats(std::vector<OpCase>& cases, const OpGeometry& base) {
  for (const auto& [type, name] :
       {std::pair{DType::kI8, "int8"}, {DType::kF8E4M3, "float8"}, {DType::kF32, "float32"}}) {
    OpGeometry g = base;
    g.format = {type, 130, 3}, g.q_len = 2;  // two scales
    CaseBuilder c(std::string("rows of ") + name, g);
    for (int32_t i = 0; i < 3; ++i) c.step({{0, 40 + i}});
    cases.push_back(c.finish());
  }
  {
    OpGeometry g = base;
    g.topk = 700, g.max_blocks = 300, g.block_size = 7, g.num_cache_slots = 1, g.num_layers = 1;
    CaseBuilder c("long lists in ascending order", g);
    for (int32_t i = 0; i < 3; ++i) {
      OpStep& step = c.step({{0, 1500 + i}}, {.reuse_percent = 80});
      std::sort(step.topk.begin(), step.topk.end());
    }
    cases.push_back(c.finish());
  }
}

}  // namespace

std::vector<OpCase> gather_cases() {
  std::vector<OpCase> cases;
  for (Layout layout : {Layout::kInterleaved, Layout::kSeparate}) {
    OpGeometry base;
    base.layout = layout;
    std::vector<OpCase> of_layout;
    add_lists(of_layout, base);
    add_places(of_layout, base);
    add_versions(of_layout, base);
    add_failures(of_layout, base);
    add_formats(of_layout, base);
    for (OpCase& c : of_layout) {
      c.name += std::string(", ") + layout_name(layout);
      cases.push_back(std::move(c));
    }
  }
  for (OpCase& c : op_cases()) cases.push_back(std::move(c));
  for (OpCase& c : cases) {
    c.name = "gather: " + c.name;
    c.geometry.gather = true;
  }
  return cases;
}

}  // namespace tidepool::testing
