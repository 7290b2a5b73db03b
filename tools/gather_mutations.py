"""The faults of gather (see mutations.py)."""

from mutations import ACCESSES, plant

GATHER_REF, GATHER = "src/ops/ref/gather.cc", "src/ops/cpu/gather.cc"

# --- gather ---
plant("gather", "reuse_bound_one_too_high", "the first row of a step may stay from the step before",
      (GATHER_REF, "list.source[i] == kDropped || list.ids[i] > list.newest_final",
       "list.source[i] == kDropped || list.ids[i] > list.newest_final + 1"),
      (GATHER, "source_[i] == kDropped || ids_[i] > newest_final_",
       "source_[i] == kDropped || ids_[i] > newest_final_ + 1"),
      (GATHER, "++hits_;", "hits_ += ids_[i] <= newest_final_;"))
plant("gather", "window_rows_reused", "a row that is written again stays as it was",
      (GATHER_REF, "list.source[i] == kDropped || list.ids[i] > list.newest_final", "list.source[i] == kDropped"),
      (GATHER, "source_[i] == kDropped || ids_[i] > newest_final_", "source_[i] == kDropped"),
      (GATHER, "++hits_;", "hits_ += ids_[i] <= newest_final_;"))
plant("gather", "places_behind_the_list_not_cleared", "the status row still names what lies behind a shorter list",
      (GATHER_REF, "for (int32_t place = list.num_ids; place < p.topk; ++place) list.places[place] = -1;", ""),
      (GATHER, "std::fill(places_ + num_ids_, places_ + p_.topk, -1);", ""),
      (GATHER, "std::clamp(places_[p_.topk], 0, p_.topk)", "p_.topk"))
plant("gather", "row_behind_the_list_stays", "the first place behind a shorter list counts as part of it",
      (GATHER_REF, "place < 0 || place >= list.num_ids", "place < 0 || place > list.num_ids"),
      (GATHER, "(place >= 0) & (place < num_ids_)", "(place >= 0) & (place <= num_ids_)"))
plant("gather", "moved_row_not_copied", "a moved row is only written down at its new place",
      (GATHER_REF, "RowCopier(p.selection, p.selection).copy(to, list.first_row + list.source[i]);", ""),
      (GATHER, "from_selection_.copy(to, first_row_ + source_[i]);", ""))
plant("gather", "rows_that_stay_overwritten", "new rows fill the places from the first one on",
      (GATHER_REF, "while (list.is_wanted[next_free] != 0) ++next_free;", ""),
      (GATHER, "num_free += is_wanted_[place] == 0;", "++num_free;"))
plant("gather", "hits_and_misses_swapped", "rows that stay are counted as read",
      (GATHER_REF, "is_window ? 2 : is_hit ? 0 : 1", "is_window ? 2 : is_hit ? 1 : 0"),
      (GATHER, "{hits_, num_ids_ - num_window_ - hits_,", "{num_ids_ - num_window_ - hits_, hits_,"))
plant("gather", "unspilled_row_fetched", "the first position that is not spilled is fetched from the store",
      (GATHER_REF, "position > list.newest_final || position >= list.spilled_len",
       "position > list.newest_final || position > list.spilled_len"),
      (GATHER, "is_final && id < spilled_len_", "is_final && id <= spilled_len_"))
plant("gather", "overwritten_row_still_read", "the ring is taken to hold one row more than it does",
      (GATHER_REF, "position <= int64_t{p.batch.seq_len[list.b]} - 1 - p.window_rows",
       "position < int64_t{p.batch.seq_len[list.b]} - 1 - p.window_rows"),
      (GATHER, "id < oldest_in_window_", "id < oldest_in_window_ - 1"))
plant("gather", "zeros_are_a_hit_later", "a row that could not be had is written down as if it were there",
      (GATHER_REF, "exists ? list.ids[i] : -1", "list.ids[i]"),
      (GATHER, "exists ? ids_[i] : -1", "ids_[i]"))
plant("gather", "queries_share_a_selection", "all queries of a cache slot use the selection of the first",
      (GATHER_REF, "slot * p.status_queries + q", "slot * p.status_queries"),
      (GATHER, "slot * p.status_queries + q", "slot * p.status_queries"))
plant("gather", "selections_packed_by_the_step", "fewer queries than there is room for use others' selections",
      (GATHER_REF, "slot * p.status_queries + q", "slot * p.batch.q_len + q"),
      (GATHER, "slot * p.status_queries + q", "slot * p.batch.q_len + q"))
plant("gather", "table_finds_any_place", "a place of the same hash counts as the one of the position",
      (GATHER, "places_[place] == id && is_wanted[place] == 0", "is_wanted[place] == 0"))
plant("gather", "reset_of_the_first_query_only", "a new request finds rows of the one before",
      (GATHER_REF, "row < (slot + 1) * p.status_queries", "row < slot * p.status_queries + 1"))
plant("gather", "selection_not_declared", "gather does not declare that it writes the selections",
      (ACCESSES, "    declare_rows(list, p.selection, query * p.topk, entries, Mode::kWrite);\n", ""))
