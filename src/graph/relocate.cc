#include "graph/relocate.h"

#include <fmt/format.h>

#include <cstring>

namespace tidepool::graph {
namespace {

using device::Access;

std::vector<Access> declared(const device::OpType& type, const std::vector<std::byte>& params) {
  alignas(16) std::byte aligned[device::kMaxParamsBytes];
  if (!params.empty()) std::memcpy(aligned, params.data(), params.size());
  auto list = device::AccessList::for_every_step();
  type.declare(aligned, list);
  return list.ranges();
}

bool same(const Access& a, const Access& b) {
  return a.space == b.space && a.begin == b.begin && a.end == b.end && a.write == b.write;
}

Access moved(Access access, uint64_t distance) {
  access.begin += distance;
  access.end += distance;
  return access;
}

bool lies_in(const Access& access, const Range& range) {
  return access.space == 0 && access.begin >= range.begin && access.end <= range.end;
}

enum class Effect { kNone, kMoves, kOther };

// What moving one word does to the declared accesses.
Effect effect_of(const std::vector<Access>& before, const std::vector<Access>& after, const Move& move) {
  if (before.size() != after.size()) return Effect::kOther;
  Effect effect = Effect::kNone;
  for (size_t i = 0; i < before.size(); ++i) {
    if (same(before[i], after[i])) continue;
    if (!lies_in(before[i], move.range) || !same(moved(before[i], move.distance), after[i])) return Effect::kOther;
    effect = Effect::kMoves;
  }
  return effect;
}

uint64_t word_at(const std::vector<std::byte>& params, size_t offset) {
  uint64_t word;
  std::memcpy(&word, &params[offset], sizeof(word));
  return word;
}

void set_word(std::vector<std::byte>& params, size_t offset, uint64_t word) {
  std::memcpy(&params[offset], &word, sizeof(word));
}

}  // namespace

std::string relocate(const device::OpType& type, std::vector<std::byte>& params, const std::vector<Move>& moves) {
  const std::vector<Access> before = declared(type, params);
  std::vector<std::byte> result = params;
  for (size_t offset = 0; offset + sizeof(uint64_t) <= params.size(); offset += sizeof(uint64_t)) {
    const uint64_t word = word_at(params, offset);
    for (const Move& move : moves) {
      if (move.distance == 0 || word < move.range.begin || word >= move.range.end) continue;
      std::vector<std::byte> one = params;
      set_word(one, offset, word + move.distance);
      const Effect effect = effect_of(before, declared(type, one), move);
      if (effect == Effect::kOther) {
        return fmt::format("the word at byte {} of its parameters is not a plain pointer into what it declares",
                           offset);
      }
      if (effect == Effect::kMoves) set_word(result, offset, word + move.distance);
    }
  }
  const std::vector<Access> after = declared(type, result);
  bool proved = before.size() == after.size();
  for (size_t i = 0; proved && i < before.size(); ++i) {
    Access expected = before[i];
    for (const Move& move : moves) {
      if (lies_in(before[i], move.range)) expected = moved(before[i], move.distance);
    }
    proved = same(expected, after[i]);
  }
  if (!proved) return "what it declares does not follow the pointers in its parameters";
  params = std::move(result);
  return "";
}

}  // namespace tidepool::graph
