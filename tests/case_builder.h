// Builds the cases of the case lists.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "op_cases.h"

namespace tidepool::testing {

// How a list is drawn. Ids are positions up to the query's own, but for what a case asks for.
struct Draw {
  int32_t reuse_percent = 60;     // entries taken from the request's earlier lists
  int32_t duplicate_percent = 0;  // entries repeated within the list, and taken from the other queries of the row
  int32_t future_percent = 0;     // entries after the query's own position
  int32_t stride = 1;             // ids are multiples of this
  int32_t below = 1 << 30;        // ids are below this
  int32_t list_len = 1 << 30;     // at most this many ids before the -1
};

class CaseBuilder {
 public:
  CaseBuilder(std::string name, const OpGeometry& geometry)
      : case_{std::move(name), geometry, {}}, random_(geometry.seed) {}

  OpGeometry& geometry() { return case_.geometry; }

  // A step of the rows given; spilled_len defaults to everything final.
  struct Row {
    int32_t cache_slot, seq_len;
    int32_t spilled_len = -1;
  };
  OpStep& step(const std::vector<Row>& rows, const Draw& draw = {}) {
    const OpGeometry& g = case_.geometry;
    OpStep& step = case_.steps.emplace_back();
    step.num_rows = static_cast<int32_t>(rows.size());
    const auto max_rows = static_cast<size_t>(g.max_rows);
    // What lies past num_rows looks like rows, and must not be looked at.
    step.cache_slot.assign(max_rows, 0);
    step.seq_len.assign(max_rows, 100);
    step.spilled_len.assign(max_rows, 90);
    step.topk.assign(max_rows * static_cast<size_t>(g.q_len * g.topk), 3);
    for (size_t b = 0; b < rows.size(); ++b) {
      step.cache_slot[b] = rows[b].cache_slot;
      step.seq_len[b] = rows[b].seq_len;
      step.spilled_len[b] = rows[b].spilled_len >= 0 ? rows[b].spilled_len : std::max(rows[b].seq_len - g.q_len, 0);
      for (int32_t q = 0; q < g.q_len; ++q) draw_list(step, b, q, draw);
    }
    return step;
  }
  // Replaces a list of the step added last; -1 behind the ids given.
  CaseBuilder& list(int32_t b, int32_t q, std::vector<int32_t> ids) {
    const OpGeometry& g = case_.geometry;
    ids.resize(static_cast<size_t>(g.topk), -1);
    std::copy(ids.begin(), ids.end(), case_.steps.back().topk.begin() + (b * g.q_len + q) * g.topk);
    return *this;
  }
  OpCase finish() { return std::move(case_); }
  int32_t below(int32_t limit) { return static_cast<int32_t>(random_() % static_cast<uint64_t>(limit)); }

 private:
  void draw_list(OpStep& step, size_t b, int32_t q, const Draw& draw) {
    const OpGeometry& g = case_.geometry;
    int32_t* list = step.topk.data() + (static_cast<int32_t>(b) * g.q_len + q) * g.topk;
    const int32_t own = step.seq_len[b] - (g.q_len - 1 - q) - 1;
    std::vector<int32_t> candidates;
    for (int32_t id = 0; id <= std::min(own, draw.below - 1); id += draw.stride) candidates.push_back(id);
    std::shuffle(candidates.begin(), candidates.end(), random_);
    // Ids of earlier lists first, as far as the chance says: locality from step to step.
    std::stable_partition(candidates.begin(), candidates.end(), [&](int32_t id) {
      return std::find(recent_.begin(), recent_.end(), id) != recent_.end() && below(100) < draw.reuse_percent;
    });
    const auto len = std::min({static_cast<int32_t>(candidates.size()), g.topk, draw.list_len});
    std::fill(list, list + g.topk, -1);
    for (int32_t i = 0; i < len; ++i) {
      list[i] = candidates[static_cast<size_t>(i)];
      if (i > 0 && below(100) < draw.duplicate_percent) list[i] = list[below(i)];
      if (q > 0 && below(100) < draw.duplicate_percent) list[i] = list[below(i + 1) - g.topk];
      if (list[i] < 0) list[i] = 0;
      if (below(100) < draw.future_percent) list[i] = own + 1 + below(3 * g.q_len);
      if (list[i] < 0) list[i] = 0;
    }
    std::shuffle(list, list + len, random_);
    recent_.insert(recent_.end(), list, list + len);
    if (recent_.size() > 256) recent_.erase(recent_.begin(), recent_.end() - 256);
  }

  OpCase case_;
  std::mt19937_64 random_;
  std::vector<int32_t> recent_;
};

}  // namespace tidepool::testing
