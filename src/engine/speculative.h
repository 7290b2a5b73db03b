// Accepting drafts: which of the tokens that the MTP layer proposed stand, and what follows them. Host code; pure
// functions of their arguments.
//
// A step ran rows 0..n of a request: row 0 fed the newest token, row j the draft d_j. Row j's logits say what follows.
//   Greedy: y_j = argmax of row j; drafts are accepted while d_{j+1} == y_j; the token behind the last accepted one is
//   y_a: the text is that of plain greedy decoding.
//   Sampling (Leviathan et al., arXiv 2211.17192): p = nn::probabilities, what nn::sample draws from (temperature,
//   top-k, top-p applied), q = the one the draft was drawn from. Draft d is accepted with probability min(1, p(d) /
//   q(d)); otherwise the token is drawn from the positive part of p - q, normalised. After the last accepted draft the
//   token is drawn from p. Every token is then distributed as plain sampling would have it.
// Random numbers come from (seed, stream, token number, which draw): no state, and a batch never changes a draw.
#pragma once

#include <cstdint>
#include <span>

namespace tidepool::engine {

// Draws from a distribution by `uniform` in [0, 1), walking ids in ascending order; the last id with weight when the
// sum falls short of uniform by rounding.
int32_t draw(std::span<const double> p, double uniform);

// One draft against the target's row: accepted, or the token to take instead.
struct DraftVerdict {
  bool accepted = false;
  int32_t token = -1;  // the draft when accepted
};
// `accept_uniform`, `token_uniform` in [0, 1). residual: scratch [vocab]. q(draft) must be > 0.
DraftVerdict verify_draft(std::span<const double> p, std::span<const double> q, int32_t draft, double accept_uniform,
                          double token_uniform, std::span<double> residual);

// Which draw of a token: the numbers of different purposes never coincide, nor with those of plain sampling.
enum class Draw : uint64_t { kDraft = 1, kAccept = 2, kResidual = 3, kBonus = 4 };
double uniform_of(uint64_t seed, uint64_t stream, int64_t token_number, Draw draw);

}  // namespace tidepool::engine
