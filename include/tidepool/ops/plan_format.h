// The two buffers plan writes, field by field, and the state of one layer group that plan reads and install changes.
#pragma once

#include <atomic>
#include <cstdint>

namespace tidepool::ops {

// What plan says of one top-k entry. Numbers are the published ones.
enum class Source : int32_t {
  kNone = 0,    // list ended earlier; index -1
  kHit = 1,     // in the pool; index = slot [0, pool_size)
  kMiss = 2,    // final, not in the pool; index = position; gets an install record
  kWindow = 3,  // written in this very step (position > seq_len - q_len - 1): never pooled; index = position
  kFuture = 4,  // after the query's own position, or no valid length; index = position; row reads as zero
  kStop = 5,    // the first negative id; index = that id
};

struct PlanEntry {
  int32_t source;  // a Source
  int32_t index;
};

// A miss that install may put in the pool, in (query, place) order, repeats included.
struct InstallRecord {
  int32_t set;
  int32_t position;  // token position
  int32_t query;     // [0, q_len)
  int32_t
      place;  // [0, topk): where in the query's list; the row lies in selection row (b * q_len + query) * topk + place
};

// Status word of one request; 0 is fine, anything else ends the request with that error. Words only go from 0 to
// another value within a step: the first failure stays.
// Operations of both streams and the store's threads write them at any time, always through set_status; so they are the
// one thing that operators do not declare, and they lie in memory that is always accessible.
enum class RequestStatus : int32_t {
  kOk = 0,
  kFetchFailed = 1,    // the host store could not deliver a row
  kSpillFailed = 2,    // the host store could not take a row
  kBadPosition = 3,    // a top-k id beyond the id range reached an operator
  kRowNotDurable = 4,  // a row was wanted that is neither in the window nor spilled
};

inline void set_status(int32_t* word, RequestStatus status) {
  int32_t ok = 0;
  std::atomic_ref<int32_t>(*word).compare_exchange_strong(ok, static_cast<int32_t>(status), std::memory_order_relaxed);
}
inline RequestStatus load_status(const int32_t* word) {
  return static_cast<RequestStatus>(
      std::atomic_ref<int32_t>(*const_cast<int32_t*>(word)).load(std::memory_order_relaxed));
}

// Replacement state of one layer group, for all cache slots. The pool's rows themselves are per layer.
// Invariant after each commit: slot_of_token[s][p] == i >= 0 if and only if token_of_slot[s][i] == p.
//
// A pool slot is empty (state 0), reserved (-g: its old token is unmapped, its row is being overwritten) or valid (g),
// g the generation of the request it belongs to. Only a slot that is valid in the generation its cache slot has now can
// be hit: whatever a late or left-out operation of an earlier request leaves behind is not served to the next.
struct GroupState {
  int32_t* slot_of_token = nullptr;  // [num_cache_slots, id_range], -1: not pooled
  int32_t* token_of_slot = nullptr;  // [num_cache_slots, num_sets * num_ways], -1: empty
  int32_t* cursor = nullptr;         // [num_cache_slots, num_sets], next way of the set to overwrite (fifo)
  int32_t num_cache_slots = 0;
  int32_t id_range = 0;
  int32_t num_sets = 0;  // a power of two
  int32_t num_ways = 16;
  int32_t policy = 0;             // policy::Kind
  int32_t* slot_state = nullptr;  // [num_cache_slots, num_sets * num_ways]
  const int32_t* generation =
      nullptr;  // [num_cache_slots] > 0, of the request that has the cache slot; the host writes it
  constexpr int32_t pool_size() const { return num_sets * num_ways; }
};

// The rows of a decode batch, in memory that the host writes between steps. A batch row is not a cache slot; no two
// batch rows have the same one. Operators trust what stands here (slots and lengths in range).
struct DecodeBatch {
  int32_t max_rows = 0;                  // capacity of the arrays below
  int32_t q_len = 1;                     // query tokens of each row in this step
  const int32_t* num_rows = nullptr;     // [1]
  const int32_t* cache_slot = nullptr;   // [max_rows]; -1: inactive row, no work is done for it
  const int32_t* seq_len = nullptr;      // [max_rows] rows valid after this step, this step's tokens included
  const int32_t* spilled_len = nullptr;  // [max_rows] positions below are readable from the host store
  // [max_rows] positions below are final: they will not be written again. Null: seq_len - q_len, as published.
  const int32_t* final_len = nullptr;
};

}  // namespace tidepool::ops
