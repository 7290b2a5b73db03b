"""The small faults that tools/mutate.py plants. Each must make a test fail.

An edit is (file, old text, new text); the old text, white space aside, stands exactly once in the file, so that the
list cannot rot in silence. Where the plain loops and the fast kernel do the same, both get the fault: comparing one
with the other must not be what finds it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    name: str
    area: str
    breaks: str
    edits: tuple


PLAN_REF, PLAN = "src/ops/ref/plan.cc", "src/ops/cpu/plan.cc"
SERVE_REF, SERVE = "src/ops/ref/serve.cc", "src/ops/cpu/serve.cc"
INSTALL_REF, INSTALL = "src/ops/ref/install.cc", "src/ops/cpu/install.cc"
SPILL_REF, SPILL = "src/ops/ref/spill.cc", "src/ops/cpu/spill.cc"
RESET_REF, RESET = "src/ops/ref/reset.cc", "src/ops/cpu/reset.cc"
CLASSIFY, BATCH, STAGE = "src/ops/ref/classify.h", "src/ops/batch.h", "src/ops/cpu/stage.cc"
ACCESSES, FIFO = "src/ops/accesses.cc", "src/policy/fifo.h"
CACHE, STEP = "src/cache/kv_cache.cc", "src/cache/kv_cache_step.cc"
INPUTS, TRACK = "src/cache/kv_cache_inputs.cc", "src/cache/spill_track.cc"
STORE, GEOMETRY, BLOCKS = "src/cache/host_store.cc", "src/cache/geometry.cc", "src/cache/block_pool.h"
EXECUTOR, SCHEDULER, EVENT = "src/device/executor.cc", "src/device/scheduler.cc", "include/tidepool/event.h"
CHECKER, PROTECTION, MEMORY = "src/device/order_checker.cc", "src/device/protection.cc", "src/device/memory.cc"
DEPENDENCIES, EVENTS, BUILD = "src/graph/dependencies.cc", "src/graph/events.cc", "src/graph/build.cc"
IN_PLACE, DEAD_CODE, RELOCATE = "src/graph/in_place.cc", "src/graph/dead_code.cc", "src/graph/relocate.cc"
BUFFER_PLAN, BUFFER_REUSE = "src/graph/buffer_plan.cc", "src/graph/buffer_reuse.cc"
INDEXER, TOPK = "src/nn/indexer.cc", "src/nn/topk.cc"
WRITE_ROW, ENGINE = "src/nn/norm_rope.cc", "src/engine/engine_impl.cc"

MUTATIONS = []


def plant(area, name, breaks, *edits):
    MUTATIONS.append(Mutation(name, area, breaks, edits))


# --- plan ---
plant("plan", "newest_final_position_one_too_high", "A = C - q_len: a row written in this step may be pooled",
      (BATCH, "return std::max(seq_len - q_len - 1, 0)", "return std::max(seq_len - q_len, 0)"))
plant("plan", "final_lengths_ignored", "what the host says is final does not count",
      (BATCH, "batch.final_len == nullptr ? final_bound(batch.seq_len[b], batch.q_len) :"
              " std::max(batch.final_len[b] - 1, 0)", "final_bound(batch.seq_len[b], batch.q_len)"))
plant("plan", "unique_misses_repeat", "a position missed twice is listed twice",
      (PLAN_REF, "if ((seen[id / 32] & bit) == 0) {", "{"),
      (PLAN, "  if ((word & bit) != 0) return;\n", ""))
plant("plan", "hits_of_another_request", "the token map of cache slot 0 is read for every request",
      (CLASSIFY, "state.slot_of_token[slot * state.id_range + id]", "state.slot_of_token[id]"),
      (PLAN, "p.state.slot_of_token + slot * p.state.id_range", "p.state.slot_of_token"))
plant("plan", "only_minus_one_ends_a_list", "other negative ids are taken for positions",
      (CLASSIFY, "if (id < 0) return entry(Source::kStop, id);", "if (id == -1) return entry(Source::kStop, id);"),
      (PLAN, "ids[len] >= 0) ++len", "ids[len] != -1) ++len"))
plant("plan", "workspace_left_dirty", "bits of this step's misses hide those of the next",
      (PLAN, "row.seen[static_cast<uint32_t>(row.unique[i]) / 32] = 0", "(void)row"))
plant("plan", "bad_position_without_status", "an id beyond the tables passes in silence",
      (PLAN_REF, "set_status(&p.status[slot], RequestStatus::kBadPosition);", ""),
      (PLAN, "  if (row.bad_position) set_status(&p.status[slot], RequestStatus::kBadPosition);\n", ""))

# --- policy ---
plant("policy", "set_from_higher_bits", "the set is not the low bits of the position",
      (FIFO, "return position & (num_sets - 1)", "return (position >> 1) & (num_sets - 1)"))
plant("policy", "cursor_not_moved", "every install of a set takes the same way",
      (FIFO, "*set.cursor = way + 1 == set.num_ways ? 0 : way + 1;", ""))
plant("policy", "cursor_never_wraps", "the cursor leaves the set after its last way",
      (FIFO, "way + 1 == set.num_ways ? 0 : way + 1", "way + 1"))
plant("policy", "cursor_moved_on_hit", "a hit moves the cursor of its set",
      (PLAN_REF, "if (source != Source::kMiss) continue;",
       "if (source == Source::kHit) ++p.state.cursor[slot * p.state.num_sets + (id & (p.state.num_sets - 1))];\n"
       "      if (source != Source::kMiss) continue;"),
      (PLAN, "++row.hits;", "++row.hits, ++p.state.cursor[slot * num_sets + (id & (num_sets - 1))];"))

# --- serve ---
plant("serve", "pool_row_of_another_request", "hits are copied from cache slot 0",
      (SERVE_REF, "slot * p.pool_size + entry.index", "entry.index"),
      (SERVE, "pool_base_(slot * p.pool_size)", "pool_base_(0)"))
plant("serve", "block_table_of_another_request", "misses are fetched through the block table of cache slot 0",
      (SERVE_REF, "p.block_table[slot * p.max_blocks + position / p.block_size]",
       "p.block_table[position / p.block_size]"),
      (SERVE, "blocks_(p.block_table + slot * p.max_blocks)", "blocks_(p.block_table)"))
plant("serve", "rows_of_the_owner_in_every_layer", "a fetch names layer 0 of its group whatever the layer",
      (SERVE_REF, "p.store->fetch({p.group, p.layer_in_group,", "p.store->fetch({p.group, 0,"),
      (SERVE, "p.store->fetch({p.group, p.layer_in_group,", "p.store->fetch({p.group, 0,"))
plant("serve", "unspilled_row_fetched", "the first position that is not spilled is fetched from the store",
      (SERVE_REF, "entry.index >= p.batch.spilled_len[b]", "entry.index > p.batch.spilled_len[b]"),
      (SERVE, "entry.index < spilled_len_", "entry.index <= spilled_len_"))
plant("serve", "missing_row_not_zeroed", "a row that does not exist keeps what the selection held before",
      (SERVE_REF, "zero_row(p.selection, r);", ";"),
      (SERVE, "if (!exists) zero_row(p_.selection, r);", ""))
plant("serve", "missing_block_without_status", "a position whose block is gone passes in silence",
      (SERVE_REF, "if (block < 0) return {Place::kNone, 0, RequestStatus::kRowNotDurable};",
       "if (block < 0) return {};"),
      (SERVE, "if (block < 0) {\n      set_status(status_, RequestStatus::kRowNotDurable);", "if (block < 0) {"))

# --- window ---
plant("window", "ring_row_off_by_one", "serve reads the ring row of the next position",
      (SERVE_REF, "position % p.window_rows,", "(position + 1) % p.window_rows,"),
      (SERVE, "window_base_ + position % p_.window_rows", "window_base_ + (position + 1) % p_.window_rows"))
plant("window", "overwritten_row_still_read", "the ring is taken to hold one row more than it does",
      (SERVE_REF, "position <= seq_len - 1 - p.window_rows", "position < seq_len - 1 - p.window_rows"),
      (SERVE, "seq_len_ - p.window_rows, 0", "seq_len_ - p.window_rows - 1, 0"))
plant("window", "new_row_at_a_wrong_modulus", "the step writes its row where nobody looks for it",
      (INPUTS, "position % options_.window_rows};", "position % (options_.window_rows + 1)};"))
plant("window", "ring_shared_by_all_requests", "the step writes its row into the ring of cache slot 0",
      (INPUTS, "{Place::kWindow, cache_slot * options_.window_rows + position %", "{Place::kWindow, position %"))
plant("window", "ring_overwritten_before_the_spill", "nothing bounds how far spills lag behind the ring",
      (CACHE, "o.spill_turns = std::min(o.spill_turns, std::max(1, o.window_rows - 1));", ""),
 
           (INPUTS, "must_wait |= main_track_.spilled_len(row.cache_slot) <= newest - options_.window_rows;",
       "(void)row;"))

# --- install ---
plant("install", "slot_of_an_earlier_generation_is_hit", "what an earlier request left in a slot counts as this one's",
      (CLASSIFY, "state.slot_state[slot * state.pool_size() + pooled_at] == state.generation[slot]", "true"),
      (PLAN, "pooled_at < pool_size && slot_state[pooled_at] == generation", "pooled_at < pool_size"))
plant("install", "slot_stays_reserved", "an installed row is never valid",
      (INSTALL_REF, "state.slot_state[cache_slot * state.pool_size() + at] = state.generation[cache_slot];", ""),
      (INSTALL, "slot_state_[at] = generation_;", ""))
plant("install", "evicted_token_stays_mapped", "the map still sends a token to a slot that holds another",
      (INSTALL_REF, "if (evicts) state.slot_of_token[cache_slot * state.id_range + token] = -1;", ""),
      (INSTALL, "slot_of_token_[old] = -1;", ""))
plant("install", "repeated_record_installs_twice", "a position missed by two queries takes two ways",
      (INSTALL_REF, "    if ((seen[record.position / 32] & bit) != 0) continue;\n", ""),
      (INSTALL, "    if ((word & bit) != 0) return false;\n", ""))
plant("install", "followers_move_the_cursors", "every layer of a group moves the shared cursors",
      (INSTALL_REF, "  if (!update) cursors = copy;\n", ""),
      (INSTALL, "kUpdate ? cursors_ : copy_;", "cursors_;"))
plant("install", "failed_request_installs", "a row that could not be fetched enters the pool",
      (INSTALL_REF, "slot < 0 || load_status(&p.status[slot]) != RequestStatus::kOk", "slot < 0"),
      (INSTALL, "slot < 0 || load_status(&p.status[slot]) != RequestStatus::kOk", "slot < 0"))
plant("install", "selection_row_of_the_first_query", "the row of a later query is copied from the first one's list",
      (INSTALL_REF, "static_cast<int64_t>(record.query) * p.topk + record.place", "record.place"),
      (INSTALL, "static_cast<int64_t>(record.query) * p_.topk + record.place", "record.place"))
plant("install", "pool_row_of_another_request", "rows are installed in the pool of cache slot 0",
      (INSTALL_REF, "slot * state.pool_size() + at, b *", "at, b *"),
      (INSTALL, "copier_.copy(pool_base_ + at,", "copier_.copy(at,"))
plant("install", "metadata_updated_by_followers_too", "the maps of a group are committed once for each layer",
      (STEP, "push_install(layer_id, false)", "push_install(layer_id, true)"))
plant("install", "metadata_updated_on_the_last_layer", "the owner never installs; the last layer commits in its place",
      (STEP, "push_install(options_.layer_groups[static_cast<size_t>(place.group)][0], true)",
       "push_install(layer_id, true)"))

# --- spill ---
plant("spill", "origin_of_the_source_ignored", "a prompt chunk is read from where its position would lie in a ring",
      (SPILL_REF, "base + (position - origin) % rows", "base + position % rows"),
      (SPILL, "(position - p.source_origin[b]) % p.source_rows[b]", "position % p.source_rows[b]"))
plant("spill", "source_base_ignored", "rows are spilled from the ring of cache slot 0",
      (SPILL_REF, "base + (position - origin) % rows", "(position - origin) % rows"),
      (SPILL, "static_cast<int32_t>(p.source_base[b] + row)", "static_cast<int32_t>(row)"))
plant("spill", "lists_of_batch_rows_overlap", "every batch row writes its copies to the start of the workspace",
      (SPILL_REF, "RowCopy* copies = p.copies + before;", "RowCopy* copies = p.copies;"),
      (SPILL, "RowCopy* copies = p.copies + before;", "RowCopy* copies = p.copies;"))
plant("spill", "turn_not_advanced", "every step spills what the first one listed",
      (SPILL, "++*p.turn;", "(void)p;"))
plant("spill", "lists_of_a_step_reused_too_early", "the host writes every step's lists to the same turn",
      (TRACK, "next_turn_++ %", "next_turn_ %"))
plant("spill", "lists_overwritten_when_all_turns_are_taken", "the host does not wait for a free turn",
      (INPUTS, "bool must_wait = main_track_.is_full() || mtp_track_.is_full();", "bool must_wait = false;"))
plant("spill", "spilled_len_raised_one_step_early", "a row counts as durable before its spill is seen complete",
      (TRACK, "passes_[first_pass_].number <= marks_seen_;", "passes_[first_pass_].number <= marks_seen_ + 1;"))
plant("spill", "mark_before_the_decode_spills", "the step's mark does not wait for the spills of decode rows",
      (STEP, "    for (size_t i = first; i < end; ++i) executor_.wait(kSpillStream, layers_[i].spilled);\n",
       "(void)first, (void)end;"))
plant("spill", "mark_before_the_chunk_spills", "the step's mark does not wait for the spills of the chunk",
      (STEP, "    for (auto& event : chunk_spilled_) executor_.wait(kSpillStream, event);\n", ""))
plant("spill", "replayed_step_has_no_mark", "the host miscounts the marks of replayed steps",
      ("src/cache/spill_track.h", "void end_replayed() { ++marks_pushed_; }", "void end_replayed() {}"))

# --- events ---
plant("events", "install_does_not_wait_for_serve", "install reads a selection that is still being filled",
      (STEP, "  executor_.wait(kSideStream, layer.served);\n", ""))
plant("events", "plan_does_not_wait_for_the_commit", "plan reads maps that an install is changing",
      (STEP, "    executor_.wait(kMainStream, group.committed);\n", ""))
# Dropping serve's wait for its own layer is no fault: plan has waited for the commit, the last install of the group. So
# the fault is one in the commit.
plant("events", "commit_recorded_before_the_install", "plan and serve of the next step overtake the owner's install",
      (STEP, "executor_.wait(kSideStream, layer.served);",
       "executor_.wait(kSideStream, layer.served);\n"
       "  if (metadata_update) executor_.record(kSideStream, group.committed);"),
      (STEP, "if (metadata_update) executor_.record(kSideStream, group.committed);", ""))
plant("events", "commit_before_the_followers_install", "the owner's install, pushed first, promises rows too early",
      (STEP, "if (!place.is_owner) push_install(layer_id, false);\n"
             "  if (place.is_last) push_install(options_.layer_groups[static_cast<size_t>(place.group)][0], true);",
       "push_install(layer_id, place.is_owner);"))
plant("events", "selection_reused_under_an_install", "serve overwrites rows that an install still reads",
      (STEP, "  executor_.wait(kMainStream, layers_[static_cast<size_t>(last_user)].installed);\n", ""))
plant("events", "attention_does_not_wait_for_the_fetch", "rows are read before the store has delivered them",
      (STEP, "  executor_.wait(kMainStream, layer.serve_done);\n  executor_.record(", "  executor_.record("))
plant("events", "tile_does_not_wait_for_its_fetch", "a prompt tile is computed before its rows are there",
      (STEP, "  executor_.wait(kMainStream, stage_done_);\n", ""))
plant("events", "spill_does_not_wait_for_the_write", "a row is spilled before it is written",
      (STEP, "  executor_.wait(kSpillStream, layer.written);\n", ""))
plant("events", "staging_overwritten_under_a_spill", "a chunk row is written while the same half is still spilled",
      (STEP, "if (options_.offload() && in().chunk[2] > 0) executor_.wait(kMainStream, chunk_spilled_[layer % 2]);",
       "(void)layer;"))
plant("events", "inputs_overwritten_under_an_install",
      "the host writes the step's lists while installs read the last ones",
      (INPUTS, "executor_.synchronize(kSideStream); // installs still", "// installs still"))
plant("events", "inputs_overwritten_under_a_chunk_spill",
      "the host writes the chunk's list while its spill reads the last one",
      (INPUTS, "if (step_has_chunk_) executor_.synchronize(kSpillStream);  //", "//"))
plant("events", "wait_for_the_record_before", "a wait asks for one completion less than were enqueued",
      (EXECUTOR, "entry.target = event->enqueued_;", "entry.target = event->enqueued_ - 1;"))
plant("events", "wait_passes_one_early", "a stream goes on one completion too soon",
      (SCHEDULER, "entry.kind == EntryKind::kWait ? entry.target : entry.target - 1);\n}\n\n// No",
       "entry.target - 1);\n}\n\n// No"))
plant("events", "complete_with_one_piece_left", "an asynchronous operation counts as done before its last piece",
      (EVENT, "(state & kMaxPieces) != 0 ? 1 : 0", "(state & kMaxPieces) > 1 ? 1 : 0"))

# --- reset ---
plant("reset", "all_slots_reset", "a new request wipes the pools of the running ones",
      (RESET_REF, "state.slot_of_token[slot * state.id_range + id] = -1;",
       "for (int32_t s = 0; s < state.num_cache_slots; ++s) state.slot_of_token[s * state.id_range + id] = -1;"),
      (RESET, "std::fill_n(state.slot_of_token + slot * state.id_range, state.id_range, -1);",
       "std::fill_n(state.slot_of_token, int64_t{state.num_cache_slots} * state.id_range, -1);"))
plant("reset", "no_slot_reset", "a new request hits rows of the one before",
      (CACHE, "  if (options_.offload()) pending_resets_.push_back(slot);\n", ""))
plant("reset", "cursors_not_reset", "a new request starts with the cursors of the one before",
      (RESET_REF, "state.cursor[slot * state.num_sets + set] = 0;", ";"),
      (RESET, "  std::fill_n(state.cursor + slot * state.num_sets, state.num_sets, 0);\n", ""))
plant("reset", "status_not_reset", "a new request inherits the failure of the one before",
      (CACHE, "  status_[s] = 0;\n", ""))
plant("reset", "spilled_len_not_reset", "rows of the request before count as spilled",
      (CACHE, "  main_track_.reset(slot, 0);\n", ""))
plant("reset", "counters_not_reset", "a request is charged with the fetches of the one before",
      (CACHE, "  for (auto& layer : layers_) layer.fetched[s] = 0;\n", ""))

# --- declarations ---
plant("declarations", "plan_forgets_the_token_map", "plan does not declare that it reads slot_of_token",
      (ACCESSES, "declare_part(list, p.state.slot_of_token, slot * p.state.id_range, p.state.id_range, Mode::kRead);",
       ""))
plant("declarations", "plan_forgets_its_records", "plan does not declare that it writes install records",
      (ACCESSES, "    declare_part(list, p.records, b * entries, entries, Mode::kWrite);\n", ""))
plant("declarations", "serve_forgets_the_pool", "serve does not declare that it reads the pool",
      (ACCESSES, "    declare_rows(list, p.pool, slot * p.pool_size, p.pool_size, Mode::kRead);\n", ""))
plant("declarations", "serve_forgets_the_window", "serve and gather do not declare that they read the window ring",
      (ACCESSES, "declare_ring(list, p.window, slot * p.window_rows, 0, p.window_rows, oldest, seq_len, Mode::kRead);",
       ""))
plant("declarations", "serve_forgets_the_selection", "serve does not declare that it writes the selection",
      (ACCESSES, "    declare_rows(list, p.selection, b * entries, entries, Mode::kWrite);\n", ""))
plant("declarations", "install_forgets_the_pool", "install does not declare that it writes the pool",
      (ACCESSES, "    declare_rows(list, p.pool, slot * state.pool_size(), state.pool_size(), Mode::kWrite);\n", ""))
plant("declarations", "reset_forgets_the_cursors", "reset does not declare that it writes cursors",
      (ACCESSES, "state.num_sets, Mode::kWrite);\n  }\n}\n\nvoid declare_spill",
       "0, Mode::kWrite);\n  }\n}\n\nvoid declare_spill"))
plant("declarations", "spill_forgets_its_source", "spill does not declare which rows it reads",
      (ACCESSES, "declare_ring(list, p.source, p.source_base[b], p.source_origin[b], p.source_rows[b], begin, end,"
                  " Mode::kRead);",
       ""))
plant("declarations", "spill_forgets_its_records", "spill does not declare which records it writes",
      (ACCESSES, "                      p.block_size, begin, end, Mode::kWrite);",
       "                      p.block_size, begin, begin, Mode::kWrite);"))
plant("declarations", "spill_declares_the_turn_of_another_step", "a push is checked with the lists of turn 0",
      (TRACK, "  pushed_turn_ = static_cast<int32_t>(turn);\n", ""))
plant("declarations", "write_row_forgets_the_rope", "write_row does not declare that it writes the rope part",
      (WRITE_ROW, "    list.write(planes.rope.row(p.dest[m].index), static_cast<size_t>(planes.rope.bytes));\n", ""))
plant("declarations", "stage_locate_forgets_the_index", "stage_locate does not declare where positions were staged",
      (STAGE, "  list.read(t.index_of, static_cast<size_t>(t.id_range) * sizeof(int32_t));\n", ""))
plant("declarations", "stage_fetch_forgets_the_staging_rows", "fetched rows land where nobody declared",
      (STAGE, "declare_rows(list, p.staging, p.chunk_capacity, p.stage_capacity, Mode::kWrite);", ""))
plant("declarations", "stage_fetch_forgets_the_records", "a chunk's spill and the next chunk's fetch look unrelated",
      (STAGE, "p.max_blocks, p.block_size, 0, p.chunk[1], Mode::kRead);", "p.max_blocks, p.block_size, 0, 0, Mode::kRead);"))
plant("staging", "locations_from_the_tile_before", "stage_locate runs before the map of its tile is made",
      (STEP, "    executor_.push(kMainStream, ops::stage_list(), ops::StageListParams{t});\n"
             "    executor_.push(kMainStream, ops::stage_locate(), ops::StageLocateParams{t});\n",
       "    executor_.push(kMainStream, ops::stage_locate(), ops::StageLocateParams{t});\n"
       "    executor_.push(kMainStream, ops::stage_list(), ops::StageListParams{t});\n"))
plant("staging", "slices_fetch_the_first_rows_again", "every slice of a long fetch brings the rows of the first",
      (STAGE, "transfer.copies = p.copies + begin;", "transfer.copies = p.copies;"))
plant("staging", "tile_wants_more_rows_than_fit", "one tile is made where the earlier rows do not fit",
      (INPUTS, "rows.chunk.first <= options_.stage_rows;", "rows.chunk.first <= 2 * options_.stage_rows;"))
plant("staging", "one_half_for_all_layers", "a layer overwrites the chunk rows that the one before still spills",
      (CACHE, "joint_planes(staging_[layer % 2],", "joint_planes(staging_[layer * 0],"))

# --- store ---
plant("store", "layer_in_group_ignored", "all layers of a group share one row of the record",
      (STORE, " + static_cast<int64_t>(layer_in_group) * options_.format.row_bytes();", " + layer_in_group * 0;"))
plant("store", "records_of_another_group", "every group has the record layout of the first",
      (STORE, "layouts_[g].offset(record)", "layouts_[0].offset(record)"))
plant("store", "records_without_padding", "records in memory are not whole cache lines",
      (GEOMETRY, "round_up(payload, 64)", "round_up(payload, 1)"))
plant("store", "file_records_straddle_units", "a small record may lie in two units of a file",
      (GEOMETRY, "static_cast<int32_t>(kUnit / payload), payload}",
       "static_cast<int32_t>(kUnit / payload) + 1, payload}"))

# --- admission ---
plant("admission", "closed_slot_free_at_once", "blocks go to a new request while spills still write into them",
      (CACHE, "closed_.push_back({cache_slot, main_track_.marks_pushed(), ", "closed_.push_back({cache_slot, 0, "))
plant("admission", "last_block_not_taken", "a request gets no block for its last tokens",
      (CACHE, "static_cast<int32_t>(ceil_div(num_tokens, options_.block_size));\n  const size_t row",
       "static_cast<int32_t>(num_tokens / options_.block_size);\n  const size_t row"))
plant("admission", "host_budget_not_asked", "a request is taken that the host store has no blocks for",
      (CACHE, "if (host_blocks_ && blocks > host_blocks_->num_free())",
       "if (host_blocks_ && blocks > host_blocks_->num_blocks())"))
plant("admission", "block_handed_out_twice", "a block given back stays with its old owner too",
      (BLOCKS, "      if (!*used) std::abort();\n", ""))
plant("admission", "arena_beyond_its_budget", "the arena gives memory that its budget does not have",
      (MEMORY, "const uint64_t left = budget_bytes_ - used_bytes_;",
       "const uint64_t left = mapped_bytes_ - used_bytes_;"))
plant("admission", "failure_of_a_request_ignored", "a request whose row was lost goes on",
      (ENGINE, "if (status != ops::RequestStatus::kOk) fail_request(",
       "if (status == ops::RequestStatus::kBadPosition) fail_request("))

# --- checks ---
plant("checks", "asynchronous_ends_with_its_pieces", "the order checker takes a copy in flight for done",
      (CHECKER, "done != nullptr ? num_asynchronous_ + 1 : 0", "0"))
plant("checks", "everything_on_a_stream_seen", "the order checker takes a later operation for an earlier one",
      (CHECKER, "earlier.sequence <= now.seen[earlier.stream]", "earlier.sequence <= now.seen[earlier.stream] + 1"))
plant("checks", "resources_not_compared", "the order checker ignores records of the host store",
      (CHECKER, "if (space == spaces_.end()) continue;", "if (space == spaces_.end() || access.space != 0) continue;"))
plant("checks", "memory_stays_open", "what an operation declared stays accessible behind it",
      (PROTECTION, "    guarded.declared.clear();\n    drop_completed(guarded);\n    apply(guarded);",
       "    drop_completed(guarded);"))
plant("checks", "destination_closed_under_a_copy", "memory is closed while an asynchronous copy writes it",
      (PROTECTION, "guarded.in_flight.push_back({range, done, target});", "(void)range, (void)target;"))

# --- graph ---
plant("graph", "readers_not_waited_for", "a write does not wait for reads of the old version on other streams",
      (DEPENDENCIES, "if (t.writes()) add(t.node, reader);", "(void)reader;"))
plant("graph", "replay_before_forgotten", "no dependency on the replay before is seen",
      (DEPENDENCIES, "for (int round = 0; round < 2; ++round) {", "for (int round = 1; round < 2; ++round) {"))
plant("graph", "asynchronous_done_when_started", "an asynchronous operation is not waited for on its own stream",
      (DEPENDENCIES, "if (from.done == nullptr && from.stream ==", "if (from.stream =="))
plant("graph", "start_taken_for_completion", "a wait is left out because an asynchronous operation has been started",
      (DEPENDENCIES, "return when < 0 ? -1 : vertex(when, node, graph_.nodes[static_cast<size_t>(node)].done != nullptr);",
       "return when < 0 ? -1 : vertex(when, node, false);"))
plant("graph", "mark_without_waits", "the host's event does not wait for asynchronous operations",
      (EVENTS, "record.waits = precedence.needed_at_end(record.stream, operations_before(graph, record));", ""))
plant("graph", "kept_bytes_lost", "a write of a part of an activation begins a value of its own",
      (BUILD, "use.looks || keeps[i]", "use.looks"))
plant("graph", "carried_activation_is_scratch", "what is read before it is written is not kept for the next step",
      (BUILD, "object.carried = !live.empty();", "object.carried = false;"))
plant("graph", "later_reader_not_asked", "a version that is read later is overwritten",
      (IN_PLACE, "if (reader == r.clone || reader < r.operation) continue;", "continue;"))
plant("graph", "pool_write_is_dead", "an operation that writes what outlives the step may go",
      (DEAD_CODE, "if (graph.object_of(use.out).carried ||", "if ("))
plant("graph", "last_use_shares", "a value is written over what the same operation reads",
      (BUFFER_PLAN, "a.first <= b.last && b.first <= a.last", "a.first < b.last && b.first < a.last"))
plant("graph", "other_streams_share", "activations of an asynchronous operation share bytes by list order",
      (BUFFER_PLAN, "if (node.done == nullptr && node.stream == device::kMainStream) continue;",
       "if (node.done != nullptr || node.stream != 7) continue;"))
plant("graph", "relocation_not_proved", "an operation with a pointer elsewhere is moved",
      (RELOCATE, 'if (!proved) return "what', 'if (false) return "what'))
plant("graph", "some_word_is_a_pointer", "a word that changes what is declared is taken for a pointer",
      (RELOCATE, "if (effect == Effect::kOther) {", "if (false) {"))
plant("graph", "refused_values_move", "values of an operation that cannot be moved are placed elsewhere",
      (BUFFER_REUSE, "if (reason.empty()) continue;", "if (reason.size() < 1000) continue;"))
plant("graph", "scores_read_in_this_step_only", "a recorded short context says that scores are never read",
      (TOPK, "list.every_step() ? p.score_stride : num_visible(p.table, m)", "num_visible(p.table, m)"),
      (INDEXER, "list.every_step() ? static_cast<int32_t>(p.score_stride / kKeyTile) : num_scored_tiles(p, m)",
       "num_scored_tiles(p, m)"))
