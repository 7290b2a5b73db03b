// A small world for the tests of this folder: memory of every kind, and an operator whose result depends on every byte
// that it reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "device/executor.h"
#include "device/test_ops.h"
#include "graph/build.h"
#include "graph/compile.h"
#include "graph/passes.h"
#include "tidepool/error.h"

namespace tidepool::graph::testing {

inline constexpr int32_t kMaxArrays = 3;

// Memory behind no address: a host store, by position.
struct Resource {
  uint64_t space = 0;
  std::vector<uint64_t> words;
};

class World;

// Words [begin + r * stride, + count) of an array, r what the world says for the replay.
struct Array {
  uint64_t* base = nullptr;
  int32_t begin = 0, count = 0, stride = 0;
};
struct MixParams {
  World* world = nullptr;
  int32_t id = 0;  // of the operation: World::runs
  int32_t num_read = 0, num_written = 0;
  Array read[kMaxArrays], written[kMaxArrays];
  Resource* resource = nullptr;  // words [resource_begin, + resource_count)
  int32_t resource_begin = 0, resource_count = 0;
  int32_t resource_written = 0;  // 1: written, 0: read
  device::Event* done = nullptr;
};

class World {
 public:
  World() : activations("activations", 4096), kv("kv", 4096) {}

  device::Arena activations, kv;
  std::deque<std::vector<uint64_t>> host;
  std::deque<Resource> resources;
  std::deque<device::Event> events;
  std::vector<int32_t> runs;     // [operations] how often each has run
  int32_t replay = 0;            // being pushed
  std::vector<int32_t> offsets;  // [replays] what Array::stride is multiplied with; empty: 0
  bool at_once = false;          // asynchronous operations are done when they return, and complete no event

  uint64_t* activation(const std::string& name, uint64_t words) {
    return activations.allocate_array<uint64_t>(words, name);
  }
  uint64_t* device(const std::string& name, uint64_t words) { return kv.allocate_array<uint64_t>(words, name); }
  uint64_t* host_array(size_t words) { return host.emplace_back(words).data(); }
  int32_t offset(int32_t of_replay) const {
    return offsets.empty() ? 0 : offsets[static_cast<size_t>(of_replay) % offsets.size()];
  }
  CompileOptions options() const {
    CompileOptions o;
    o.activations = &activations;
    o.arenas = {&kv};
    return o;
  }

  // What outlives a step: all but the activations.
  std::vector<uint64_t> kept() const {
    std::vector<uint64_t> words = words_of(kv);
    for (const auto& array : host) words.insert(words.end(), array.begin(), array.end());
    for (const Resource& r : resources) words.insert(words.end(), r.words.begin(), r.words.end());
    return words;
  }
  void fill(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (device::Arena* arena : {&activations, &kv}) {
      for (const auto& a : arena->allocations()) {
        for (uint64_t i = 0; i < a.bytes / 8; ++i) reinterpret_cast<uint64_t*>(a.base)[i] = random();
      }
    }
    for (auto& array : host) {
      for (uint64_t& word : array) word = random();
    }
    for (Resource& r : resources) {
      for (uint64_t& word : r.words) word = random();
    }
    runs.assign(runs.size(), 0);
    replay = 0;
  }
  // Overwrites activations but for those named.
  void poison(const std::vector<std::string>& but) {
    for (const auto& a : activations.allocations()) {
      if (std::find(but.begin(), but.end(), a.what) == but.end()) std::memset(a.base, 0xA5, a.bytes);
    }
  }
  static std::vector<uint64_t> words_of(const device::Arena& arena) {
    std::vector<uint64_t> words;
    for (const auto& a : arena.allocations()) {
      const auto* base = reinterpret_cast<const uint64_t*>(a.base);
      words.insert(words.end(), base, base + a.bytes / 8);
    }
    return words;
  }

  // Copies that asynchronous operations have asked for; done later, in any order, by pump.
  void later(std::function<void()> copy) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(copy));
  }
  void finish_copies() {
    while (num_waiting() > 0) pump();
  }
  bool pump() {
    std::function<void()> copy;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty() || random_() % 3 == 0) return false;
      std::swap(waiting_[random_() % waiting_.size()], waiting_.back());
      copy = std::move(waiting_.back());
      waiting_.pop_back();
    }
    copy();
    return true;
  }

 private:
  size_t num_waiting() {
    const std::lock_guard lock(mutex_);
    return waiting_.size();
  }
  std::mutex mutex_;
  std::vector<std::function<void()>> waiting_;
  std::mt19937_64 random_{99};
};

inline void mix(const MixParams& p, int32_t offset) {
  const auto first = [&](const Array& a) { return a.base + a.begin + offset * a.stride; };
  uint64_t sum = static_cast<uint64_t>(p.id) + 1;
  for (int32_t k = 0; k < p.num_read; ++k) {
    for (int32_t i = 0; i < p.read[k].count; ++i) sum = sum * 31 + first(p.read[k])[i];
  }
  uint64_t* const words = p.resource == nullptr ? nullptr : p.resource->words.data() + p.resource_begin;
  for (int32_t i = 0; i < p.resource_count && p.resource_written == 0; ++i) sum = sum * 31 + words[i];
  for (int32_t k = 0; k < p.num_written; ++k) {
    for (int32_t i = 0; i < p.written[k].count; ++i) {
      sum = sum * 6364136223846793005u + 1442695040888963407u;
      first(p.written[k])[i] = sum;
    }
  }
  for (int32_t i = 0; i < p.resource_count && p.resource_written != 0; ++i) words[i] = sum += 77;
}

