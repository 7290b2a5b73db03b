// An operation: what a stream executes.
//
// operation = operator type (functions, static) + parameters (trivially copyable bytes, stored in the stream's ring).
// Everything that varies from step to step (lengths, tables, slots, counts) lives in memory the parameters point to,
// never in the parameters: the bytes of a step can be replayed as they are.
//
// An operator is a grid of independent pieces, as thread blocks are on a GPU: pieces of one operation may run in any
// order and at the same time, and never wait for each other. How many pieces there are is asked when the operation
// starts (it may depend on memory); which thread runs a piece never changes a result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tidepool::device {

// A range that an operation reads or writes: bytes of memory (space 0: begin/end are addresses), or positions of a
// named resource that has no address (space = any other number, for example one request's rows in a host store).
struct Access {
  uint64_t space;
  uint64_t begin;
  uint64_t end;  // exclusive
  bool write;
};

// declare() is asked when an operation is pushed and, where memory is protected, again when it is about to run. It may
// read the parameters and memory the host writes before it pushes a step; never what an operation computes, so what
// depends on that is declared as far as it may reach.
//
// It is also asked for every step (for_every_step) of an operation that was recorded and will be replayed in steps with
// as many rows: then whatever the same parameters let it touch in any of them is declared, whatever lengths and tables
// in memory say in this one. Where they only choose a part of an array that outlives the step (a cache slot, a row),
// any part of it stands for the whole; arrays that are written anew in each step are declared as far as they may ever
// be used, and as read too by an operation that leaves some of what it declares to write as others have written it.
class AccessList {
 public:
  explicit AccessList(bool about_to_run = false) : about_to_run_(about_to_run) {}
  static AccessList for_every_step() {
    AccessList list;
    list.every_step_ = true;
    return list;
  }
  // False: the operation is being pushed.
  bool about_to_run() const { return about_to_run_; }
  bool every_step() const { return every_step_; }
  void read(const void* base, size_t bytes) { add(0, reinterpret_cast<uint64_t>(base), bytes, false); }
  void write(const void* base, size_t bytes) { add(0, reinterpret_cast<uint64_t>(base), bytes, true); }
  void read_resource(uint64_t space, uint64_t begin, uint64_t end) { add(space, begin, end - begin, false); }
  void write_resource(uint64_t space, uint64_t begin, uint64_t end) { add(space, begin, end - begin, true); }
  const std::vector<Access>& ranges() const { return ranges_; }
  void clear() { ranges_.clear(); }

 private:
  void add(uint64_t space, uint64_t begin, uint64_t length, bool write) {
    if (length > 0) ranges_.push_back({space, begin, begin + length, write});
  }
  bool about_to_run_;
  bool every_step_ = false;
  std::vector<Access> ranges_;
};

// What one launch moves and computes, for floors, the timeline and the virtual clock. Exact for the values in memory
// when it is asked (the operation need not have run).
struct Cost {
  uint64_t read_bytes = 0;     // device memory
  uint64_t write_bytes = 0;    // device memory
  uint64_t link_bytes = 0;     // host <-> device
  uint64_t multiply_adds = 0;  // fp32
};

// Which part of a step an operator belongs to; benchmarks list parts beside their floors.
enum class Part : int32_t {
  kOther,
  kProjection,
  kIndexer,
  kTopk,
  kAttention,
  kExperts,
  kHead,
  kPlan,
  kServe,
  kInstall,
  kSpill
};
constexpr const char* part_name(Part part) {
  constexpr const char* kNames[] = {"other", "projections", "indexer", "topk",    "attention", "experts",
                                    "head",  "plan",        "serve",   "install", "spill"};
  return kNames[static_cast<int32_t>(part)];
}

struct OpType {
  const char* name;  // static storage
  Part part;
  int32_t params_bytes;
  int32_t (*num_pieces)(const void* params);                           // >= 0; 0: nothing to do
  void (*run)(const void* params, int32_t piece, int32_t num_pieces);  // must not throw; failures are status words
  void (*declare)(const void* params, AccessList& accesses);           // every byte it may read or write
  Cost (*cost)(const void* params);
};

inline constexpr int32_t kMaxParamsBytes = 1024;

// Builds an OpType from typed functions of one parameter struct:
//   make_op_type<Params, num_pieces, run, declare, cost>("name", Part::k...)
template <typename Params, int32_t (*NumPieces)(const Params&), void (*Run)(const Params&, int32_t, int32_t),
          void (*Declare)(const Params&, AccessList&), Cost (*CostOf)(const Params&)>
constexpr OpType make_op_type(const char* name, Part part) {
  static_assert(__is_trivially_copyable(Params) && sizeof(Params) <= kMaxParamsBytes && alignof(Params) <= 16);
  return OpType{name,
                part,
                static_cast<int32_t>(sizeof(Params)),
                [](const void* p) { return NumPieces(*static_cast<const Params*>(p)); },
                [](const void* p, int32_t piece, int32_t n) { Run(*static_cast<const Params*>(p), piece, n); },
                [](const void* p, AccessList& list) { Declare(*static_cast<const Params*>(p), list); },
                [](const void* p) { return CostOf(*static_cast<const Params*>(p)); }};
}

}  // namespace tidepool::device
