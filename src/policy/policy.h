// Replacement policies: which set a token position belongs to, and which way of a full set gives way.
//
// One policy is one struct of static functions (concept Policy), used alike by the install operator, by plan (the set
// index) and by trace replay. A policy sees one set at a time, through SetState, and nothing else: every layer of a
// group replays the same walk on private copies of that state, so a choice that looked elsewhere could differ between
// layers. Functions are pure but for the SetState they are given: any thread, no allocation.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>

namespace tidepool::policy {

// Fixed numbers: they stand in GroupState and in files.
enum class Kind : int32_t { kFifo = 0 };

// Replacement state of one set, writable. Bit w of a mask stands at word w / 64. A policy that does not ask for a mask
// (kNeeds...) is given null.
struct SetState {
  int32_t num_ways;
  int32_t* cursor;         // [1] in [0, num_ways)
  const uint64_t* in_use;  // [ceil(num_ways / 64)] ways whose row is read in this step
  uint64_t* referenced;    // [ceil(num_ways / 64)] ways hit since the bit was last cleared
};

// choose_way: no way may be given up in this step; nothing is installed, the caller counts it.
inline constexpr int32_t kNoVictim = -1;

template <typename P>
concept Policy = requires(SetState& set, int32_t n) {
  { P::kKind } -> std::convertible_to<Kind>;
  { P::kName } -> std::convertible_to<std::string_view>;
  { P::kNeedsInUse } -> std::convertible_to<bool>;
  { P::kNeedsReferenced } -> std::convertible_to<bool>;
  // Set of a position >= 0; num_sets is a power of two.
  { P::set_of(n, n) } -> std::same_as<int32_t>;
  // The way a new row takes, or kNoVictim; moves the cursor.
  { P::choose_way(set) } -> std::same_as<int32_t>;
  // A row of this set is read from the pool.
  {P::hit(set, n)};
};

// The kind called `name`. Throws Error for an unknown name, and for one that is planned but not there yet, listing what
// is.
Kind kind_of(std::string_view name);
const char* name_of(Kind kind);
// Throws Error when the number is no Kind.
Kind checked_kind(int32_t number);

}  // namespace tidepool::policy
