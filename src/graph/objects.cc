#include "graph/objects.h"

#include <algorithm>

#include "base/check.h"

namespace tidepool::graph {
namespace {

uint64_t address_of(const void* p) { return reinterpret_cast<uint64_t>(p); }

}  // namespace

ObjectTable::ObjectTable(const CompileOptions& options, const std::vector<device::Access>& declared) {
  add_allocations(options);
  add_host_memory(options, declared);
  add_resources(options, declared);
  for (const device::Region& region : options.regions) {
    if (!region.host_ordered) continue;
    const ObjectId id = object_of({region.space, region.begin, region.end, false}, region.name.c_str());
    objects_[static_cast<size_t>(id)].host_ordered = true;
  }
}

void ObjectTable::add_allocations(const CompileOptions& options) {
  const auto add = [&](const device::Arena& arena, ObjectKind kind) {
    for (const device::Arena::Allocation& a : arena.allocations()) {
      if (a.bytes == 0) continue;
      const uint64_t begin = address_of(a.base);
      if (!by_address_.try_emplace(begin, static_cast<ObjectId>(objects_.size())).second)
        continue;  // arena given twice
      objects_.push_back({a.what, kind, 0, {begin, begin + a.bytes}});
    }
  };
  if (options.activations != nullptr) add(*options.activations, ObjectKind::kActivation);
  for (const device::Arena* arena : options.arenas) add(*arena, ObjectKind::kDevice);
}

// Ranges that overlap are one object.
void ObjectTable::add_host_memory(const CompileOptions& options, const std::vector<device::Access>& declared) {
  const auto in_arena = [&](uint64_t address) {
    const void* p = reinterpret_cast<const void*>(address);
    return (options.activations != nullptr && options.activations->contains(p)) ||
           std::any_of(options.arenas.begin(), options.arenas.end(),
                       [&](const auto* arena) { return arena->contains(p); });
  };
  struct Named {
    Range range;
    std::string name;
  };
  std::vector<Named> ranges;
  for (const device::Region& r : options.regions) {
    if (r.space == 0 && r.begin < r.end && !in_arena(r.begin)) ranges.push_back({{r.begin, r.end}, r.name});
  }
  for (const device::Access& a : declared) {
    if (a.space == 0 && !in_arena(a.begin)) ranges.push_back({{a.begin, a.end}, ""});
  }
  std::stable_sort(ranges.begin(), ranges.end(),
                   [](const Named& a, const Named& b) { return a.range.begin < b.range.begin; });
  const size_t first = objects_.size();
  for (const Named& r : ranges) {
    if (objects_.size() > first && r.range.begin < objects_.back().range.end) {
      Object& last = objects_.back();
      last.range.end = std::max(last.range.end, r.range.end);
      if (last.name.empty()) last.name = r.name;
    } else {
      by_address_[r.range.begin] = static_cast<ObjectId>(objects_.size());
      objects_.push_back({r.name, ObjectKind::kHost, 0, r.range});
    }
  }
  for (size_t i = first; i < objects_.size(); ++i) {
    if (objects_[i].name.empty()) objects_[i].name = fmt::format("host memory {}", i - first);
  }
}

void ObjectTable::add_resources(const CompileOptions& options, const std::vector<device::Access>& declared) {
  const auto add = [&](uint64_t space, Range range, const std::string& name) {
    if (space == 0 || range.begin >= range.end) return;
    const auto [at, is_new] = by_space_.try_emplace(space, static_cast<ObjectId>(objects_.size()));
    if (is_new) objects_.push_back({name, ObjectKind::kResource, space, range});
    Range& whole = objects_[static_cast<size_t>(at->second)].range;
    whole = {std::min(whole.begin, range.begin), std::max(whole.end, range.end)};
  };
  for (const device::Region& r : options.regions) add(r.space, {r.begin, r.end}, r.name);
  for (const device::Access& a : declared) add(a.space, {a.begin, a.end}, fmt::format("resource {}", a.space));
}

ObjectId ObjectTable::find(uint64_t address) const {
  const auto after = by_address_.upper_bound(address);
  if (after == by_address_.begin()) return kNone;
  const ObjectId id = std::prev(after)->second;
  return address < objects_[static_cast<size_t>(id)].range.end ? id : kNone;
}

ObjectId ObjectTable::object_of(const device::Access& access, const char* who) const {
  if (access.space != 0) return by_space_.at(access.space);
  const ObjectId id = find(access.begin);
  tidepool_check(id != kNone, "'{}' declares {} bytes of an arena outside every allocation", who,
                 access.end - access.begin);
  const Object& object = objects_[static_cast<size_t>(id)];
  tidepool_check(access.end <= object.range.end, "'{}' declares bytes [{}, {}) of '{}', which has {}", who,
                 access.begin - object.range.begin, access.end - object.range.begin, object.name, object.bytes());
  return id;
}

}  // namespace tidepool::graph
