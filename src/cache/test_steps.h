// Steps of a cache without a model, for tests: rows with contents that tell request, layer and position apart,
// selections drawn by a seed, and every row that attention would read compared with what was written.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cache/kv_cache.h"
#include "device/test_ops.h"
#include "tidepool/error.h"

namespace tidepool::cache::testing {

inline CacheOptions small_options() {
  CacheOptions o;
  o.layer_groups = {{0, 1, 2}, {3}, {4, 5}};
  o.num_layers = 6;
  o.format = {DType::kBF16, 8, 4};
  o.index_dim = 4;
  o.topk = 6;
  o.max_cache_slots = 3;
  o.max_model_len = 192;
  o.block_size = 32;
  o.route = Route::kSelect;
  o.pool_size = 8;
  o.num_ways = 2;
  o.max_chunk_rows = 20;
  o.stage_rows = 12;
  o.window_rows = 6;
  return o;
}

class TestSteps {
 public:
  TestSteps(const CacheOptions& options, const device::ExecutorOptions& executor_options, uint64_t seed = 1)
      : executor(executor_options), cache(options, executor), options_(options), random_(seed) {
    const auto rows = static_cast<size_t>(options.max_cache_slots + options.max_chunk_rows);
    lists_.assign(options.layer_groups.size(), std::vector<int32_t>(rows * static_cast<size_t>(options.topk)));
    request_of_slot_.resize(static_cast<size_t>(options.max_cache_slots));
  }

  // A step that was given up may still have operations that use what lies here.
  ~TestSteps() {
    try {
      executor.synchronize_all();
    } catch (const Error&) {  // stuck: dropped with the executor
    }
  }
  TestSteps(const TestSteps&) = delete;
  TestSteps& operator=(const TestSteps&) = delete;

  int32_t open(int64_t num_tokens) {
    const int32_t slot = cache.open(num_tokens);
    request_of_slot_[static_cast<size_t>(slot)] = ++num_requests_;
    return slot;
  }

  // One step as the engine makes it: all operations pushed, then the host waits for the main stream.
  void step(const StepRows& rows) {
    begin(rows);
    push_layers(rows);
    cache.end_pass();
    executor.synchronize(device::kMainStream);
  }
  // Its parts, for tests that look in between.
  void begin(const StepRows& rows) {
    cache.begin_step(rows);
    bodies_.clear();  // of the last step, which has ended
    for (auto& list : lists_) draw_lists(rows, list);
  }
  void push_layers(const StepRows& rows, bool with_model = true) {
    for (int32_t layer = 0; layer < options_.num_layers; ++layer) push_layer(rows, layer, with_model);
  }

  int64_t rows_compared() const { return rows_compared_; }
  const std::vector<std::string>& problems() const { return problems_; }

  device::Executor executor;
  KvCache cache;

 private:
  std::vector<std::byte> row(int32_t slot, int32_t layer, int32_t position) const {
    std::vector<std::byte> bytes(static_cast<size_t>(options_.format.row_bytes()));
    uint64_t state = (static_cast<uint64_t>(request_of_slot_[static_cast<size_t>(slot)]) << 40) ^
                     (static_cast<uint64_t>(layer) << 24) ^ static_cast<uint64_t>(position);
    for (std::byte& byte : bytes) {
      state = (state + 1) * 0x9E3779B97F4A7C15u;
      byte = static_cast<std::byte>((state >> 56) | 1u);
    }
    return bytes;
  }

  // Ascending positions with -1 behind them, half of them among the newest; the lists of different groups differ.
  void draw_list(int32_t position, int32_t* list) {
    std::vector<int32_t> chosen;
    while (static_cast<int32_t>(chosen.size()) < std::min(options_.topk, position + 1)) {
      const int32_t span = random_() % 2 == 0 ? std::min(position + 1, 10) : position + 1;
      const auto id = position - static_cast<int32_t>(random_() % static_cast<uint64_t>(span));
      if (std::find(chosen.begin(), chosen.end(), id) == chosen.end()) chosen.push_back(id);
    }
    std::sort(chosen.begin(), chosen.end());
    std::fill_n(list, options_.topk, -1);
    std::copy(chosen.begin(), chosen.end(), list);
  }
  void draw_lists(const StepRows& rows, std::vector<int32_t>& lists) {
    int32_t* next = lists.data();
    for (const auto& decode : rows.decode) draw_list(decode.seq_len - 1, std::exchange(next, next + options_.topk));
    for (int32_t i = 0; i < rows.chunk.count; ++i) {
      draw_list(rows.chunk.first + i, std::exchange(next, next + options_.topk));
    }
  }

