// One text written with 0, 1, 2, ... drafts: engines that live at once take turns, a block of tokens each, so that what
// else the machine does meets all of them. Greedy: what they write must be the same.
#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/parallel.h"
#include "engine/bench_common.h"
#include "engine/engine_impl.h"

namespace tidepool {
namespace {

using engine::StepSums;
using Clock = std::chrono::steady_clock;

constexpr int32_t kTurnTokens = 24;

double ms_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

// The medians of what is measured of a decode step.
struct Series {
  std::vector<double> step_ms, main_ms, mtp_ms;        // steps without a timeline
  std::vector<StepSums> timed;                         // steps with one
  std::vector<StepSums> costs, main_costs, mtp_costs;  // steps whose operations are asked for their costs, too
};

// An engine and the text it writes.
class Writer {
 public:
  Writer(const DraftsBenchOptions& o, int32_t num_drafts, const std::vector<int32_t>& prompt)
      : impl_(engine_options(o, num_drafts, prompt)) {
    timeline_.reserve(1 << 14);
    impl_.set_pass_observer([this](cache::Pass pass, bool has_run) { note_pass(pass, has_run); });
    RequestOptions request;
    request.prompt = prompt;
    request.max_tokens = o.max_tokens + DraftsBenchOptions::kExtraTokens;
    request.ignore_eos = true;
    const Verdict verdict = impl_.submit(request);
    tidepool_check(verdict.admitted, "bench: {}", verdict.reason);
    while (ids_.empty()) step();
    num_steps_ = num_tokens_ = 0;  // what the prompt took says nothing about drafts
  }

  // A turn: decode steps until the text has so many tokens.
  void write(size_t num_tokens) {
    step();  // gets the caches back from the other engines
    while (ids_.size() < num_tokens) {
      switch (next_kind_++ % 4) {
        case 1:
          cost_step();
          break;
        case 3:
          timed_step();
          break;
        default:
          series_.step_ms.push_back(step());
          series_.main_ms.push_back(main_ms_);
          series_.mtp_ms.push_back(mtp_ms_);
      }
    }
  }

  const std::vector<int32_t>& ids() const { return ids_; }
  const Series& series() const { return series_; }
  double accept_length() const { return static_cast<double>(num_tokens_) / static_cast<double>(num_steps_); }
  const EngineOptions& options() const { return impl_.options(); }

 private:
  static EngineOptions engine_options(const DraftsBenchOptions& o, int32_t num_drafts,
                                      const std::vector<int32_t>& prompt) {
    EngineOptions e = o.engine;
    e.num_draft_tokens = num_drafts;
    e.max_num_seqs = 1;
    e.max_model_len = static_cast<int32_t>(prompt.size()) + o.max_tokens + DraftsBenchOptions::kExtraTokens;
    return e;
  }

  void note_pass(cache::Pass pass, bool has_run) {
    const auto now = Clock::now();
    if (!has_run) {
      pass_began_ = now;
      return;
    }
    const bool is_main = pass == cache::Pass::kMain;
    (is_main ? main_ms_ : mtp_ms_) += ms_between(pass_began_, now);
    if (is_main) main_entries_ = timeline_.size();
  }

  // One step of the engine; its wall time in ms.
  double step() {
    main_ms_ = mtp_ms_ = 0;
    const auto begin = Clock::now();
    impl_.step(result_);
    const double ms = ms_between(begin, Clock::now());
    ++num_steps_;
    for (const Output& out : result_.outputs) {
      tidepool_check(out.token >= 0, "bench: the request failed: {}", out.error);
      ids_.push_back(out.token);
      ++num_tokens_;
    }
    return ms;
  }

  // The same with a timeline, all streams idle before and after.
  double step_with_timeline(bool with_costs) {
    auto& executor = impl_.executor();
    executor.synchronize_all();
    timeline_.clear();
    executor.set_timeline(&timeline_, with_costs);
    double ms = step();
    const auto begin = Clock::now();
    executor.synchronize_all();
    ms += ms_between(begin, Clock::now());
    executor.set_timeline(nullptr);
    return ms;
  }

  void timed_step() {
    const double ms = step_with_timeline(false);
    series_.timed.push_back(engine::sum_step(timeline_));
    series_.timed.back().wall_ms = ms;
  }

  void cost_step() {
    step_with_timeline(true);
    const std::span<const device::TimelineEntry> all(timeline_);
    series_.costs.push_back(engine::sum_step(all));
    series_.main_costs.push_back(engine::sum_step(all.first(main_entries_)));
    series_.mtp_costs.push_back(engine::sum_step(all.subspan(main_entries_)));
  }

