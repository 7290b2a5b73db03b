#include "engine/bench_context.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "model/random_values.h"
#include "nn/row_codes.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kTableRows = 4099;  // distinct rows; keys are all distinct (equal scores would change top-k's work)

struct FillParams {
  std::byte* destination;
  const std::byte* source;
  uint64_t bytes;
};
int32_t fill_pieces(const FillParams&) { return 1; }
void fill_run(const FillParams& p, int32_t, int32_t) { std::memcpy(p.destination, p.source, p.bytes); }
void fill_declare(const FillParams& p, device::AccessList& list) {
  list.read(p.source, p.bytes);
  list.write(p.destination, p.bytes);
}
device::Cost fill_cost(const FillParams& p) { return {p.bytes, p.bytes, 0, 0}; }
constexpr device::OpType kFill = device::make_op_type<FillParams, fill_pieces, fill_run, fill_declare, fill_cost>(
    "bench_fill", device::Part::kOther);

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

void put(DType type, float value, std::byte* out) {
  const uint16_t bits = f32_to_bf16(value);
  type == DType::kBF16 ? std::memcpy(out, &bits, sizeof(bits)) : std::memcpy(out, &value, sizeof(value));
}

EngineOptions engine_options(const BenchContextOptions& o) {
  EngineOptions e = o.engine;
  e.max_num_seqs = o.batch;
  e.max_model_len = o.num_filled + o.num_steps * o.rows;
  e.num_draft_tokens = o.rows - 1;
  e.max_num_batched_tokens = 1;  // no prompt comes
  return e;
}

}  // namespace

BenchContext::BenchContext(const BenchContextOptions& options) : options_(options) {
  tidepool_check(options.num_filled >= 1 && options.num_steps >= 1 && options.batch >= 1 && options.rows >= 1,
                 "bench: {} positions, {} steps, {} requests and {} rows must be at least 1", options.num_filled,
                 options.num_steps, options.batch, options.rows);
  impl_ = std::make_unique<EngineImpl>(engine_options(options));
  const cache::CacheOptions& c = impl_->cache().options();
  places_ = cache::layer_places(c.layer_groups, c.num_layers);
  for (int32_t b = 0; b < options.batch; ++b) slots_.push_back(impl_->cache().open(c.max_model_len));
  timeline_.reserve(4096);
  const auto values =
      static_cast<size_t>(options.batch) * static_cast<size_t>(options.rows) * static_cast<size_t>(c.topk);
  lists_.assign(impl_->config().layer_groups().size(), std::vector<int32_t>(values));
  if (options.lists == nullptr) return;
  impl_->model().set_topk_source(
      [](void* context, int32_t layer) -> const int32_t* {
        const auto* self = static_cast<const BenchContext*>(context);
        return self->lists_[static_cast<size_t>(self->places_[static_cast<size_t>(layer)].group)].data();
      },
      this);
}

uint64_t BenchContext::memory_bytes() const {
  return impl_->cache().arena().used_bytes() + impl_->cache().host_bytes() + impl_->weights().resident_bytes();
}

void BenchContext::make_row_table() {
  const RowFormat& format = impl_->cache().options().format;
  const model::RandomValues random(options_.engine.seed, "bench rows");
  std::vector<float> values(static_cast<size_t>(format.latent_values + format.rope_values));
  const auto row = static_cast<size_t>(format.row_bytes());
  row_table_.resize(kTableRows * row);
  for (size_t r = 0; r < kTableRows; ++r) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = random.normal(r * values.size() + i);
    std::byte* to = row_table_.data() + r * row;
    nn::store_latent(format, values.data(), 0, format.latent_values, to);
    nn::store_rope(format, values.data() + format.latent_values, 0, format.rope_values, to + format.latent_bytes());
  }
}

void BenchContext::fill() {
  auto& cache = impl_->cache();
  make_row_table();
  const int32_t block = cache.options().block_size;
  for (int32_t slot : slots_) {
    for (int32_t first = 0; first < options_.num_filled; first += block) {
      const int32_t count = std::min(block, options_.num_filled - first);
      for (int32_t layer = 0; layer < cache.options().num_main_layers(); ++layer) {
        fill_rows(slot, layer, first, count);
        if (places_[static_cast<size_t>(layer)].is_owner) fill_keys(slot, layer, first, count);
      }
    }
    cache.assume_filled(slot, options_.num_filled);
  }
  row_table_ = {};
}

