// Query rows that are attended together: no bit depends on it, and what they share is counted once.
#include "nn/attention_cases.h"
#include "nn/shared_rows.h"

namespace tidepool::nn {
namespace {

using namespace attention_cases;

constexpr int32_t kTopk = 300, kTokens = 700;

using Positions = std::vector<std::vector<int32_t>>;

// n positions, ascending, each next one 1 to `spread` further on.
std::vector<int32_t> ascending(int32_t n, int32_t spread, uint32_t seed, int32_t first = 0) {
  std::mt19937 random(seed);
  std::vector<int32_t> list;
  for (int32_t i = 0; i < n; ++i, first += 1 + static_cast<int32_t>(random() % static_cast<uint32_t>(spread)))
    list.push_back(first);
  return list;
}

// A list that leaves out some of another's positions and has some of its own.
std::vector<int32_t> varied(const std::vector<int32_t>& list, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> other;
  for (int32_t id : list) {
    if (random() % 10 != 0) other.push_back(id);
    if (random() % 10 == 0 && (other.empty() || other.back() != id + 1)) other.push_back(id + 1);
  }
  std::sort(other.begin(), other.end());
  other.erase(std::unique(other.begin(), other.end()), other.end());
  other.resize(std::min<size_t>(other.size(), kTopk));
  return other;
}

struct Case {
  const char* name;
  Positions lists;
};

std::vector<Case> all_cases() {
  const std::vector<int32_t> base = ascending(kTopk, 2, 1);
  Case random{"random", {}}, apart{"disjoint", {}}, lengths{"lengths", {}};
  for (uint32_t q = 0; q < 8; ++q) {
    random.lists.push_back(varied(base, q));
    std::vector<int32_t> own;
    for (int32_t i = 0; i < 170; ++i) own.push_back(4 * i + static_cast<int32_t>(q % 4));
    apart.lists.push_back(own);
    const std::vector<int32_t> all = ascending(kTopk, 1, 1);
    lengths.lists.push_back({all.begin(), all.begin() + std::vector<int32_t>{0, 1, 127, 128, 129, 256, 257, 300}[q]});
  }
  return {
      random,
      apart,
      lengths,
      {"identical", Positions(8, base)},
      {"empty", Positions(8)},
      // Block k of one list is all of block k + 1 of the next.
      {"shifted", {ascending(256, 1, 1, 128), ascending(256, 1, 1, 0), ascending(300, 1, 1, 256), ascending(1, 1, 1)}}};
}

enum class Where { kOnePlace, kOwnSelection, kAnyPlace };

// Lists of locations; of the positions too, as the top-k writes them.
struct Lists {
  std::vector<std::vector<RowLocation>> locations;
  std::vector<int32_t> positions;

