// Both implementations of the mixture-of-experts operators. Routing and listing have one implementation: they decide
// which experts run, so they must be bit-equal everywhere, and they are small.
#pragma once

#include "nn/moe.h"

namespace tidepool::nn {

namespace ref {
int32_t route_pieces(const RouteParams& p);
void route_run(const RouteParams& p, int32_t piece, int32_t num_pieces);
int32_t expert_list_pieces(const ExpertListParams& p);
void expert_list_run(const ExpertListParams& p, int32_t piece, int32_t num_pieces);
int32_t expert_pieces(const ExpertParams& p);
void expert_up_run(const ExpertParams& p, int32_t piece, int32_t num_pieces);
void expert_down_run(const ExpertParams& p, int32_t piece, int32_t num_pieces);
int32_t combine_pieces(const CombineParams& p);
void combine_run(const CombineParams& p, int32_t piece, int32_t num_pieces);
}  // namespace ref

namespace cpu {
int32_t expert_up_pieces(const ExpertParams& p);
void expert_up_run(const ExpertParams& p, int32_t piece, int32_t num_pieces);
int32_t expert_down_pieces(const ExpertParams& p);
void expert_down_run(const ExpertParams& p, int32_t piece, int32_t num_pieces);
int32_t combine_pieces(const CombineParams& p);
void combine_run(const CombineParams& p, int32_t piece, int32_t num_pieces);
}  // namespace cpu

}  // namespace tidepool::nn
