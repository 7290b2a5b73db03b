"""The faults of drafts: the MTP layer's passes, verification, rollback, what is final (see mutations.py).

What makes drafts worse and no text wrong is found by the golden cases alone, or because sampled texts depend on what
was drafted.
"""

from mutations import ENGINE, INPUTS, plant

DRAFTS, VERIFY = "src/engine/engine_drafts.cc", "src/engine/speculative.cc"
MTP, MODEL = "src/model/dsa_model_mtp.cc", "src/model/dsa_model.h"

# --- verification ---
plant("verification", "greedy_accepts_every_draft", "a draft stands whatever the target says",
      (DRAFTS, "has_draft && *token == r.drafts[row]", "has_draft"))
plant("verification", "draft_compared_one_row_late", "row j is asked about draft j + 1",
      (DRAFTS, "*token == r.drafts[row]", "*token == r.drafts[std::min(row + 1, r.drafts.size() - 1)]"))
plant("verification", "always_accepted", "sampling takes every draft",
      (VERIFY, "if (accept_uniform * q[d] < p[d]) return", "if (accept_uniform < 1) return"))
plant("verification", "accepted_by_p_alone", "a draft stands with probability p, not p / q",
      (VERIFY, "accept_uniform * q[d] < p[d]", "accept_uniform < p[d]"))
plant("verification", "residual_is_the_target", "a refused draft is followed by a token of p, not of p - q",
      (VERIFY, "draw(differ ? std::span<const double>(residual) : p,", "draw(p,"))
plant("verification", "one_number_for_every_purpose", "draft, acceptance and residual have one uniform number",
      (VERIFY, "static_cast<uint64_t>(draw) << kPurposeShift |",
       "(static_cast<uint64_t>(draw) & 0) << kPurposeShift |"))
plant("verification", "drafts_share_a_token_number", "all drafts of a step are drawn with the number of the first",
      (DRAFTS, "static_cast<int64_t>(r.num_generated()) + static_cast<int64_t>(draft)",
       "static_cast<int64_t>(r.num_generated() + 0 * static_cast<int>(draft))"))
plant("verification", "distribution_of_another_draft", "every draft is judged by what the first was drawn from",
      (DRAFTS, "r.draft_p.data() + row * vocab", "r.draft_p.data() + 0 * row * vocab"))

# --- rollback ---
plant("rollback", "rejected_rows_count_as_computed", "the next step begins behind the rows of rejected drafts",
      (ENGINE, "if (decoded) ++r.num_computed;", "if (decoded) r.num_computed += row == 0 ? 2 : 1;"))
plant("rollback", "rejected_rows_are_spilled", "rows count as final in the step that writes them",
      (INPUTS, "q_len == 1 ? row.seq_len : first;", "row.seq_len;"))
plant("rollback", "rejected_rows_are_pooled", "rows may be pooled in the step that writes them",
      (INPUTS, "add_decode(row.cache_slot, row.seq_len, first);",
       "add_decode(row.cache_slot, row.seq_len, row.seq_len);"))
plant("rollback", "pads_of_the_mtp_layer_are_spilled", "rows of the MTP layer that do not stand count as final",
      (INPUTS, "mtp_track_.add_decode(r.cache_slot, r.first + r.count);",
       "mtp_track_.add_decode(r.cache_slot, r.first + q_len);"))
plant("rollback", "draft_rows_are_pooled", "what a draft step writes may be pooled before anybody knows it stands",
      (INPUTS, "add_decode(r.cache_slot, position + 1, r.first);",
       "add_decode(r.cache_slot, position + 1, position + 1);"))

# --- the MTP layer ---
plant("mtp", "row_fed_its_own_token", "row i sees token i, not the one behind it",
      (DRAFTS, "r->tokens[static_cast<size_t>(first + j + 1)]", "r->tokens[static_cast<size_t>(first + j)]"))
plant("mtp", "prompt_row_fed_its_own_token", "the same in the prompt",
      (ENGINE, "const auto next = r.tokens.begin() + r.num_computed + 1;",
       "const auto next = r.tokens.begin() + r.num_computed;"))
plant("mtp", "hidden_state_of_the_first_row", "every row that stands sees the hidden state of the first",
      (DRAFTS, "stands ? r->first_logit_row + j : 0", "stands ? r->first_logit_row : 0"))
plant("mtp", "hidden_state_before_the_final_norm", "the prompt's rows see the residual stream",
      (MTP, "push_mtp_input(b.a, nullptr, 0);", "push_mtp_input(b.x, nullptr, 0);"))
plant("mtp", "embedding_half_second", "the two halves of eh_proj's input change places",
      (MTP, "eps, b.eh + h, 2 * h});", "eps, b.eh, 2 * h});"),
      (MTP, "w.enorm, h, eps, b.eh, 2 * h});", "w.enorm, h, eps, b.eh + h, 2 * h});"))
plant("mtp", "norms_change_places", "the embedding is normed by hnorm",
      (MTP, "b.x, h, nullptr, 0, w.enorm,", "b.x, h, nullptr, 0, w.hnorm,"))
plant("mtp", "draft_step_at_the_position_before", "every draft step has the position of the first",
      (MTP, "requests[r].last() + draft;", "requests[r].last() + 0 * draft;"))
plant("mtp", "list_kept_of_the_first_row", "draft steps attend to what the first row that stands has chosen",
      (MTP, "last_row_.data(), limits_.max_decode_rows});", "nullptr, 0});"))
plant("mtp", "list_made_again", "draft steps run the indexer though they should keep the first one's list",
      (MODEL, "return config_.index_share_for_mtp_iteration;", "return false;"))
plant("mtp", "rows_installed_before_the_last_draft", "the pool changes while draft steps still read it",
      (MTP, "return pass_ != Pass::kMtpRows || !keeps_draft_lists() || limits_.num_draft_tokens == 1;", "return true;"))
plant("mtp", "ring_overwritten_before_the_spill", "the wait for the ring forgets the rows that drafts will take",
      (INPUTS, "must_wait |= options_.has_mtp && mtp_track_.spilled_len(row.cache_slot) <= newest_draft -"
               " options_.window_rows;", "(void)newest_draft;"))
plant("mtp", "one_list_of_operations_for_any_number_of_requests", "a replayed pass may be one of another batch",
      ("src/engine/engine_lists.cc", "static_cast<int32_t>(pass), num_requests, variant};",
       "static_cast<int32_t>(pass), 0 * num_requests, variant};"))
