// What the engine remembers: counters of requests, running and ended, and recorded rows.
#include "engine/engine_impl.h"

namespace tidepool {
namespace {

constexpr size_t kRememberedRequests = 4096;

}  // namespace

void EngineImpl::record_rows(StepResult& result) const {
  const auto hidden = static_cast<size_t>(config_.hidden_size), topk = static_cast<size_t>(config_.index_topk);
  for (size_t m = 0; m < row_request_.size(); ++m) {
    RowRecord record;
    record.request = row_request_[m]->id;
    record.position = tokens_.positions[m];
    record.topk.resize(taps_.topk.size());
    for (size_t layer = 0; layer < taps_.hidden.size(); ++layer) {
      const float* h = taps_.hidden[layer].data() + m * hidden;
      record.hidden.emplace_back(h, h + hidden);
      if (taps_.topk[layer].empty()) continue;
      const int32_t* ids = taps_.topk[layer].data() + m * topk;
      record.topk[layer].assign(ids, ids + topk);
    }
    const float* logits = model_->logits(static_cast<int32_t>(m));  // every row has logits when rows are recorded
    record.logits.assign(logits, logits + config_.vocab_size);
    result.rows.push_back(std::move(record));
  }
}

void EngineImpl::remember_counts(const engine::Request& r) {
  auto counts = cache_->slot_counts(r.cache_slot);
  for (size_t g = 0; g < counts.size(); ++g) ended_total_[g] += counts[g];
  ended_[r.id] = std::move(counts);
  if (ended_.size() > kRememberedRequests) ended_.erase(ended_.begin());
}

CacheStats EngineImpl::stats_of(const std::vector<cache::Counts>& groups) const {
  CacheStats s;
  const int64_t row_bytes = info_.row_bytes;
  const auto convert = [&](const cache::Counts& c) {
    return CacheCounts{c.hits,      c.misses,  c.window, c.unspilled, c.fetched_rows, c.fetched_rows * row_bytes,
                       c.installed, c.evicted, c.wraps};
  };
  cache::Counts total;
  for (const auto& c : groups) {
    total += c;
    s.groups.push_back(convert(c));
  }
  s.total = convert(total);
  s.device_kv_bytes = cache_->arena().used_bytes();
  s.device_kv_budget_bytes = cache_->arena().budget_bytes();
  s.host_kv_bytes = cache_->host_bytes();
  s.prefill_fetched_bytes = cache_->prefill_fetched_rows() * row_bytes;
  s.spilled_bytes = cache_->spilled_rows() * row_bytes;
  s.slot_resets = cache_->slot_resets();
  return s;
}

CacheStats EngineImpl::stats() {
  auto groups = ended_total_;
  for (const auto& r : running_) {
    const auto counts = cache_->slot_counts(r->cache_slot);
    for (size_t g = 0; g < groups.size(); ++g) groups[g] += counts[g];
  }
  return stats_of(groups);
}

CacheStats EngineImpl::stats(RequestId id) {
  if (const auto found = ended_.find(id); found != ended_.end()) return stats_of(found->second);
  for (const auto& r : running_) {
    if (r->id == id) return stats_of(cache_->slot_counts(r->cache_slot));
  }
  return stats_of(std::vector<cache::Counts>(ended_total_.size()));
}

}  // namespace tidepool