// One block at most: its rows lie next to each other.
void BenchContext::fill_rows(int32_t slot, int32_t layer, int32_t first, int32_t count) {
  auto& cache = impl_->cache();
  const auto row = static_cast<size_t>(cache.options().format.row_bytes());
  staging_.resize(static_cast<size_t>(count) * row);
  for (int32_t i = 0; i < count; ++i) {
    // 7919 and 104729 are primes: rows of one position differ between layers and requests.
    const int64_t source = (int64_t{first} + i + int64_t{layer} * 7919 + int64_t{slot} * 104729) % kTableRows;
    std::memcpy(staging_.data() + static_cast<size_t>(i) * row, row_table_.data() + static_cast<size_t>(source) * row,
                row);
  }
  if (is_select()) return store_rows(slot, layer, first, count);
  const RowPlanes resident = cache.write_places(layer)[Place::kResident];
  write_device(resident.latent.row(cache.device_loc(slot, first)), staging_, static_cast<size_t>(count) * row);
}

void BenchContext::store_rows(int32_t slot, int32_t layer, int32_t first, int32_t count) {
  auto& cache = impl_->cache();
  std::vector<ops::RowCopy> copies;
  for (int32_t i = 0; i < count; ++i) copies.push_back({cache.host_record(slot, first + i), i});
  const auto& place = places_[static_cast<size_t>(layer)];
  int32_t status = 0;
  device::Event done;
  done.start(1);
  cache.store().store(
      {place.group, place.index, copies.data(), count, joint_planes(staging_.data(), cache.options().format), &status},
      done);
  while (done.completed() < 1) std::this_thread::yield();
  tidepool_check(status == 0, "bench: the host store could not take the rows of the context");
}

void BenchContext::fill_keys(int32_t slot, int32_t layer, int32_t first, int32_t count) {
  auto& cache = impl_->cache();
  const nn::KeyTiles tiles{nullptr, cache.options().key_type, cache.options().index_dim};
  const size_t value_bytes = dtype_bytes(tiles.type);
  const model::RandomValues random(options_.engine.seed, fmt::format("bench keys of slot {}, layer {}", slot, layer));
  const int32_t num_tiles = (count + nn::kKeyTile - 1) / nn::kKeyTile;
  staging_.resize(static_cast<size_t>(num_tiles) * tiles.tile_bytes());
  std::byte* out = staging_.data();
  for (int32_t tile = 0; tile < num_tiles; ++tile) {
    for (int32_t d = 0; d < tiles.dim; ++d) {
      for (int32_t lane = 0; lane < nn::kKeyTile; ++lane, out += value_bytes) {
        const int64_t position = int64_t{first} + tile * nn::kKeyTile + lane;
        put(tiles.type, random.normal(static_cast<uint64_t>(position * tiles.dim + d)), out);
      }
    }
  }
  std::byte* destination =
      cache.index_keys(layer) + static_cast<size_t>(cache.device_loc(slot, first) / nn::kKeyTile) * tiles.tile_bytes();
  write_device(destination, staging_, staging_.size());
}

void BenchContext::write_device(std::byte* destination, const std::vector<std::byte>& source, size_t bytes) {
  impl_->executor().push(device::kMainStream, kFill, FillParams{destination, source.data(), bytes});
  impl_->executor().synchronize(device::kMainStream);
}

void BenchContext::copy_lists(int32_t first) {
  const auto topk = static_cast<size_t>(impl_->cache().options().topk);
  for (size_t g = 0; g < lists_.size(); ++g) {
    int32_t* out = lists_[g].data();
    for (int32_t b = 0; b < options_.batch; ++b) {
      for (int32_t j = 0; j < options_.rows; ++j, out += topk) {
        const int32_t* in = options_.lists->lists(first + j, static_cast<int32_t>(g)) + static_cast<size_t>(b) * topk;
        std::copy(in, in + topk, out);
      }
    }
  }
}

