// Golden cases of gather: what the published GatherSelectionKvCache made of random inputs, step by step. Every
// gather*.json.gz of $TIDEPOOL_GOLDEN_DIR (default: the repository's tests/golden) is run with reference and cpu
// operators, in both row layouts, with everything final spilled and with the spill lagging behind. The order of the
// places is free: a position is looked up in the status row, there and here; but a row that stays keeps its place.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "golden_ops.h"
#include "op_cases.h"

namespace tidepool::testing {
namespace {

using base::Json;

struct GoldenStep {
  Values topk, seq_len, status, selection_tag, actual;
};

struct GoldenCase {
  std::string name;
  int32_t batch, topk, full_block, max_blocks;
  Values block_table;
  std::vector<GoldenStep> steps;
  // Tag of the row of request b's position, as the file has it.
  int32_t tag(int32_t b, int32_t position) const {
    return block_table[static_cast<size_t>(b * max_blocks + position / full_block)] * full_block +
           position % full_block + 1;
  }
};

struct Variant {
  const char* name;
  OpSet ops;
  Layout layout;
  int32_t spill_lag;  // final rows that are not in the host store yet
};

std::vector<Variant> variants() {
  std::vector<Variant> list;
  for (Layout layout : {Layout::kInterleaved, Layout::kSeparate}) {
    for (int32_t lag : {0, 5}) {
      list.push_back({"ref", ref_ops(), layout, lag});
      list.push_back({"cpu", cpu_ops(), layout, lag});
    }
  }
  return list;
}

std::vector<GoldenCase> golden_cases() {
  std::vector<GoldenCase> cases;
  for_each_golden_case("gather", [&](const Json& json, const std::string& name) {
    const auto number = [&](const char* key) { return static_cast<int32_t>(json.at(key, name).as_int(key)); };
    GoldenCase& c = cases.emplace_back();
    c = {name,
         number("batch"),
         number("topk"),
         number("full_block"),
         number("max_blocks"),
         ints(json.at("block_table", name)),
         {}};
    for (const Json& step : json.at("steps", name).as_array()) {
      const auto field = [&](const char* key) { return ints(step.at(key, name)); };
      c.steps.push_back({field("topk"), field("seq_len"), field("status"), field("selection_tag"), field("actual")});
    }
  });
  return cases;
}

// The cache slot of a request is not its batch row.
int32_t slot_of(const GoldenCase& c, int32_t b) { return c.batch - b; }

OpGeometry geometry_of(const GoldenCase& c, const Variant& variant) {
  OpGeometry g;
  g.gather = true;
  g.max_rows = g.num_cache_slots = c.batch + 1;
  g.topk = c.topk;
  g.window_rows = 1 + variant.spill_lag;
  g.block_size = c.full_block, g.max_blocks = c.max_blocks;
  g.layout = variant.layout;
  return g;
}

void give_block_table(const GoldenCase& c, OpWorld& world) {
  for (int32_t i = 0; i < c.max_blocks; ++i) {
    world.block_table[static_cast<size_t>(i)] = c.batch * c.max_blocks + i;  // of the cache slot nobody has
    for (int32_t b = 0; b < c.batch; ++b) {
      world.block_table[static_cast<size_t>(slot_of(c, b) * c.max_blocks + i)] =
          c.block_table[static_cast<size_t>(b * c.max_blocks + i)];
    }
  }
}

OpStep step_of(const GoldenCase& c, const Variant& variant, const GoldenStep& golden) {
  OpStep s;
  s.num_rows = c.batch;
  for (int32_t b = 0; b < c.batch; ++b) {
    s.cache_slot.push_back(slot_of(c, b));
    s.seq_len.push_back(golden.seq_len[static_cast<size_t>(b)]);
    s.spilled_len.push_back(std::max(s.seq_len.back() - 1 - variant.spill_lag, 0));
  }
  s.cache_slot.push_back(0);
  s.seq_len.push_back(9);
  s.spilled_len.push_back(8);
  s.topk = golden.topk;
  s.topk.resize(s.topk.size() + static_cast<size_t>(c.topk));
  return s;
}

// The places of a status row by position.
std::map<int32_t, int32_t> places_of(const int32_t* status, int32_t topk) {
  std::map<int32_t, int32_t> places;
  for (int32_t place = 0; place < topk; ++place) {
    if (status[place] >= 0) places[status[place]] = place;
  }
  return places;
}

// One request in one layer, before and after a step.
class Comparison {
 public:
  Comparison(const GoldenCase& c, const GoldenStep& golden, int32_t b, OpWorld& world, int32_t layer)
      : c_(c),
        golden_(golden),
        b_(b),
        world_(world),
        layer_(layer),
        status_(world.place_status[static_cast<size_t>(layer)].data() + slot_of(c, b) * (c.topk + 1)),
        before_(places_of(status_, c.topk)) {}