inline int32_t mix_pieces(const MixParams&) { return 1; }
inline void mix_run(const MixParams& p, int32_t, int32_t) {
  World& world = *p.world;
  const int32_t offset = world.offset(world.runs[static_cast<size_t>(p.id)]++);
  if (p.done == nullptr || world.at_once) return mix(p, offset);
  world.later([p, offset] {
    mix(p, offset);
    p.done->finish_piece();
  });
}
inline void mix_declare(const MixParams& p, device::AccessList& list) {
  const int32_t offset = p.world->offset(p.world->replay);
  const auto first = [&](const Array& a) { return a.base + a.begin + offset * a.stride; };
  for (int32_t k = 0; k < p.num_read; ++k) list.read(first(p.read[k]), static_cast<size_t>(p.read[k].count) * 8);
  for (int32_t k = 0; k < p.num_written; ++k)
    list.write(first(p.written[k]), static_cast<size_t>(p.written[k].count) * 8);
  if (p.resource == nullptr) return;
  const auto begin = static_cast<uint64_t>(p.resource_begin), end = begin + static_cast<uint64_t>(p.resource_count);
  p.resource_written != 0 ? list.write_resource(p.resource->space, begin, end)
                          : list.read_resource(p.resource->space, begin, end);
}
inline device::Cost mix_cost(const MixParams&) { return {}; }

template <device::Part kPart>
const device::OpType& mix_type(const char* name) {
  // One type per name: names are what sentences show.
  static std::deque<device::OpType> types;
  for (const device::OpType& type : types) {
    if (std::strcmp(type.name, name) == 0) return type;
  }
  return types.emplace_back(device::make_op_type<MixParams, mix_pieces, mix_run, mix_declare, mix_cost>(name, kPart));
}

// Writes lists the way a test reads: step.main("plan").reads(maps, 4).writes(plan, 4).
class Step {
 public:
  explicit Step(World& world) : world_(world) {}

  class Op {
   public:
    Op(Step& step, const device::OpType& type, device::StreamId stream) : step_(step), type_(type), stream_(stream) {
      params_.world = &step.world_;
      params_.id = static_cast<int32_t>(step.world_.runs.size());
      step.world_.runs.push_back(0);
    }
    ~Op() { step_.list.append_operation(stream_, type_, &params_, params_.done); }
    Op(const Op&) = delete;
    Op& operator=(const Op&) = delete;
    Op& reads(uint64_t* base, int32_t count, int32_t begin = 0, int32_t stride = 0) {
      params_.read[params_.num_read++] = {base, begin, count, stride};
      return *this;
    }
    Op& writes(uint64_t* base, int32_t count, int32_t begin = 0, int32_t stride = 0) {
      params_.written[params_.num_written++] = {base, begin, count, stride};
      return *this;
    }
    Op& changes(uint64_t* base, int32_t count) { return reads(base, count).writes(base, count); }
    Op& resource(Resource& r, int32_t begin, int32_t count, bool written) {
      params_.resource = &r;
      params_.resource_begin = begin;
      params_.resource_count = count;
      params_.resource_written = written ? 1 : 0;
      return *this;
    }
    Op& async(device::Event& done) {
      params_.done = &done;
      return *this;
    }

   private:
    Step& step_;
    const device::OpType& type_;
    device::StreamId stream_;
    MixParams params_;
  };

  Op main(const char* name) { return Op(*this, mix_type<device::Part::kOther>(name), device::kMainStream); }
  Op side(const char* name) { return Op(*this, mix_type<device::Part::kInstall>(name), device::kSideStream); }
  Op spill(const char* name) { return Op(*this, mix_type<device::Part::kSpill>(name), device::kSpillStream); }
  Graph graph() const { return build(list, world_.options()); }

  device::OpList list;

 private:
  friend class Op;
  World& world_;
};

// Runs the operations of a list one after the other, as often as asked.
inline void run_in_order(const device::OpList& list, World& world, int32_t times) {
  world.at_once = true;
  for (world.replay = 0; world.replay < times; ++world.replay) {
    for (device::OpListReader reader(list); reader.next();) {
      if (reader.entry().kind == device::EntryKind::kOp) reader.entry().type->run(reader.params(), 0, 1);
    }
  }
  world.at_once = false;
}

// Replays a list so often, back to back, with the order checked.
inline void replay(const device::OpList& list, World& world, int32_t times, uint64_t seed) {
  device::Executor executor({.num_threads = 1 + static_cast<int>(seed % 2),
                             .schedule = device::Schedule::kRandom,
                             .seed = seed,
                             .check_order = true});
  executor.add_pump([&] { return world.pump(); });
  for (world.replay = 0; world.replay < times; ++world.replay) executor.replay(list);
  executor.synchronize_all();
  world.finish_copies();  // that nothing waited for
  executor.synchronize_all();
}

using device::testing::sentence_of;

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The operations and what each waits for: "plan: commit' | serve | install: serve"; ' means in the replay before.
inline std::string waits_of(const Graph& graph) {
  std::string out;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (i > 0) out += " | ";
    out += graph.nodes[i].type->name;
    const char* before = ": ";
    for (NodeId wait : graph.nodes[i].waits) {
      out += before;
      out += graph.nodes[static_cast<size_t>(wait)].type->name;
      if (wait >= static_cast<NodeId>(i)) out += "'";
      before = ", ";
    }
  }
  return out;
}

}  // namespace tidepool::graph::testing
