#include "engine/engine_impl.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/flags.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/text.h"
#include "nn/indexer.h"
#include "nn/sample.h"
#include "nn/sparse_attention.h"

namespace tidepool {
namespace {

constexpr int32_t kMaxRowValues =
    nn::kMaxAttentionWidth - 62;  // latent and rope are each rounded up to 32 in the kernel

void check_limit(const char* option, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return;
  throw base::UsageError(fmt::format("{} {}: the value must be 1 to {}", option, value, most));
}

}  // namespace

const char* EngineImpl::status_sentence(ops::RequestStatus status) {
  switch (status) {
    case ops::RequestStatus::kFetchFailed:
      return "the host store could not deliver a cache row";
    case ops::RequestStatus::kSpillFailed:
      return "the host store could not take a cache row";
    case ops::RequestStatus::kBadPosition:
      return "a selected position lies outside the cache";
    case ops::RequestStatus::kRowNotDurable:
      return "a cache row was wanted that is neither in the window nor in the host store";
    default:
      return "unknown status";
  }
}

EngineImpl::EngineImpl(const EngineOptions& options, const EngineHooks& hooks) : options_(options) {
  auto& o = options_;
  tidepool_check(o.kv_dtype == DType::kBF16 || o.kv_dtype == DType::kF32,
                 "kv_dtype {} is not available, bfloat16 and float32 are", dtype_name(o.kv_dtype));
  const DType row_dtype = o.row_dtype.value_or(o.kv_dtype);
  tidepool_check(
      row_dtype == DType::kBF16 || row_dtype == DType::kF32 || row_dtype == DType::kI8 || row_dtype == DType::kF8E4M3,
      "row_dtype {} is not available, bfloat16, float32, int8 and float8_e4m3 are", dtype_name(row_dtype));
  check_limit("--max-num-seqs", o.max_num_seqs, kMaxNumSeqs);
  check_limit("--max-num-batched-tokens", o.max_num_batched_tokens, kMaxNumBatchedTokens);
  if (o.num_threads == 0) o.num_threads = base::available_threads();
  check_limit("--threads", o.num_threads, kMaxThreads);

  config_ = model::Config::read_directory(o.model);
  if (o.latent_norm_eps > 0) config_.latent_norm_eps = o.latent_norm_eps;
  tidepool_check(config_.index_dim <= nn::kMaxIndexDim && config_.row_values() <= kMaxRowValues,
                 "{}: index keys of {} values and cache rows of {} are not available, at most {} and {} are", o.model,
                 config_.index_dim, config_.row_values(), nn::kMaxIndexDim, kMaxRowValues);
  if (o.max_model_len == 0) o.max_model_len = static_cast<int32_t>(std::min<int64_t>(config_.max_position, 1 << 30));
  check_limit("--max-model-len", o.max_model_len, config_.max_position);
  check_drafts();

  device::ExecutorOptions executor;
  executor.num_threads = o.num_threads;
  executor.schedule = hooks.schedule;
  executor.seed = hooks.schedule_seed;
  executor.check_order = o.check_order;
  executor_ = std::make_unique<device::Executor>(executor);
  make_cache(hooks);  // before the weights: a budget that is too small is known at once

  model::LoadOptions load;
  load.num_threads = o.num_threads;
  load.allow_nan = o.allow_nan;
  load.load_mtp = o.num_draft_tokens > 0;
  load.progress = o.load_progress;
  load.admit = [this](uint64_t bytes) { check_memory(bytes); };
  weights_ = std::make_unique<model::Weights>(model::Weights::load(o.model, config_, load));
  tidepool_check(o.num_draft_tokens == 0 || weights_->mtp() != nullptr,
                 "{}: --num-draft-tokens {} needs the tensors of the MTP layer, and the checkpoint has none of them",
                 o.model, o.num_draft_tokens);
  make_model();
  if (o.timeline) executor_->set_timeline(&timeline_);
}

EngineImpl::~EngineImpl() {
  executor_->drain();
  model_.reset();
  cache_.reset();
}

void EngineImpl::check_drafts() const {
  const int32_t drafts = options_.num_draft_tokens;
  if (drafts < 0 || drafts > kMaxDraftTokens) {
    throw base::UsageError(fmt::format("--num-draft-tokens {}: the value must be 0 to {}", drafts, kMaxDraftTokens));
  }
  tidepool_check(drafts == 0 || config_.num_mtp_layers > 0,
                 "{}: --num-draft-tokens {} needs an MTP layer, and the model has none (num_nextn_predict_layers)",
                 options_.model, drafts);
}

void EngineImpl::make_cache(const EngineHooks& hooks) {
  const auto& o = options_;
  cache::CacheOptions c;
  c.layer_groups = config_.layer_groups();
  c.num_layers = config_.num_layers;
  c.q_len = 1 + o.num_draft_tokens;
  c.has_mtp = o.num_draft_tokens > 0;
  if (c.has_mtp) c.layer_groups.push_back({c.num_layers++});
  c.format = {o.row_dtype.value_or(o.kv_dtype), config_.kv_lora_rank, config_.rope_dim};
  c.index_dim = config_.index_dim;
  c.key_type = o.kv_dtype;
  c.topk = config_.index_topk;
  c.max_cache_slots = o.max_num_seqs;
  c.max_model_len = o.max_model_len + num_draft_rows();
  c.block_size = o.block_size;
  c.route = o.route == OffloadRoute::kSelect   ? cache::Route::kSelect
            : o.route == OffloadRoute::kGather ? cache::Route::kGather
                                               : cache::Route::kOff;
  c.pool_size = o.pool_size;
  c.num_ways = o.num_ways;
  c.policy = o.policy;
  c.max_chunk_rows = o.max_num_batched_tokens;
  c.window_rows = hooks.window_rows;
  c.spill_turns = hooks.spill_turns;
  c.stage_rows = hooks.stage_rows;
  c.device_budget_bytes = o.device_kv_bytes;
  c.host_budget_bytes = o.host_kv_bytes;
  c.guard = o.protect_memory ? device::Guard::kProtected : device::Guard::kNone;
  c.reference_ops = o.reference_kernels;
  c.decorate_store = hooks.decorate_store;
  cache_ = std::make_unique<cache::KvCache>(c, *executor_);
  ended_total_.resize(c.layer_groups.size());
  rows_.decode.reserve(static_cast<size_t>(o.max_num_seqs));

  info_.architecture = config_.architecture;
  info_.vocab_size = config_.vocab_size;
  info_.num_layers = config_.num_layers;
  info_.hidden_size = config_.hidden_size;
  info_.index_topk = config_.index_topk;
  info_.is_full = config_.is_full;
  info_.layer_groups = c.layer_groups;
  info_.eos_ids = config_.eos_ids;
  info_.max_position = config_.max_position;
  info_.row_bytes = c.format.row_bytes();
}

// Memory is only reserved until it is touched, so that asking for too much succeeds and the process is killed later.
void EngineImpl::check_memory(uint64_t weight_bytes) const {
  const uint64_t device = cache_->arena().used_bytes(), host = cache_->host_bytes();
  const uint64_t activations = model::DsaModel::activation_bytes(config_, model_limits());
  const uint64_t needed = weight_bytes + device + host + activations, available = base::available_memory_bytes();
  tidepool_check(
      needed <= available,
      "not enough memory: weights of {}, device KV of {}, host KV of {} and activations of {} are {}, but {} are "
      "available; a smaller --max-model-len, --max-num-seqs or KV budget takes less",
      base::bytes_text(weight_bytes), base::bytes_text(device), base::bytes_text(host), base::bytes_text(activations),
      base::bytes_text(needed), base::bytes_text(available));
}

model::ModelLimits EngineImpl::model_limits() const {
  const auto& o = options_;
  model::ModelLimits limits;
  limits.max_requests = o.max_num_seqs;
  limits.num_draft_tokens = o.num_draft_tokens;
  limits.mtp_gather_reuse = o.mtp_gather_reuse;
  limits.max_decode_rows = o.max_num_seqs * (1 + o.num_draft_tokens);
  limits.max_chunk_rows = o.max_num_batched_tokens;
  limits.max_logit_rows = limits.max_decode_rows + (o.record_hidden ? o.max_num_batched_tokens : 1);
  limits.max_model_len = o.max_model_len + num_draft_rows();
  limits.backend = o.reference_kernels ? nn::Backend::kRef : nn::Backend::kCpu;
  limits.guard = o.protect_memory ? device::Guard::kProtected : device::Guard::kNone;
  return limits;
}

void EngineImpl::make_model() {
  const model::ModelLimits limits = model_limits();
  model_ = std::make_unique<model::DsaModel>(config_, *weights_, limits, *executor_);
  const auto vocab = static_cast<size_t>(config_.vocab_size);
  if (num_drafts() > 0) {
    for (auto* p : {&target_p_, &residual_p_}) p->resize(vocab);
    const auto requests = static_cast<size_t>(options_.max_num_seqs);
    mtp_requests_.reserve(requests);
    mtp_rows_.reserve(requests);
    draft_ids_.reserve(requests);
    for (auto* list : {&mtp_tokens_.token_ids, &mtp_tokens_.logit_rows}) list->reserve(requests * (1 + num_drafts()));
  }
  if (!options_.record_hidden) return;
  if (num_drafts() > 0) {
    const auto requests = static_cast<size_t>(options_.max_num_seqs);
    taps_.draft_hidden.resize(requests * static_cast<size_t>(config_.hidden_size));
    taps_.draft_topk.resize(requests * static_cast<size_t>(config_.index_topk));
  }
  const auto layers = static_cast<size_t>(config_.num_layers), rows = static_cast<size_t>(limits.max_logit_rows);
  taps_.hidden.assign(layers, std::vector<float>(rows * static_cast<size_t>(config_.hidden_size)));
  taps_.topk.resize(layers);
  for (size_t i = 0; i < layers; ++i) {
    if (config_.is_full[i]) taps_.topk[i].resize(rows * static_cast<size_t>(config_.index_topk));
  }
}

void EngineImpl::schedule(StepResult& result) {
  rows_.decode.clear();
  rows_.chunk = {};
  for (auto* list : {&tokens_.token_ids, &tokens_.positions, &tokens_.logit_rows, &tokens_.mtp_token_ids})
    list->clear();
  row_request_.clear();
  const auto add_row = [&](engine::Request& r, int32_t token, int32_t position, bool chooses) {
    tokens_.token_ids.push_back(token);
    tokens_.positions.push_back(position);
    row_request_.push_back(&r);
    if (!chooses && !options_.record_hidden) return;
    if (chooses && r.first_logit_row < 0) r.first_logit_row = static_cast<int32_t>(tokens_.logit_rows.size());
    tokens_.logit_rows.push_back(static_cast<int32_t>(row_request_.size()) - 1);
  };
  const bool holds_decode =
      options_.prefill_first && std::any_of(running_.begin(), running_.end(), [](auto& r) { return r->in_prefill(); });
  for (auto& r : running_) {
    r->first_logit_row = -1;
    r->new_tokens = 0;
    if (r->in_prefill() || holds_decode) continue;
    rows_.decode.push_back({r->cache_slot, r->num_computed + 1 + options_.num_draft_tokens});
    add_row(*r, r->tokens[static_cast<size_t>(r->num_computed)], r->num_computed, true);
    for (size_t j = 0; j < num_drafts(); ++j)
      add_row(*r, r->drafts[j], r->num_computed + 1 + static_cast<int32_t>(j), true);
  }
  result.decode_tokens = static_cast<int32_t>(rows_.decode.size());
  const auto prefilling = std::find_if(running_.begin(), running_.end(), [](auto& r) { return r->in_prefill(); });
  if (prefilling == running_.end()) return;
  auto& r = **prefilling;
  // Decode rows count too, but a prompt always advances.
  const int32_t room = std::max(1, options_.max_num_batched_tokens - static_cast<int32_t>(row_request_.size()));
  const int32_t count = std::min(room, r.prompt_len() - r.num_computed);
  const bool ends_prompt = r.num_computed + count == r.prompt_len();
  rows_.chunk = {r.cache_slot, r.num_computed, count, 0};
  for (int32_t i = 0; i < count; ++i) {
    const int32_t position = r.num_computed + i;
    add_row(r, r.tokens[static_cast<size_t>(position)], position, ends_prompt && i + 1 == count);
  }
  result.prefill_tokens = count;
  if (num_drafts() == 0) return;
  // What follows the prompt's last token is not known yet: its row goes through the MTP layer with the first draft.
  rows_.chunk.mtp_count = count - (ends_prompt ? 1 : 0);
  const auto next = r.tokens.begin() + r.num_computed + 1;
  tokens_.mtp_token_ids.assign(next, next + rows_.chunk.mtp_count);
}

void EngineImpl::run_main() {
  if (observer_) observer_(cache::Pass::kMain, false);
  cache_->begin_step(rows_);
  model_->begin_step(rows_, tokens_);
  const bool decodes_only = rows_.chunk.count == 0;
  if (decodes_only && replay_ != nullptr) {
    executor_->replay(*replay_);
    cache_->end_replayed_pass();
  } else {
    const bool captures = decodes_only && capture_ != nullptr;
    if (captures) executor_->begin_capture(*std::exchange(capture_, nullptr));
    run_pass(cache::Pass::kMain, static_cast<int32_t>(rows_.decode.size()), 0,
             [&] { model_->push_step(*cache_, options_.record_hidden ? &taps_ : nullptr); });
    if (captures) executor_->end_capture();
  }
  if (rows_.chunk.mtp_count > 0) {
    run_pass(cache::Pass::kMtpPrompt, 0, 0, [&] { model_->push_mtp_prompt(*cache_); });
  }
  executor_->synchronize(device::kMainStream);
  if (observer_) observer_(cache::Pass::kMain, true);
}

void EngineImpl::run_bench_step(const cache::StepRows& rows, const model::StepTokens& tokens) {
  rows_ = rows;
  tokens_ = tokens;
  run_main();
}

void EngineImpl::step(StepResult& result) {
  result.outputs.clear();
  result.rows.clear();
  result.drafts.clear();
  result.prefill_tokens = result.decode_tokens = result.drafted_tokens = result.accepted_tokens = 0;
  end_cancelled(result);
  admit();
  if (running_.empty()) return;
  result.outputs.reserve(running_.size() * (1 + num_drafts()));  // once, not when the first draft is accepted
  schedule(result);
  run_main();
  if (options_.record_hidden) record_rows(result);
  collect(result);
  if (num_drafts() > 0) run_drafts(result);
  std::erase_if(running_, [](auto& r) { return r->cache_slot < 0; });
}

std::optional<int32_t> EngineImpl::choose_token(const engine::Request& r, const float* logits) {
  const std::span<const float> row(logits, static_cast<size_t>(config_.vocab_size));
  const auto index = static_cast<size_t>(r.num_generated());
  if (index < r.options.forced.size()) return r.options.forced[index];
  if (r.options.temperature <= 0) return nn::greedy(row);
  const double uniform = nn::uniform_of(options_.seed, r.options.sampling_stream, index);
  return nn::sample(row, r.sampling(), uniform, sample_ids_, sample_p_);
}

void EngineImpl::fail_request(engine::Request& r, std::string why, StepResult& result) {
  end_request(r, {r.id, -1, FinishReason::kError, fmt::format("request {}: {}", r.id, why), {}}, result);
}

void EngineImpl::collect(StepResult& result) {
  for (auto& r : running_) {
    const auto status = cache_->status(r->cache_slot);
    if (status != ops::RequestStatus::kOk) fail_request(*r, status_sentence(status), result);
  }
  if (rows_.chunk.count > 0) row_request_.back()->num_computed += rows_.chunk.count;
  for (auto& r : running_) {
    if (r->cache_slot >= 0 && r->first_logit_row >= 0) collect_request(*r, result);
  }
}

// Tokens of one request: of each row that stands one, until a draft is refused.
void EngineImpl::collect_request(engine::Request& r, StepResult& result) {
  const bool decoded = r.num_generated() > 0;
  const size_t num_rows = decoded ? 1 + num_drafts() : 1;
  if (decoded) result.drafted_tokens += options_.num_draft_tokens;
  for (size_t row = 0; row < num_rows; ++row) {
    const float* logits = model_->logits(r.first_logit_row + static_cast<int32_t>(row));
    const Choice choice = verify_row(r, logits, row);
    if (choice.token < 0) {
      return fail_request(r, fmt::format("the logits of position {} are not numbers", r.tokens.size() - 1), result);
    }
    if (decoded) ++r.num_computed;
    Output out{r.id, choice.token, FinishReason::kNone, "", {}};
    if (options_.record_logits) out.logits.assign(logits, logits + config_.vocab_size);
    r.tokens.push_back(choice.token);
    ++r.new_tokens;
    result.accepted_tokens += choice.accepted;
    const bool stops = !r.options.ignore_eos &&
                       std::find(config_.eos_ids.begin(), config_.eos_ids.end(), choice.token) != config_.eos_ids.end();
    if (stops || r.num_generated() >= r.options.max_tokens) {
      out.finish = stops ? FinishReason::kStop : FinishReason::kLength;
      return end_request(r, std::move(out), result);
    }
    result.outputs.push_back(std::move(out));
    if (!choice.accepted) return;
  }
}

void EngineImpl::end_request(engine::Request& r, Output out, StepResult& result) {
  remember_counts(r);
  cache_->close(r.cache_slot);
  r.cache_slot = -1;
  result.outputs.push_back(std::move(out));
}

}  // namespace tidepool