  // One sentence for each thing that is not as the file has it.
  std::vector<std::string> mismatches() const {
    std::vector<std::string> list;
    const int32_t* golden_status = golden_.status.data() + b_ * (c_.topk + 1);
    const auto want = places_of(golden_status, c_.topk), got = places_of(status_, c_.topk);
    const int32_t actual = golden_.actual[static_cast<size_t>(b_)];
    if (status_[c_.topk] != actual || golden_status[c_.topk] != actual) list.push_back("the number of places differs");
    if (got.size() != static_cast<size_t>(actual) || want.size() != got.size()) list.push_back("positions differ");
    for (const auto& [position, golden_place] : want) {
      const auto found = got.find(position);
      if (found == got.end()) {
        list.push_back("position " + std::to_string(position) + " has no place");
        continue;
      }
      const int32_t tag = golden_.selection_tag[static_cast<size_t>(b_ * c_.topk + golden_place)];
      if (c_.tag(b_, position) != tag || !has_row(found->second, position)) {
        list.push_back("the row of position " + std::to_string(position) + " differs");
      }
      const auto old = before_.find(position);
      const bool is_final = position <= std::max(golden_.seq_len[static_cast<size_t>(b_)] - 2, 0);
      if (old != before_.end() && is_final && old->second < actual && old->second != found->second) {
        list.push_back("position " + std::to_string(position) + " has lost its place");
      }
    }
    for (int32_t i = 0; i < c_.topk; ++i) {
      const auto found = got.find(golden_.topk[static_cast<size_t>(b_ * c_.topk + i)]);
      const RowLocation& at = world_.locations[static_cast<size_t>(b_ * c_.topk + i)];
      const RowLocation listed =
          found == got.end() ? RowLocation{} : RowLocation{Place::kSelection, row(found->second)};
      if (at.place != listed.place || at.index != listed.index) {
        list.push_back("entry " + std::to_string(i) + " is told another place");
      }
    }
    return list;
  }

 private:
  int32_t row(int32_t place) const { return slot_of(c_, b_) * c_.topk + place; }
  bool has_row(int32_t place, int32_t position) const {
    return read_row(world_.selection(layer_), row(place)) == world_.row(slot_of(c_, b_), layer_, position);
  }
  const GoldenCase& c_;
  const GoldenStep& golden_;
  int32_t b_;
  OpWorld& world_;
  int32_t layer_;
  const int32_t* status_;
  std::map<int32_t, int32_t> before_;
};

std::vector<std::string> mismatches_of(const GoldenCase& c, const Variant& variant) {
  OpWorld world(geometry_of(c, variant), variant.ops);
  give_block_table(c, world);
  std::vector<std::string> mismatches;
  for (size_t step = 0; step < c.steps.size(); ++step) {
    const std::string where = c.name + ", " + variant.name + ", " + layout_name(variant.layout) + ", spill lag " +
                              std::to_string(variant.spill_lag) + ", step " + std::to_string(step);
    world.begin_step(step_of(c, variant, c.steps[step]));
    for (const auto& call : world.calls()) {
      std::vector<Comparison> comparisons;
      for (int32_t layer = 0; layer < world.geometry().num_layers; ++layer) {
        if (call.name != "gather " + std::to_string(layer)) continue;
        for (int32_t b = 0; b < c.batch; ++b) comparisons.emplace_back(c, c.steps[step], b, world, layer);
      }
      world.poison_outputs(call);
      world.run(call);
      for (const Comparison& comparison : comparisons) {
        for (const std::string& mismatch : comparison.mismatches()) {
          mismatches.push_back(where + ", " + call.name + ": " + mismatch);
        }
      }
    }
    for (std::string& problem : world.integrity()) mismatches.push_back(where + ": " + std::move(problem));
    for (int32_t word : world.status) {
      if (word != 0) mismatches.push_back(where + ": status " + std::to_string(word));
    }
  }
  return mismatches;
}

TEST(GoldenGather, EveryCaseGivesThePublishedResultExactly) {
  const auto cases = golden_cases();
  ASSERT_FALSE(cases.empty()) << "no gather*.json.gz with cases in " << golden_ops_dir();
  for (const GoldenCase& c : cases) {
    ASSERT_FALSE(c.steps.empty()) << c.name;
    for (const Variant& variant : variants()) {
      for (const std::string& mismatch : mismatches_of(c, variant)) ADD_FAILURE() << mismatch;
    }
  }
}

TEST(GoldenGather, OneChangedValueOfAnyKindIsAMismatch) {
  const auto cases = golden_cases();
  ASSERT_FALSE(cases.empty()) << "no gather*.json.gz with cases in " << golden_ops_dir();
  for (Values GoldenStep::*field : {&GoldenStep::status, &GoldenStep::selection_tag, &GoldenStep::actual,
                                    &GoldenStep::seq_len, &GoldenStep::topk}) {
    for (size_t step : {size_t{0}, cases.front().steps.size() - 1}) {
      GoldenCase changed = cases.front();
      Values& values = changed.steps[step].*field;
      ASSERT_FALSE(values.empty());
      // A length that hides the newest position, another position, another number.
      values[values.size() / 2] = field == &GoldenStep::seq_len ? 3 : values[values.size() / 2] + 1;
      EXPECT_FALSE(mismatches_of(changed, variants().back()).empty()) << step;
    }
  }
}

TEST(GoldenGather, ARowThatLosesItsPlaceIsAMismatch) {
  const GoldenCase c = golden_cases().at(0);
  OpWorld world(geometry_of(c, variants()[0]), ref_ops());
  give_block_table(c, world);
  world.run_step(step_of(c, variants()[0], c.steps[0]));
  // Two places changed, status and rows: every row is still the one of its position.
  int32_t* places = world.place_status[0].data() + slot_of(c, 0) * (c.topk + 1);
  const Comparison comparison(c, c.steps[0], 0, world, 0);
  const int32_t row = slot_of(c, 0) * c.topk;
  const auto bytes = read_row(world.selection(0), row);
  write_row(world.selection(0), row, read_row(world.selection(0), row + 1));
  write_row(world.selection(0), row + 1, bytes);
  std::swap(places[0], places[1]);
  world.locations[0].index = row + 1;
  world.locations[1].index = row;
  const auto mismatches = comparison.mismatches();
  ASSERT_EQ(mismatches.size(), 2u);
  for (const std::string& mismatch : mismatches) EXPECT_NE(mismatch.find("has lost its place"), std::string::npos);
}

}  // namespace
}  // namespace tidepool::testing