void BenchContext::run_cache() {
  auto& cache = impl_->cache();
  // The step that comes next; its rows are not written, so the lists must leave them out.
  rows_.decode.clear();
  for (int32_t slot : slots_) rows_.decode.push_back({slot, options_.num_filled + options_.rows});
  cache.begin_step(rows_);
  for (int32_t layer = 0; layer < cache.options().num_main_layers(); ++layer) {
    const auto& place = places_[static_cast<size_t>(layer)];
    if (place.is_owner) cache.select(place.group, lists_[static_cast<size_t>(place.group)].data());
    cache.serve(layer);
    cache.install(layer);
  }
  cache.end_pass();
  impl_->executor().synchronize_all();
  cache.settle();  // sees the spills; the rows of the step that did not happen are taken back
  for (int32_t slot : slots_) cache.assume_filled(slot, options_.num_filled);
}

void BenchContext::warm_pool() {
  if (!is_select()) return;
  const auto& c = impl_->cache().options();
  if (c.pool_size < options_.num_filled) {
    if (options_.lists == nullptr) return;
    for (int32_t step = -options_.lists->num_warm() / options_.rows; step < 0; ++step) {
      copy_lists(step * options_.rows);
      run_cache();
    }
    return;
  }
  for (int32_t first = 0; first < options_.num_filled; first += c.topk) {
    for (auto& list : lists_) {
      for (size_t i = 0; i < list.size(); ++i) {
        const int32_t position = first + static_cast<int32_t>(i) % c.topk;
        list[i] = position < options_.num_filled ? position : -1;
      }
    }
    run_cache();
  }
}

void BenchContext::begin_step() {
  tidepool_check(next_step_ < options_.num_steps, "bench: step {} of {}", next_step_, options_.num_steps);
  const int32_t first = next_position();
  rows_.decode.clear();
  tokens_.token_ids.clear();
  tokens_.positions.clear();
  tokens_.logit_rows.clear();
  for (int32_t b = 0; b < options_.batch; ++b) {
    rows_.decode.push_back({slots_[static_cast<size_t>(b)], first + options_.rows});
    for (int32_t position = first; position < first + options_.rows; ++position) {
      const uint64_t id =
          (options_.engine.seed + static_cast<uint64_t>(position) * 7919 + static_cast<uint64_t>(b) * 31) %
          static_cast<uint64_t>(impl_->config().vocab_size);
      tokens_.logit_rows.push_back(static_cast<int32_t>(tokens_.token_ids.size()));
      tokens_.token_ids.push_back(static_cast<int32_t>(id));
      tokens_.positions.push_back(position);
    }
  }
  if (options_.lists != nullptr) copy_lists(next_step_ * options_.rows);
}

double BenchContext::step() {
  begin_step();
  const auto begin = Clock::now();
  impl_->run_bench_step(rows_, tokens_);
  const double ms = ms_since(begin);
  ++next_step_;
  auto& cache = impl_->cache();
  for (int32_t slot : slots_) {
    if (options_.rows > 1) cache.assume_mtp_filled(slot, next_position());
    tidepool_check(cache.status(slot) == ops::RequestStatus::kOk, "bench: a request failed with status {}",
                   static_cast<int32_t>(cache.status(slot)));
  }
  return ms;
}

StepSums BenchContext::timed_step(bool with_costs) {
  auto& executor = impl_->executor();
  executor.synchronize_all();
  timeline_.clear();
  executor.set_timeline(&timeline_, with_costs);
  double wall_ms = step();
  const auto synchronized = Clock::now();
  executor.synchronize_all();
  wall_ms += ms_since(synchronized);
  executor.set_timeline(nullptr);
  StepSums sums = sum_step(timeline_);
  sums.wall_ms = wall_ms;
  return sums;
}

void BenchContext::captured_step(device::OpList& list) {
  impl_->executor().begin_capture(list);
  step();
  impl_->executor().end_capture();
  impl_->executor().synchronize_all();
}

cache::Counts BenchContext::counts() {
  cache::Counts total;
  for (int32_t slot : slots_) {
    for (const cache::Counts& group : impl_->cache().slot_counts(slot)) total += group;
  }
  return total;
}

}  // namespace tidepool::engine