  Lists(const StoredRows& rows, const Positions& lists, Where where, int32_t skip_every = 0)
      : positions((lists.size() + 2) * kTopk, -7) {  // rows begin at 2
    const Place places[] = {Place::kPool, Place::kWindow, Place::kStaging, Place::kHost, Place::kSelection};
    for (size_t m = 0; m < lists.size(); ++m) {
      locations.emplace_back();
      for (size_t i = 0; i < lists[m].size(); ++i) {
        const size_t place = where == Where::kOnePlace ? 0 : where == Where::kOwnSelection ? m % 5 : (m * 7 + i) % 5;
        const bool skipped = skip_every > 0 && (i * 3 + m) % static_cast<size_t>(skip_every) == 0;
        locations[m].push_back(skipped ? RowLocation{} : rows.at(places[place], lists[m][i]));
        positions[(m + 2) * kTopk + i] = lists[m][i];
      }
    }
  }
};

TEST(AttentionRuns, GiveTheBitsOfRowsAloneInEveryFormatForEveryRunAndList) {
  for (DType type : {DType::kBF16, DType::kF32, DType::kI8, DType::kF8E4M3}) {
    for (const Shape& shape : {Shape{160, 16, 9, type}, Shape{39, 6, 3, type}}) {
      const StoredRows rows(shape, kTokens, 3);
      for (const Case& c : all_cases()) {
        for (Where where : {Where::kOnePlace, Where::kAnyPlace}) {
          SCOPED_TRACE(name_of(shape) + ", lists " + c.name);
          const Lists lists(rows, c.lists, where, where == Where::kAnyPlace ? 9 : 0);
          on_each_target([&](const std::string&) {
            World world(shape, rows, kTopk, lists.locations);
            const std::vector<float> want = world.whole(Backend::kCpu);
            for (int32_t q_len : {2, 3, 4, 5}) {
              world.params.q_len = q_len;
              for (const int32_t* positions : {static_cast<const int32_t*>(nullptr), lists.positions.data()}) {
                world.params.positions = positions;
                ASSERT_EQ(bits_of(world.split(Backend::kCpu)), bits_of(want)) << q_len << (positions != nullptr);
              }
            }
          });
        }
      }
    }
  }
}

TEST(AttentionRuns, GiveTheReferencesBitsOfRowsAlone) {
  const Shape shape{40, 8, 9, DType::kI8};
  const StoredRows rows(shape, kTokens, 3);
  for (const Case& c : all_cases()) {
    const Lists lists(rows, c.lists, Where::kAnyPlace);
    World world(shape, rows, kTopk, lists.locations);
    const std::vector<float> want = world.whole(Backend::kRef);
    world.params.q_len = 3;
    world.params.positions = lists.positions.data();
    EXPECT_EQ(bits_of(world.split(Backend::kRef)), bits_of(want)) << c.name;
  }
}

TEST(AttentionRuns, OfTheFullWidthGiveTheBitsOfRowsAlone) {
  for (DType type : {DType::kBF16, DType::kF8E4M3}) {
    const Shape shape{512, 64, 8, type};
    const StoredRows rows(shape, kTokens, 3);
    const Positions random = all_cases()[0].lists;
    const Lists lists(rows, {random.begin(), random.begin() + 4}, Where::kOwnSelection);
    on_each_target([&](const std::string&) {
      World world(shape, rows, kTopk, lists.locations);
      const std::vector<float> want = world.whole(Backend::kCpu);
      world.params.q_len = 4;
      world.params.positions = lists.positions.data();
      EXPECT_EQ(bits_of(world.split(Backend::kCpu, 3)), bits_of(want));
    });
  }
}

TEST(AttentionRuns, AreFoundInTheirListsWhateverTellsThemApart) {
  const Shape shape{32, 16, 4, DType::kBF16};
  const StoredRows rows(shape, kTokens, 3);
  for (const Case& c : all_cases()) {
    for (bool by_position : {false, true}) {
      const Lists lists(rows, c.lists, by_position ? Where::kAnyPlace : Where::kOnePlace, 5);
      World world(shape, rows, kTopk, lists.locations);
      world.params.positions = by_position ? lists.positions.data() : nullptr;
      const int32_t count = std::min<int32_t>(4, static_cast<int32_t>(c.lists.size()));
      for (int32_t block = 0; block < 3; ++block) {
        SharedRows shared;
        share_rows(world.params, 2, count, block, shared);
        std::vector<int32_t> all;
        for (size_t q = 0; q < static_cast<size_t>(count); ++q) {
          int32_t entry = 0;
          for (size_t i = static_cast<size_t>(block) * 128;
               i < std::min(c.lists[q].size(), static_cast<size_t>(block + 1) * 128); ++i) {
            if (lists.locations[q][i].place == Place::kNone) continue;
            const RowLocation at = shared.at[shared.row_of[q][entry++]];
            const int32_t token = at.place == Place::kStaging ? kTokens - 1 - at.index : at.index;
            ASSERT_EQ(token, c.lists[q][i]);
            all.push_back(token);
          }
          ASSERT_EQ(shared.num_entries[q], entry);
        }
        EXPECT_EQ(shared.total_entries(), static_cast<int32_t>(all.size()));
        std::sort(all.begin(), all.end());
        all.erase(std::unique(all.begin(), all.end()), all.end());
        ASSERT_EQ(shared.num_rows, static_cast<int32_t>(all.size())) << c.name << " block " << block;
      }
    }
  }
}

// Bytes of cache rows in the cost of a split.
uint64_t row_bytes(World& world, bool with_positions) {
  const device::Cost cost = attention_split(Backend::kCpu).cost(&world.params);
  uint64_t others = 0;
  for (int32_t m = world.range[0]; m < world.range[1]; ++m) {
    const auto n = static_cast<uint64_t>(world.num_selected[static_cast<size_t>(m)]);
    others += 4 + n * sizeof(RowLocation) + (with_positions ? n * 4 : 0);
    if (n > 0) others += static_cast<uint64_t>(world.shape.heads * (world.shape.latent + world.shape.rope)) * 4;
  }
  return cost.read_bytes + cost.link_bytes - others;
}

TEST(AttentionRuns, CountEachRowOnceForTheQueryRowsThatListIt) {
  for (DType type : {DType::kBF16, DType::kI8}) {
    const Shape shape{32, 16, 4, type};
    const StoredRows rows(shape, kTokens, 3);
    const auto row = static_cast<uint64_t>(rows.format().row_bytes());
    const Positions four(4, ascending(kTopk, 2, 1));
    const Lists one_place(rows, four, Where::kOnePlace), selections(rows, four, Where::kOwnSelection);
    World world(shape, rows, kTopk, one_place.locations), apart(shape, rows, kTopk, selections.locations);
    EXPECT_EQ(row_bytes(world, false), 4 * kTopk * row);
    const uint64_t multiply_adds = attention_split(Backend::kCpu).cost(&world.params).multiply_adds;
    world.params.q_len = apart.params.q_len = 4;
    EXPECT_EQ(row_bytes(world, false), kTopk * row);
    EXPECT_EQ(attention_split(Backend::kCpu).cost(&world.params).multiply_adds, multiply_adds);
    EXPECT_EQ(row_bytes(apart, false), 4 * kTopk * row) << "places differ, and nothing says that rows are equal";
    apart.params.positions = selections.positions.data();
    EXPECT_EQ(row_bytes(apart, true), kTopk * row);
    world.params.q_len = 2;
    EXPECT_EQ(row_bytes(world, false), 2 * kTopk * row);
  }
}

TEST(AttentionRuns, DeclareThePositionsThatTheyRead) {
  const Shape shape{32, 16, 4, DType::kBF16};
  const StoredRows rows(shape, kTokens, 3);
  const Lists lists(rows, Positions(4, ascending(9, 2, 1)), Where::kOnePlace);
  World world(shape, rows, kTopk, lists.locations);
  world.params.positions = lists.positions.data();
  const auto declares = [&] {
    device::AccessList list;
    attention_split(Backend::kCpu).declare(&world.params, list);
    const auto begin = reinterpret_cast<uint64_t>(lists.positions.data() + 2 * kTopk);
    return std::any_of(list.ranges().begin(), list.ranges().end(), [&](const device::Access& a) {
      return !a.write && a.begin == begin && a.end == begin + 4 * kTopk * sizeof(int32_t);
    });
  };
  EXPECT_FALSE(declares());
  world.params.q_len = 2;
  EXPECT_TRUE(declares());
}

}  // namespace
}  // namespace tidepool::nn
