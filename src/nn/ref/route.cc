#include <cmath>
#include <limits>

#include "nn/moe_ops.h"

namespace tidepool::nn::ref {
namespace {

constexpr float kExcluded = -std::numeric_limits<float>::infinity();

float sigmoid(float v) { return 1.0f / (1.0f + std::exp(-v)); }

// Selection score of one expert; NaN counts as the smallest, so that a choice always exists.
float selection_score(const RouteParams& p, const float* logits, int32_t e) {
  const float b = sigmoid(logits[e]) + p.bias[e];
  return std::isnan(b) ? kExcluded : b;
}

// Sum of the two largest selection scores of a group.
float group_score(const RouteParams& p, const float* logits, int32_t group) {
  const int32_t size = p.num_experts / p.num_groups;
  float first = kExcluded, second = kExcluded;
  for (int32_t e = group * size; e < (group + 1) * size; ++e) {
    const float b = selection_score(p, logits, e);
    if (b > first) {
      second = first;
      first = b;
    } else if (b > second) {
      second = b;
    }
  }
  return first + second;
}

// How many groups come before `group` in descending score (ties: lower group first) decides whether it stays.
bool group_stays(const RouteParams& p, const float* logits, int32_t group) {
  const float own = group_score(p, logits, group);
  int32_t before = 0;
  for (int32_t g = 0; g < p.num_groups; ++g) {
    const float other = group_score(p, logits, g);
    before += other > own || (other == own && g < group);
  }
  return before < p.groups_kept;
}

bool listed(const int32_t* experts, int32_t count, int32_t e) {
  for (int32_t i = 0; i < count; ++i) {
    if (experts[i] == e) return true;
  }
  return false;
}

// Inserts e into the descending list of at most `limit` experts; experts come in ascending order, so a tie goes behind.
void insert_expert(int32_t* experts, float* scores, int32_t& count, int32_t limit, int32_t e, float score) {
  if (count == limit && !(score > scores[limit - 1])) return;
  int32_t at = count < limit ? count++ : limit - 1;
  for (; at > 0 && score > scores[at - 1]; --at) {
    experts[at] = experts[at - 1];
    scores[at] = scores[at - 1];
  }
  experts[at] = e;
  scores[at] = score;
}

}  // namespace

int32_t route_pieces(const RouteParams& p) { return p.rows.count() > 0 ? p.rows.count() : 0; }

void route_run(const RouteParams& p, int32_t piece, int32_t) {
  const int64_t m = p.rows.begin() + piece;
  const float* logits = p.logits + m * p.num_experts;
  int32_t* expert = p.expert + m * p.experts_per_token;
  float* weight = p.weight + m * p.experts_per_token;  // holds selection scores until the end
  const int32_t group_size = p.num_experts / p.num_groups;
  int32_t count = 0;
  for (int32_t g = 0; g < p.num_groups; ++g) {
    if (p.num_groups > 1 && !group_stays(p, logits, g)) continue;
    for (int32_t e = g * group_size; e < (g + 1) * group_size; ++e) {
      insert_expert(expert, weight, count, p.experts_per_token, e, selection_score(p, logits, e));
    }
  }
  // Fewer kept experts than choices (not in any published model): excluded ones follow by id.
  for (int32_t e = 0; count < p.experts_per_token && e < p.num_experts; ++e) {
    if (!listed(expert, count, e)) expert[count++] = e;
  }
  float sum = 0;
  for (int32_t j = 0; j < p.experts_per_token; ++j) {
    weight[j] = sigmoid(logits[expert[j]]);
    sum += weight[j];
  }
  for (int32_t j = 0; j < p.experts_per_token; ++j) {
    weight[j] = (p.norm_topk_prob ? weight[j] / (sum + 1e-20f) : weight[j]) * p.scaling;
  }
}

int32_t expert_list_pieces(const ExpertListParams& p) { return p.num_experts > 0 ? 1 : 0; }

// A counting sort; offset[e] serves as the cursor of expert e while entries are placed.
void expert_list_run(const ExpertListParams& p, int32_t, int32_t) {
  const int32_t k = p.experts_per_token, begin = p.rows.begin() * k, end = p.rows.end() * k;
  for (int32_t e = 0; e <= p.num_experts; ++e) p.offset[e] = 0;
  for (int32_t i = begin; i < end; ++i) ++p.offset[p.expert[i] + 1];
  for (int32_t e = 0; e < p.num_experts; ++e) p.offset[e + 1] += p.offset[e];
  for (int32_t i = begin; i < end; ++i) p.entry[p.offset[p.expert[i]]++] = i;
  for (int32_t e = p.num_experts; e > 0; --e) p.offset[e] = p.offset[e - 1];
  p.offset[0] = 0;
}

}  // namespace tidepool::nn::ref
