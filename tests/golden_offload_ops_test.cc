// Golden operator cases: what the published plan, serve and install made of random inputs, step by step. Every
// offload_ops*.json.gz of $TIDEPOOL_GOLDEN_DIR (default: the repository's tests/golden) is run with reference and cpu
// operators, in both row layouts, with everything final spilled and with the spill lagging behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "golden_ops.h"
#include "op_cases.h"

namespace tidepool::testing {
namespace {

using base::Json;

constexpr const char* kFields[] = {"plan", "misses", "actual", "selection_tag", "token_of_slot", "cursor", "pool_tag"};

using Fields = std::map<std::string, Values>;

struct GoldenCase {
  std::string name;
  int32_t batch, q_len, topk, pool, ways, id_range, full_seq;
  std::vector<Values> step_topk, step_seq_len;
  std::vector<Fields> expected;  // by step
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

GoldenCase parse_case(const Json& json, const std::string& name) {
  const auto number = [&](const char* key) { return static_cast<int32_t>(json.at(key, name).as_int(key)); };
  GoldenCase c{name,
               number("batch"),
               number("q_len"),
               number("topk"),
               number("pool"),
               number("ways"),
               number("id_range"),
               number("full_seq"),
               {},
               {},
               {}};
  for (const Json& step : json.at("steps", name).as_array()) {
    c.step_topk.push_back(ints(step.at("topk", name)));
    c.step_seq_len.push_back(ints(step.at("seq_len", name)));
    Fields& fields = c.expected.emplace_back();
    for (const char* field : kFields) fields[field] = ints(step.at(field, name));
  }
  return c;
}

std::vector<GoldenCase> golden_cases() {
  std::vector<GoldenCase> cases;
  for_each_golden_case("offload_ops",
                       [&](const Json& json, const std::string& name) { cases.push_back(parse_case(json, name)); });
  return cases;
}

// The cache slot of a request is not its batch row.
int32_t slot_of(const GoldenCase& c, int32_t b) { return c.batch - b; }

OpGeometry geometry_of(const GoldenCase& c, const Variant& variant) {
  OpGeometry g;
  g.max_rows = c.batch + 1;
  g.num_cache_slots = c.batch + 1;
  g.q_len = c.q_len, g.topk = c.topk;
  g.num_sets = c.pool / c.ways, g.num_ways = c.ways, g.id_range = c.id_range;
  g.window_rows = c.q_len + variant.spill_lag;
  g.block_size = 128;
  g.max_blocks = (c.full_seq + g.block_size - 1) / g.block_size;
  g.layout = variant.layout;
  return g;
}

OpStep step_of(const GoldenCase& c, const Variant& variant, size_t step) {
  OpStep s;
  s.num_rows = c.batch;
  for (int32_t b = 0; b < c.batch; ++b) {
    s.cache_slot.push_back(slot_of(c, b));
    s.seq_len.push_back(c.step_seq_len[step][static_cast<size_t>(b)]);
    s.spilled_len.push_back(std::max(s.seq_len.back() - c.q_len - variant.spill_lag, 0));
  }
  s.cache_slot.push_back(0);
  s.seq_len.push_back(9);
  s.spilled_len.push_back(8);
  s.topk = c.step_topk[step];
  s.topk.resize(s.topk.size() + static_cast<size_t>(c.q_len * c.topk));
  return s;
}

// Tags of the rows of one layer, by the rows' bytes.
class Tags {
 public:
  Tags(const GoldenCase& c, const OpWorld& world, int32_t layer) {
    tags_[std::string(static_cast<size_t>(world.geometry().format.row_bytes()), '\0')] = 0;
    for (int32_t b = 0; b < c.batch; ++b) {
      for (int32_t i = 0; i < c.full_seq; ++i) tags_[key(world.row(slot_of(c, b), layer, i))] = b * c.full_seq + i + 1;
    }
  }
  // -1: no row of this layer has these bytes.
  int32_t operator()(const RowPlanes& planes, int64_t row) const {
    const auto found = tags_.find(key(read_row(planes, row)));
    return found == tags_.end() ? -1 : found->second;
  }