  std::vector<device::TimelineEntry> timeline_;
  size_t main_entries_ = 0;  // of timeline_: up to the end of the main pass
  Clock::time_point pass_began_;
  double main_ms_ = 0, mtp_ms_ = 0;  // of the step
  EngineImpl impl_;
  StepResult result_;
  std::vector<int32_t> ids_;
  int64_t num_steps_ = 0, num_tokens_ = 0;
  uint32_t next_kind_ = 0;
  Series series_;
};

void say(const DraftsBenchOptions& o, const std::string& line) {
  if (o.progress) o.progress(line);
}

double floor_of(const std::vector<StepSums>& steps, const MachineRates& rates) {
  BenchRow row;
  engine::set_parts(steps, rates, row);
  return row.floor_ms;
}

BenchRow make_row(const Writer& writer, int32_t context, const MachineRates& rates) {
  const EngineOptions& o = writer.options();
  const Series& s = writer.series();
  BenchRow row;
  constexpr const char* kWhat[] = {"drafts off", "drafts select", "drafts gather"};
  row.what = kWhat[static_cast<size_t>(o.route)];
  row.exec = o.exec;
  row.context_tokens = context;
  row.batch = 1;
  row.rows = 1 + o.num_draft_tokens;
  row.pool_size = o.route == OffloadRoute::kSelect ? o.pool_size : 0;
  row.step_ms = engine::median(s.step_ms);
  engine::set_parts(s.costs, rates, row);
  engine::set_shares(s.timed, row);
  BenchDrafts d;
  d.num_draft_tokens = o.num_draft_tokens;
  d.accept_length = writer.accept_length();
  d.main_ms = engine::median(s.main_ms);
  d.mtp_ms = engine::median(s.mtp_ms);
  d.floor_main_ms = floor_of(s.main_costs, rates);
  d.floor_mtp_ms = floor_of(s.mtp_costs, rates);
  d.tokens_per_s = 1e3 * d.accept_length / row.step_ms;
  d.floor_tokens_per_s = 1e3 * d.accept_length / row.floor_ms;
  row.drafts = d;
  return row;
}

void check_texts(const std::vector<std::unique_ptr<Writer>>& writers, size_t num_tokens) {
  const auto& plain = writers[0]->ids();
  for (const auto& writer : writers) {
    const auto& ids = writer->ids();
    const auto [a, b] = std::mismatch(plain.begin(), plain.begin() + static_cast<ptrdiff_t>(num_tokens), ids.begin());
    const auto at = static_cast<size_t>(a - plain.begin());
    tidepool_check(at == num_tokens, "bench: token {} is {} with {} drafts, and {} without", at, *b,
                   writer->options().num_draft_tokens, *a);
  }
}

void measure_context(const DraftsBenchOptions& o, int32_t context, BenchResult& result) {
  const auto config = model::Config::read_directory(o.engine.model);
  auto prompt = o.prompt.empty() ? engine::seeded_ids(config.vocab_size, o.engine.seed, context) : o.prompt;
  prompt.resize(static_cast<size_t>(context));
  std::vector<std::unique_ptr<Writer>> writers;
  for (int32_t drafts = 0; drafts <= kMaxDraftTokens; ++drafts) {
    say(o, fmt::format("drafts at {} tokens: prefill for {} drafts", context, drafts));
    writers.push_back(std::make_unique<Writer>(o, drafts, prompt));
  }
  const auto all_tokens = static_cast<size_t>(o.max_tokens);
  for (size_t written = 0; written < all_tokens;) {
    written = std::min(written + kTurnTokens, all_tokens);
    for (const auto& writer : writers) writer->write(written);
    check_texts(writers, written);
  }
  const size_t first = result.rows.size();
  for (const auto& writer : writers) result.rows.push_back(make_row(*writer, context, result.machine));
  for (size_t i = first; i < result.rows.size(); ++i) {
    BenchDrafts& d = *result.rows[i].drafts;
    const BenchDrafts& none = *result.rows[first].drafts;
    d.ratio_to_no_drafts = d.tokens_per_s / none.tokens_per_s;
    d.floor_ratio_to_no_drafts = d.floor_tokens_per_s / none.floor_tokens_per_s;
  }
  say(o, fmt::format("drafts at {} tokens: the {} ids are the same for every number of drafts", context, all_tokens));
}

}  // namespace

BenchResult bench_drafts(const DraftsBenchOptions& options) {
  DraftsBenchOptions o = options;
  if (o.engine.num_threads == 0) o.engine.num_threads = base::available_threads();
  tidepool_check(o.max_tokens >= kTurnTokens, "--max-tokens {}: a text of at least {} is needed", o.max_tokens,
                 kTurnTokens);
  for (int32_t context : o.contexts) {
    tidepool_check(context >= 1, "--contexts has {} tokens, must be at least 1", context);
    tidepool_check(o.prompt.empty() || o.prompt.size() >= static_cast<size_t>(context),
                   "--contexts has {} tokens: the prompt has only {}", context, o.prompt.size());
  }
  BenchResult result;
  if (!o.machine) say(o, "measuring the machine");
  result.machine = o.machine ? *o.machine : measure_machine(o.engine.num_threads);
  for (int32_t context : o.contexts) measure_context(o, context, result);
  return result;
}

}  // namespace tidepool
