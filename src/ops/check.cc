#include "ops/check.h"

#include <limits>

#include "base/check.h"
#include "policy/policy.h"

namespace tidepool::ops {
namespace {

constexpr int32_t kMaxWays = 64;

void check_pointer(std::string_view op, const char* member, const void* pointer) {
  tidepool_check(pointer != nullptr, "{}: {} is null", op, member);
}

void check_positive(std::string_view op, const char* member, int64_t value) {
  tidepool_check(value > 0, "{}: {} is {}, it must be positive", op, member, value);
}

void check_plane(std::string_view op, const char* member, const char* part, const RowPlane& plane) {
  tidepool_check(plane.bytes >= 0, "{}: {}.{} has {} bytes a row", op, member, part, plane.bytes);
  if (plane.bytes == 0) return;
  tidepool_check(plane.base != nullptr, "{}: {}.{} has {} bytes a row but no memory", op, member, part, plane.bytes);
  tidepool_check(plane.stride >= plane.bytes, "{}: rows of {}.{} overlap: {} bytes, {} bytes apart", op, member, part,
                 plane.bytes, plane.stride);
}

void check_planes(std::string_view op, const char* member, const RowPlanes& planes) {
  tidepool_check(planes.latent.bytes > 0, "{}: {}.latent has {} bytes a row, it must have some", op, member,
                 planes.latent.bytes);
  check_plane(op, member, "latent", planes.latent);
  check_plane(op, member, "rope", planes.rope);
}

void check_same_row(std::string_view op, const char* a_name, const RowPlanes& a, const char* b_name,
                    const RowPlanes& b) {
  tidepool_check(a.latent.bytes == b.latent.bytes && a.rope.bytes == b.rope.bytes,
                 "{}: rows of {} have {} + {} bytes (latent + rope), rows of {} have {} + {}", op, a_name,
                 a.latent.bytes, a.rope.bytes, b_name, b.latent.bytes, b.rope.bytes);
}

void check_batch(std::string_view op, const DecodeBatch& batch, int32_t topk) {
  check_positive(op, "batch.max_rows", batch.max_rows);
  check_positive(op, "batch.q_len", batch.q_len);
  check_positive(op, "topk", topk);
  check_pointer(op, "batch.num_rows", batch.num_rows);
  check_pointer(op, "batch.cache_slot", batch.cache_slot);
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  tidepool_check(int64_t{batch.q_len} * topk <= kMax / batch.max_rows,
                 "{}: {} batch rows x {} queries x {} entries exceed the limit of {}", op, batch.max_rows, batch.q_len,
                 topk, kMax);
}

void check_state(std::string_view op, const GroupState& state) {
  check_positive(op, "state.num_cache_slots", state.num_cache_slots);
  check_positive(op, "state.id_range", state.id_range);
  check_geometry(op, int64_t{state.num_sets} * state.num_ways, state.num_sets, state.num_ways);
  policy::checked_kind(state.policy);
  check_pointer(op, "state.slot_of_token", state.slot_of_token);
  check_pointer(op, "state.token_of_slot", state.token_of_slot);
  check_pointer(op, "state.slot_state", state.slot_state);
  check_pointer(op, "state.generation", state.generation);
}

void check_store(std::string_view op, const RowStore* store, const int32_t* block_table, int32_t max_blocks,
                 int32_t block_size, const device::Event* done, const RowCopy* copies, int32_t group,
                 int32_t layer_in_group) {
  check_pointer(op, "store", store);
  check_pointer(op, "block_table", block_table);
  check_pointer(op, "done", done);
  check_pointer(op, "copies", copies);
  check_positive(op, "max_blocks", max_blocks);
  check_positive(op, "block_size", block_size);
  tidepool_check(group >= 0, "{}: group is {}, it must not be negative", op, group);
  tidepool_check(layer_in_group >= 0, "{}: layer_in_group is {}, it must not be negative", op, layer_in_group);
}

void check_window(std::string_view op, int32_t window_rows, int32_t q_len) {
  tidepool_check(window_rows >= q_len, "{}: window_rows is {}, it must hold the {} rows of a step", op, window_rows,
                 q_len);
}

// The selections of gather: their rows have int32 numbers.
void check_places(std::string_view op, int32_t num_cache_slots, int32_t status_queries, int32_t topk) {
  check_positive(op, "num_cache_slots", num_cache_slots);
  check_positive(op, "status_queries", status_queries);
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  tidepool_check(int64_t{status_queries} * topk <= kMax / num_cache_slots,
                 "{}: {} cache slots x {} queries x {} places exceed the limit of {}", op, num_cache_slots,
                 status_queries, topk, kMax);
}

}  // namespace

void check_geometry(std::string_view what, int64_t pool_rows, int32_t num_sets, int32_t num_ways) {
  tidepool_check(num_sets > 0 && (num_sets & (num_sets - 1)) == 0, "{}: num_sets is {}, it must be a power of two",
                 what, num_sets);
  tidepool_check(num_ways > 0 && num_ways <= kMaxWays, "{}: num_ways is {}, it must be from 1 to {}", what, num_ways,
                 kMaxWays);
  tidepool_check(pool_rows == int64_t{num_sets} * num_ways,
                 "{}: the pool has {} rows, it must have num_sets x num_ways = {} x {} = {}", what, pool_rows, num_sets,
                 num_ways, int64_t{num_sets} * num_ways);
  tidepool_check(pool_rows <= std::numeric_limits<int32_t>::max(), "{}: the pool has {} rows, at most {} are possible",
                 what, pool_rows, std::numeric_limits<int32_t>::max());
}

void check_params(const PlanParams& p) {
  constexpr const char* kOp = "plan";
  check_batch(kOp, p.batch, p.topk);
  check_state(kOp, p.state);
  check_pointer(kOp, "batch.seq_len", p.batch.seq_len);
  check_pointer(kOp, "batch.spilled_len", p.batch.spilled_len);
  check_pointer(kOp, "topk_indices", p.topk_indices);
  check_pointer(kOp, "plan", p.plan);
  check_pointer(kOp, "valid_len", p.valid_len);
  check_pointer(kOp, "records", p.records);
  check_pointer(kOp, "num_records", p.num_records);
  check_pointer(kOp, "unique_misses", p.unique_misses);
  check_pointer(kOp, "num_unique_misses", p.num_unique_misses);
  check_pointer(kOp, "seen", p.seen);
  check_pointer(kOp, "counts", p.counts);
  check_pointer(kOp, "status", p.status);
}

void check_params(const ServeParams& p) {
  constexpr const char* kOp = "serve";
  check_batch(kOp, p.batch, p.topk);
  check_pointer(kOp, "batch.seq_len", p.batch.seq_len);
  check_pointer(kOp, "batch.spilled_len", p.batch.spilled_len);
  check_pointer(kOp, "plan", p.plan);
  check_positive(kOp, "pool_size", p.pool_size);
  check_window(kOp, p.window_rows, p.batch.q_len);
  check_planes(kOp, "pool", p.pool);
  check_planes(kOp, "window", p.window);
  check_planes(kOp, "selection", p.selection);
  check_same_row(kOp, "pool", p.pool, "selection", p.selection);
  check_same_row(kOp, "window", p.window, "selection", p.selection);
  check_store(kOp, p.store, p.block_table, p.max_blocks, p.block_size, p.done, p.copies, p.group, p.layer_in_group);
  check_pointer(kOp, "locations", p.locations);
  check_pointer(kOp, "status", p.status);
  check_pointer(kOp, "fetched_rows", p.fetched_rows);
}

void check_params(const GatherParams& p) {
  constexpr const char* kOp = "gather";
  check_batch(kOp, p.batch, p.topk);
  check_pointer(kOp, "batch.seq_len", p.batch.seq_len);
  check_pointer(kOp, "batch.spilled_len", p.batch.spilled_len);
  check_places(kOp, p.num_cache_slots, p.status_queries, p.topk);
  tidepool_check(p.status_queries >= p.batch.q_len,
                 "gather: status_queries is {}, it must have room for the {} queries of a step", p.status_queries,
                 p.batch.q_len);
  check_pointer(kOp, "topk_indices", p.topk_indices);
  check_window(kOp, p.window_rows, p.batch.q_len);
  check_planes(kOp, "window", p.window);
  check_planes(kOp, "selection", p.selection);
  check_same_row(kOp, "window", p.window, "selection", p.selection);
  check_store(kOp, p.store, p.block_table, p.max_blocks, p.block_size, p.done, p.copies, p.group, p.layer_in_group);
  check_pointer(kOp, "place_status", p.place_status);
  check_pointer(kOp, "locations", p.locations);
  check_pointer(kOp, "scratch", p.scratch);
  check_pointer(kOp, "status", p.status);
  check_pointer(kOp, "fetched_rows", p.fetched_rows);
}

void check_params(const GatherResetParams& p) {
  constexpr const char* kOp = "gather_reset";
  check_positive(kOp, "topk", p.topk);
  check_places(kOp, p.num_cache_slots, p.status_queries, p.topk);
  check_pointer(kOp, "place_status", p.place_status);
  check_pointer(kOp, "slots", p.slots);
  check_pointer(kOp, "num_slots", p.num_slots);
}

void check_params(const InstallParams& p) {
  constexpr const char* kOp = "install";
  check_batch(kOp, p.batch, p.topk);
  check_state(kOp, p.state);
  check_pointer(kOp, "state.cursor", p.state.cursor);
  tidepool_check(p.metadata_update == 0 || p.metadata_update == 1, "install: metadata_update is {}, it must be 0 or 1",
                 p.metadata_update);
  check_pointer(kOp, "records", p.records);
  check_pointer(kOp, "num_records", p.num_records);
  check_planes(kOp, "selection", p.selection);
  check_planes(kOp, "pool", p.pool);
  check_same_row(kOp, "selection", p.selection, "pool", p.pool);
  check_pointer(kOp, "status", p.status);
  check_pointer(kOp, "cursor_copy", p.cursor_copy);
  check_pointer(kOp, "seen", p.seen);
  check_pointer(kOp, "counts", p.counts);
}

void check_params(const ResetParams& p) {
  constexpr const char* kOp = "reset";
  check_state(kOp, p.state);
  check_pointer(kOp, "state.cursor", p.state.cursor);
  check_pointer(kOp, "slots", p.slots);
  check_pointer(kOp, "num_slots", p.num_slots);
}

void check_params(const SpillParams& p) {
  constexpr const char* kOp = "spill";
  check_positive(kOp, "max_rows", p.max_rows);
  check_positive(kOp, "max_copies", p.max_copies);
  check_pointer(kOp, "num_rows", p.num_rows);
  check_pointer(kOp, "cache_slot", p.cache_slot);
  check_pointer(kOp, "first", p.first);
  check_pointer(kOp, "count", p.count);
  check_pointer(kOp, "source_base", p.source_base);
  check_pointer(kOp, "source_origin", p.source_origin);
  check_pointer(kOp, "source_rows", p.source_rows);
  check_planes(kOp, "source", p.source);
  check_store(kOp, p.store, p.block_table, p.max_blocks, p.block_size, p.done, p.copies, p.group, p.layer_in_group);
  check_pointer(kOp, "status", p.status);
}

void check_chain(const PlanParams& plan, const ServeParams& serve, const InstallParams& install) {
  const auto same_batch = [](const DecodeBatch& a, const DecodeBatch& b) {
    return a.max_rows == b.max_rows && a.q_len == b.q_len && a.cache_slot == b.cache_slot && a.num_rows == b.num_rows;
  };
  tidepool_check(same_batch(plan.batch, serve.batch) && same_batch(plan.batch, install.batch),
                 "plan, serve and install have different batches");
  tidepool_check(plan.topk == serve.topk && plan.topk == install.topk,
                 "plan, serve and install have different list lengths: {}, {}, {}", plan.topk, serve.topk,
                 install.topk);
  tidepool_check(plan.plan == serve.plan && plan.records == install.records && plan.num_records == install.num_records,
                 "serve or install reads another plan than the one written");
  tidepool_check(plan.state.slot_of_token == install.state.slot_of_token &&
                     plan.state.token_of_slot == install.state.token_of_slot &&
                     plan.state.id_range == install.state.id_range && plan.state.policy == install.state.policy,
                 "plan and install have different states");
  check_geometry("serve", serve.pool_size, plan.state.num_sets, plan.state.num_ways);
  check_geometry("install", serve.pool_size, install.state.num_sets, install.state.num_ways);
  check_same_row("install", "pool", install.pool, "serve's pool", serve.pool);
}

int32_t policy_number(std::string_view name) { return static_cast<int32_t>(policy::kind_of(name)); }

}  // namespace tidepool::ops