 private:
  static std::string key(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::map<std::string, int32_t> tags_;
};

// What the operators made of one step, in the golden files' words; rows as one layer has them.
Fields fields_of(const GoldenCase& c, OpWorld& world, const Tags& tags, int32_t layer) {
  Fields f;
  const int32_t entries = c.q_len * c.topk, num_sets = c.pool / c.ways;
  for (int32_t b = 0; b < c.batch; ++b) {
    const int32_t slot = slot_of(c, b);
    for (int32_t r = b * entries; r < (b + 1) * entries; ++r) {
      const auto& entry = world.plan[static_cast<size_t>(r)];
      f["plan"].insert(f["plan"].end(), {entry.source, entry.index});
      f["selection_tag"].push_back(tags(world.selection(layer), r));
    }
    for (int32_t i = 0; i < world.num_records[static_cast<size_t>(b)]; ++i) {
      const auto& record = world.records[static_cast<size_t>(b * entries + i)];
      f["misses"].insert(f["misses"].end(), {record.set, record.position, record.query, record.place});
    }
    for (int32_t q = 0; q < c.q_len; ++q) f["actual"].push_back(world.valid_len[static_cast<size_t>(b * c.q_len + q)]);
    for (int32_t at = 0; at < c.pool; ++at) {
      f["pool_tag"].push_back(tags(world.pool(layer), slot * c.pool + at));
      f["token_of_slot"].push_back(world.token_of_slot[static_cast<size_t>(slot * c.pool + at)]);
    }
    for (int32_t set = 0; set < num_sets; ++set) {
      f["cursor"].push_back(world.cursor[static_cast<size_t>(slot * num_sets + set)]);
    }
  }
  return f;
}

void compare(const Fields& got, const Fields& want, const std::string& where, std::vector<std::string>& mismatches) {
  for (const char* field : kFields) {
    const auto found = got.find(field);
    const Values none, &a = found == got.end() ? none : found->second, &b = want.at(field);
    const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    if (x == a.end() && y == b.end()) continue;
    mismatches.push_back(where + ": " + field + " differs first at " + std::to_string(x - a.begin()) + " (" +
                         std::to_string(a.size()) + " values, " + std::to_string(b.size()) + " expected)");
  }
}

// One sentence for every field of every step and layer that is not as the file has it.
std::vector<std::string> mismatches_of(const GoldenCase& c, const Variant& variant) {
  OpWorld world(geometry_of(c, variant), variant.ops);
  std::vector<Tags> tags;
  for (int32_t layer = 0; layer < world.geometry().num_layers; ++layer) tags.emplace_back(c, world, layer);
  std::vector<std::string> mismatches;
  for (size_t step = 0; step < c.expected.size(); ++step) {
    world.run_step(step_of(c, variant, step));
    const std::string where = c.name + ", " + variant.name + ", " + layout_name(variant.layout) + ", spill lag " +
                              std::to_string(variant.spill_lag) + ", step " + std::to_string(step);
    for (int32_t layer = 0; layer < world.geometry().num_layers; ++layer) {
      compare(fields_of(c, world, tags[static_cast<size_t>(layer)], layer), c.expected[step],
              where + ", layer " + std::to_string(layer), mismatches);
    }
    for (std::string& problem : world.integrity()) mismatches.push_back(where + ": " + std::move(problem));
    for (int32_t word : world.status) {
      if (word != 0) mismatches.push_back(where + ": status " + std::to_string(word));
    }
  }
  return mismatches;
}

TEST(GoldenOffloadOps, EveryCaseGivesThePublishedResultExactly) {
  const auto cases = golden_cases();
  ASSERT_FALSE(cases.empty()) << "no offload_ops*.json.gz with cases in " << golden_ops_dir();
  for (const GoldenCase& c : cases) {
    ASSERT_FALSE(c.expected.empty()) << c.name;
    for (const Variant& variant : variants()) {
      for (const std::string& mismatch : mismatches_of(c, variant)) ADD_FAILURE() << mismatch;
    }
  }
}

TEST(GoldenOffloadOps, OneChangedExpectedValueOfAnyKindIsAMismatch) {
  const auto cases = golden_cases();
  ASSERT_FALSE(cases.empty()) << "no offload_ops*.json.gz with cases in " << golden_ops_dir();
  for (const char* field : kFields) {
    for (size_t step : {size_t{0}, cases.front().expected.size() - 1}) {
      GoldenCase changed = cases.front();
      Values& values = changed.expected[step][field];
      ASSERT_FALSE(values.empty()) << field;
      values[values.size() / 2] += 1;
      const auto mismatches = mismatches_of(changed, variants().back());
      // One per layer, each naming the field.
      ASSERT_EQ(mismatches.size(), 2u) << field;
      EXPECT_NE(mismatches[0].find(std::string(": ") + field + " differs"), std::string::npos) << mismatches[0];
    }
    GoldenCase shorter = cases.front();
    shorter.expected[0][field].pop_back();
    EXPECT_EQ(mismatches_of(shorter, variants().back()).size(), 2u) << field;
  }
}

TEST(GoldenOffloadOps, OneChangedInputIsAMismatch) {
  const auto cases = golden_cases();
  ASSERT_FALSE(cases.empty());
  GoldenCase changed = cases.front();
  changed.step_topk[0][0] = changed.step_topk[0][0] == 0 ? 1 : 0;
  EXPECT_FALSE(mismatches_of(changed, variants().back()).empty());
  changed = cases.front();
  changed.step_seq_len[1][0] = 2;
  EXPECT_FALSE(mismatches_of(changed, variants().back()).empty());
}

}  // namespace
}  // namespace tidepool::testing