  void push_layer(const StepRows& rows, int32_t layer, bool with_model) {
    const auto num_decode = static_cast<int32_t>(rows.decode.size());
    const auto& groups = options_.layer_groups;
    cache.before_write(layer);
    if (with_model) push_write(rows, layer);
    cache.after_write(layer);
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& layers) {
      return std::find(layers.begin(), layers.end(), layer) != layers.end();
    });
    const auto g = static_cast<size_t>(group - groups.begin());
    if (group->front() == layer) cache.select(static_cast<int32_t>(g), lists_[g].data());
    cache.serve(layer);
    const int32_t resident = options_.offload() ? num_decode : num_decode + rows.chunk.count;
    if (with_model && resident > 0) {
      push_check(layer, 0, resident, cache.decode_places(layer), cache.decode_locations(layer), lists_[g].data());
    }
    cache.install(layer);
    for (const Tile& tile : cache.tiles()) {
      cache.stage(layer, tile);
      const int64_t skipped = static_cast<int64_t>(num_decode) * options_.topk;
      if (with_model) {
        push_check(layer, tile.rows[0], tile.rows[1], cache.chunk_places(layer), cache.chunk_locations() - skipped,
                   lists_[g].data());
      }
    }
  }

  void push_write(const StepRows& rows, int32_t layer) {
    const auto count = static_cast<int32_t>(rows.decode.size()) + rows.chunk.count;
    std::vector<int32_t> positions;
    for (const auto& decode : rows.decode) positions.push_back(decode.seq_len - 1);
    for (int32_t i = 0; i < rows.chunk.count; ++i) positions.push_back(rows.chunk.first + i);
    const PlaceTable places = cache.write_places(layer);
    const auto each_row = [this, places, count](const std::function<void(int32_t, std::byte*, std::byte*)>& visit) {
      for (int32_t m = 0; m < count; ++m) {
        const RowLocation& dest = cache.row_dest()[m];
        visit(m, places[dest.place].latent.row(dest.index), places[dest.place].rope.row(dest.index));
      }
    };
    const auto latent = static_cast<size_t>(options_.format.latent_bytes()),
               rope = static_cast<size_t>(options_.format.rope_bytes());
    push({[this, each_row, positions, layer, latent, rope](int32_t) {
            each_row([&](int32_t m, std::byte* to_latent, std::byte* to_rope) {
              const auto bytes = row(cache.row_cache_slot()[m], layer, positions[static_cast<size_t>(m)]);
              std::memcpy(to_latent, bytes.data(), latent);
              std::memcpy(to_rope, bytes.data() + latent, rope);
            });
          },
          [each_row, latent, rope](device::AccessList& list) {
            each_row([&](int32_t, std::byte* to_latent, std::byte* to_rope) {
              list.write(to_latent, latent);
              list.write(to_rope, rope);
            });
          }});
  }

  // In place of attention: reads what rows [begin, end) of the step list, in every place that may hold it.
  void push_check(int32_t layer, int32_t begin, int32_t end, const PlaceTable& places, const RowLocation* locations,
                  const int32_t* lists) {
    const int64_t topk = options_.topk, first = begin * topk, last = end * topk;
    push({[this, layer, first, last, places, locations, lists, topk](int32_t) {
            for (int64_t i = first; i < last; ++i)
              compare(layer, static_cast<int32_t>(i / topk), lists[i], locations[i], places);
          },
          [first, last, places, locations](device::AccessList& list) {
            list.read(locations + first, static_cast<size_t>(last - first) * sizeof(RowLocation));
            for (const RowPlanes& planes : places.planes) {
              if (planes.latent.base != nullptr)
                list.read(planes.latent.base, static_cast<size_t>(planes.rows * planes.latent.stride));
            }
          }});
  }
  void compare(int32_t layer, int32_t m, int32_t id, const RowLocation& at, const PlaceTable& places) {
    ++rows_compared_;
    const auto fail = [&](const char* what) {
      if (problems_.size() < 10) {
        problems_.push_back(
            fmt::format("layer {}, slot {}, position {} {}", layer, cache.row_cache_slot()[m], id, what));
      }
    };
    if (id < 0) return at.place == Place::kNone ? void() : fail("has a location");
    const RowPlanes& planes = places[at.place];
    if (planes.latent.base == nullptr) return fail("lies nowhere");
    const auto want = row(cache.row_cache_slot()[m], layer, id);
    const auto latent = static_cast<size_t>(planes.latent.bytes);
    const bool same = std::memcmp(planes.latent.row(at.index), want.data(), latent) == 0 &&
                      std::memcmp(planes.rope.row(at.index), want.data() + latent, want.size() - latent) == 0;
    if (!same) fail("is not the row that was written");
  }

  void push(device::testing::Body body) {
    bodies_.push_back(std::move(body));
    device::testing::push(executor, device::kMainStream, bodies_.back());
  }

  CacheOptions options_;
  std::mt19937_64 random_;
  std::vector<std::vector<int32_t>> lists_;  // by group
  std::vector<int32_t> request_of_slot_;
  int32_t num_requests_ = 0;
  std::deque<device::testing::Body> bodies_;
  std::vector<std::string> problems_;
  int64_t rows_compared_ = 0;
};

}  // namespace tidepool::cache::testing
