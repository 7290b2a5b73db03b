// What a world gives its operators: parameters, and its memory by name.
#include "op_cases.h"

namespace tidepool::testing {

ops::GroupState OpWorld::state() const {
  auto& self = const_cast<OpWorld&>(*this);
  return {self.slot_of_token.data(), self.token_of_slot.data(), self.cursor.data(), geometry_.num_cache_slots,
          geometry_.id_range,        geometry_.num_sets,        geometry_.num_ways, 0,
          self.slot_state.data(),    self.generation.data()};
}

ops::DecodeBatch OpWorld::batch() {
  return {geometry_.max_rows,
          geometry_.q_len,
          &num_rows,
          cache_slot.data(),
          seq_len.data(),
          spilled_len.data(),
          has_final_len_ ? final_len.data() : nullptr};
}

ops::PlanParams OpWorld::plan_params() {
  return {.batch = batch(),
          .state = state(),
          .topk = geometry_.topk,
          .topk_indices = topk.data(),
          .plan = plan.data(),
          .valid_len = valid_len.data(),
          .records = records.data(),
          .num_records = num_records.data(),
          .unique_misses = unique_misses.data(),
          .num_unique_misses = num_unique_misses.data(),
          .seen = seen_plan_.data(),
          .counts = plan_counts.data(),
          .status = status.data()};
}

ops::ServeParams OpWorld::serve_params(int32_t layer) {
  return {.batch = batch(),
          .topk = geometry_.topk,
          .plan = plan.data(),
          .pool_size = state().pool_size(),
          .pool = pool(layer),
          .window_rows = geometry_.window_rows,
          .window = window(layer),
          .store = &store_,
          .group = 0,
          .layer_in_group = layer,
          .block_table = block_table.data(),
          .max_blocks = geometry_.max_blocks,
          .block_size = geometry_.block_size,
          .done = &done_,
          .selection = selection(layer),
          .locations = locations.data(),
          .copies = serve_copies_.data(),
          .status = status.data(),
          .fetched_rows = fetched_rows.data()};
}

ops::InstallParams OpWorld::install_params(int32_t layer, bool update) {
  return {.batch = batch(),
          .state = state(),
          .topk = geometry_.topk,
          .metadata_update = update ? 1 : 0,
          .records = records.data(),
          .num_records = num_records.data(),
          .selection = selection(layer),
          .status = status.data(),
          .pool = pool(layer),
          .cursor_copy = cursor_copy_.data(),
          .seen = seen_install_.data(),
          .counts = install_counts.data()};
}

ops::ResetParams OpWorld::reset_params() { return {state(), resets.data(), &num_resets}; }

ops::SpillParams OpWorld::spill_params(int32_t layer) {
  return {.max_rows = geometry_.max_rows,
          .num_rows = &num_rows,
          .cache_slot = cache_slot.data(),
          .first = spill_first.data(),
          .count = spill_count.data(),
          .source_base = spill_base.data(),
          .source_origin = spill_origin.data(),
          .source_rows = spill_rows.data(),
          .source = window(layer),
          .store = &store_,
          .group = 0,
          .layer_in_group = layer,
          .block_table = block_table.data(),
          .max_blocks = geometry_.max_blocks,
          .block_size = geometry_.block_size,
          .done = &done_,
          .copies = spill_copies_.data(),
          .max_copies = static_cast<int32_t>(spill_copies_.size()),
          .status = status.data()};
}

ops::GatherParams OpWorld::gather_params(int32_t layer) {
  return {.batch = batch(),
          .num_cache_slots = geometry_.num_cache_slots,
          .topk = geometry_.topk,
          .topk_indices = topk.data(),
          .window_rows = geometry_.window_rows,
          .window = window(layer),
          .store = &store_,
          .group = 0,
          .layer_in_group = layer,
          .block_table = block_table.data(),
          .max_blocks = geometry_.max_blocks,
          .block_size = geometry_.block_size,
          .done = &done_,
          .place_status = place_status[static_cast<size_t>(layer)].data(),
          .status_queries = geometry_.num_status_queries(),
          .selection = selection(layer),
          .locations = locations.data(),
          .copies = serve_copies_.data(),
          .scratch = gather_scratch_.data(),
          .status = status.data(),
          .fetched_rows = fetched_rows.data(),
          // The layers of a group share their lists.
          .counts = layer == 0 ? plan_counts.data() : nullptr};
}

ops::GatherResetParams OpWorld::gather_reset_params(int32_t layer) {
  return {.num_cache_slots = geometry_.num_cache_slots,
          .status_queries = geometry_.num_status_queries(),
          .topk = geometry_.topk,
          .place_status = place_status[static_cast<size_t>(layer)].data(),
          .slots = resets.data(),
          .num_slots = &num_resets};
}

std::vector<Region> OpWorld::regions() {
  std::vector<Region> list;
  const auto add = [&](const char* name, auto& values, bool workspace = false) {
    list.push_back({name, reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(values[0]), workspace});
  };
  list.push_back({"num_rows", reinterpret_cast<std::byte*>(&num_rows), sizeof(num_rows), false});
  list.push_back({"num_resets", reinterpret_cast<std::byte*>(&num_resets), sizeof(num_resets), false});
  add("cache_slot", cache_slot), add("seq_len", seq_len), add("spilled_len", spilled_len), add("topk", topk);
  add("final_len", final_len);
  add("resets", resets), add("plan", plan), add("valid_len", valid_len), add("num_records", num_records);
  add("unique_misses", unique_misses), add("num_unique_misses", num_unique_misses), add("status", status);
  add("records", records), add("locations", locations), add("plan_counts", plan_counts);
  add("install_counts", install_counts), add("fetched_rows", fetched_rows), add("slot_of_token", slot_of_token);
  add("slot_state", slot_state), add("generation", generation);
  add("token_of_slot", token_of_slot), add("cursor", cursor), add("block_table", block_table);
  add("spill_first", spill_first), add("spill_count", spill_count), add("spill_base", spill_base);
  add("spill_origin", spill_origin), add("spill_rows", spill_rows), add("pool", pool_.bytes());
  add("window", window_.bytes()), add("store", store_.memory(0).bytes());
  for (RowMemory& selection : selection_) add("selection", selection.bytes());
  for (auto& rows : place_status) add("place_status", rows);
  add("seen of plan", seen_plan_), add("seen of install", seen_install_);
  add("cursor_copy", cursor_copy_, true), add("copies of serve", serve_copies_, true);
  add("copies of spill", spill_copies_, true), add("scratch of gather", gather_scratch_, true);
  return list;
}

}  // namespace tidepool::testing
