#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "base/check.h"
#include "op_cases.h"

namespace tidepool::testing {
namespace {

constexpr std::byte kPoison{0xCD};

template <typename T>
void poison(std::vector<T>& values) {
  std::memset(static_cast<void*>(values.data()), static_cast<int>(kPoison), values.size() * sizeof(T));
}
void poison(RowMemory& memory) { poison(memory.bytes()); }

size_t product(std::initializer_list<int64_t> factors) {
  return static_cast<size_t>(std::accumulate(factors.begin(), factors.end(), int64_t{1}, std::multiplies<>()));
}

template <typename Params>
OpWorld::Call make_call(std::string name, const device::OpType& type, const Params& params, bool asynchronous) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&params);
  return {std::move(name), &type, std::vector<std::byte>(bytes, bytes + sizeof(Params)), asynchronous};
}

}  // namespace

OpSet ref_ops() {
  return {ops::plan_ref(),  ops::serve_ref(),  ops::install_ref(), ops::reset_ref(),
          ops::spill_ref(), ops::gather_ref(), ops::gather_reset()};
}
OpSet cpu_ops() {
  return {ops::plan_cpu(),  ops::serve_cpu(),  ops::install_cpu(), ops::reset_cpu(),
          ops::spill_cpu(), ops::gather_cpu(), ops::gather_reset()};
}

OpWorld::OpWorld(const OpGeometry& g, const OpSet& ops)
    : geometry_(g),
      ops_(ops),
      store_({g.num_layers}, int64_t{g.num_cache_slots} * g.max_blocks * g.block_size, g.format, g.layout),
      pool_(int64_t{g.num_cache_slots} * g.num_sets * g.num_ways, g.num_layers, g.format, g.layout),
      window_(int64_t{g.num_cache_slots} * g.window_rows, g.num_layers, g.format, g.layout),
      random_(g.seed) {
  const size_t rows = product({g.max_rows}), slots = product({g.num_cache_slots});
  const size_t lists = product({g.max_rows, g.q_len}), entries = lists * product({g.topk});
  rewritten_.resize(slots);
  for (auto* array : {&cache_slot, &seq_len, &spilled_len, &final_len, &num_records, &num_unique_misses, &spill_first,
                      &spill_count, &spill_base, &spill_origin, &spill_rows}) {
    array->assign(rows, 0);
  }
  for (auto* array : {&resets, &status, &request_of_slot_, &stored_len_}) array->assign(slots, 0);
  for (auto* array : {&topk, &unique_misses}) array->assign(entries, 0);
  valid_len.resize(lists);
  plan.resize(entries);
  records.resize(entries);
  locations.resize(entries);
  serve_copies_.resize(entries);
  spill_copies_.resize(rows * product({g.window_rows}));
  plan_counts.assign(slots * 4, 0);
  install_counts.assign(slots * 3, 0);
  fetched_rows.assign(slots, 0);
  slot_of_token.resize(slots * product({g.id_range}));
  token_of_slot.resize(slots * product({g.num_sets, g.num_ways}));
  cursor.resize(slots * product({g.num_sets}));
  slot_state.resize(token_of_slot.size());
  generation.assign(slots, 1);
  poison(slot_state);
  poison(slot_of_token);
  poison(token_of_slot);
  poison(cursor);
  seen_plan_.assign(rows * product({(g.id_range + 31) / 32}), 0);
  seen_install_ = seen_plan_;
  cursor_copy_.resize(rows * product({g.num_sets}));
  const size_t selections = slots * product({g.num_status_queries()});
  for (int32_t layer = 0; layer < g.num_layers; ++layer) {
    selection_.emplace_back(static_cast<int64_t>(g.gather ? selections * product({g.topk}) : entries), 1, g.format,
                            g.layout);
    if (!g.gather) continue;
    place_status.emplace_back(selections * product({g.topk + 1}));
    poison(place_status.back());
  }
  gather_scratch_.resize(entries * static_cast<size_t>(ops::kGatherScratch));
  block_table.resize(slots * product({g.max_blocks}));
  std::iota(block_table.begin(), block_table.end(), 0);
  std::shuffle(block_table.begin(), block_table.end(), random_);
  std::iota(resets.begin(), resets.end(), 0);
  num_resets = g.num_cache_slots;
  for (const Call& call : calls()) {
    if (call.name.starts_with("reset")) run(call);
  }
  num_resets = 0;
}

std::vector<std::byte> OpWorld::row(int32_t slot, int32_t layer, int32_t position) const {
  std::vector<std::byte> bytes(static_cast<size_t>(geometry_.format.row_bytes()));
  uint64_t state = (static_cast<uint64_t>(request_of_slot_[static_cast<size_t>(slot)]) << 40) ^
                   (static_cast<uint64_t>(slot) << 32) ^ (static_cast<uint64_t>(layer) << 24) ^
                   static_cast<uint64_t>(position);
  const auto& rewritten = rewritten_[static_cast<size_t>(slot)];
  const auto version =
      std::count_if(rewritten.begin(), rewritten.end(), [&](int32_t from) { return from <= position; });
  state ^= static_cast<uint64_t>(version) << 52;
  for (std::byte& byte : bytes) {
    state = (state + 1) * 0x9E3779B97F4A7C15u;
    byte = static_cast<std::byte>((state >> 56) | 1u);  // never the zero of a row that is not there
  }
  return bytes;
}

void OpWorld::begin_step(const OpStep& step) {
  const OpGeometry& g = geometry_;
  num_resets = static_cast<int32_t>(step.resets.size());
  std::copy(step.resets.begin(), step.resets.end(), resets.begin());
  for (int32_t slot : step.resets) {
    ++request_of_slot_[static_cast<size_t>(slot)];
    stored_len_[static_cast<size_t>(slot)] = 0;
    rewritten_[static_cast<size_t>(slot)].clear();
    status[static_cast<size_t>(slot)] = 0;
  }
  num_rows = step.num_rows;
  cache_slot = step.cache_slot;
  seq_len = step.seq_len;
  spilled_len = step.spilled_len;
  topk = step.topk;
  has_final_len_ = !step.final_len.empty();
  if (has_final_len_) final_len = step.final_len;
  for (const auto& [slot, position] : step.rewritten) rewritten_[static_cast<size_t>(slot)].push_back(position);
  for (const auto& [slot, failure] : step.failed) ops::set_status(&status[static_cast<size_t>(slot)], failure);
  for (const auto& [slot, block] : step.missing_blocks) {
    block_table[static_cast<size_t>(slot * g.max_blocks + block)] = -1;
  }
  for (size_t b = 0; b < cache_slot.size(); ++b) {
    spill_first[b] = spill_count[b] = spill_base[b] = spill_origin[b] = 0;
    spill_rows[b] = g.window_rows;
    const int32_t slot = cache_slot[b];
    if (slot < 0 || static_cast<int32_t>(b) >= num_rows) continue;
    const int32_t oldest = std::max(seq_len[b] - g.window_rows, 0);
    int32_t& stored = stored_len_[static_cast<size_t>(slot)];
    for (int32_t layer = 0; layer < g.num_layers; ++layer) {
      for (int32_t p = oldest; p < seq_len[b]; ++p) {
        write_row(window(layer), int64_t{slot} * g.window_rows + p % g.window_rows, row(slot, layer, p));
      }
      for (int32_t p = stored; p < std::min({oldest, spilled_len[b], g.max_blocks * g.block_size}); ++p) {
        const int32_t block = block_table[static_cast<size_t>(slot * g.max_blocks + p / g.block_size)];
        if (block >= 0) {
          write_row(store_.planes(0, layer), int64_t{block} * g.block_size + p % g.block_size, row(slot, layer, p));
        }
      }
    }
    spill_first[b] = std::max(stored, oldest);
    spill_count[b] = std::max(spilled_len[b] - spill_first[b], 0);
    spill_base[b] = slot * g.window_rows;
    stored = std::max(stored, spilled_len[b]);
  }
}

std::vector<OpWorld::Call> OpWorld::calls() {
  std::vector<Call> list;
  list.push_back(make_call("reset", ops_.reset, reset_params(), false));
  for (int32_t layer = 0; geometry_.gather && layer < geometry_.num_layers; ++layer) {
    list.push_back(make_call(fmt::format("reset {}", layer), ops_.gather_reset, gather_reset_params(layer), false));
  }
  for (int32_t layer = 0; layer < geometry_.num_layers; ++layer) {
    list.push_back(make_call(fmt::format("spill {}", layer), ops_.spill, spill_params(layer), true));
  }
  for (int32_t layer = 0; geometry_.gather && layer < geometry_.num_layers; ++layer) {
    list.push_back(make_call(fmt::format("gather {}", layer), ops_.gather, gather_params(layer), true));
  }
  if (geometry_.gather) return list;
  list.push_back(make_call("plan", ops_.plan, plan_params(), false));
  for (int32_t layer = 0; layer < geometry_.num_layers; ++layer) {
    list.push_back(make_call(fmt::format("serve {}", layer), ops_.serve, serve_params(layer), true));
  }
  for (int32_t layer = geometry_.num_layers - 1; layer >= 0; --layer) {
    list.push_back(make_call(fmt::format("install {}", layer), ops_.install, install_params(layer, layer == 0), false));
  }
  return list;
}

void OpWorld::poison_outputs(const Call& call) {
  poison(cursor_copy_);
  poison(serve_copies_);
  poison(spill_copies_);
  poison(gather_scratch_);
  if (call.name.starts_with("plan")) {
    poison(plan);
    poison(valid_len);
    poison(records);
    poison(num_records);
    poison(unique_misses);
    poison(num_unique_misses);
  } else if (call.name.starts_with("serve")) {
    poison(locations);
    for (int32_t layer = 0; layer < geometry_.num_layers; ++layer) {
      if (call.name.ends_with(std::to_string(layer))) poison(selection_[static_cast<size_t>(layer)]);
    }
  } else if (call.name.starts_with("gather")) {
    poison(locations);
    for (int32_t layer = 0; layer < geometry_.num_layers; ++layer) {
      if (call.name.ends_with(std::to_string(layer))) poison_unused_places(layer);
    }
  }
}

void OpWorld::poison_unused_places(int32_t layer) {
  const auto& status_rows = place_status[static_cast<size_t>(layer)];
  const std::vector<std::byte> bytes(static_cast<size_t>(geometry_.format.row_bytes()), kPoison);
  for (size_t i = 0; i < status_rows.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / (geometry_.topk + 1),
               place = static_cast<int64_t>(i) - row * (geometry_.topk + 1);
    if (place < geometry_.topk && status_rows[i] < 0) write_row(selection(layer), row * geometry_.topk + place, bytes);
  }
}

void OpWorld::run(const Call& call) {
  const void* params = call.params.data();
  const int32_t pieces = call.type->num_pieces(params);
  std::vector<int32_t> order(static_cast<size_t>(pieces));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  const uint64_t completed = done_.completed();
  if (call.asynchronous) done_.start(static_cast<uint64_t>(pieces));
  for (int32_t i = 0; i < pieces; ++i) {
    call.type->run(params, order[static_cast<size_t>(i)], pieces);
    tidepool_check(!call.asynchronous || done_.unfinished_pieces() == static_cast<uint64_t>(pieces - 1 - i),
                   "{}: piece {} did not finish exactly once", call.name, order[static_cast<size_t>(i)]);
  }
  tidepool_check(done_.completed() == completed + (call.asynchronous ? 1 : 0), "{}: its event was not completed once",
                 call.name);
}

void OpWorld::run_step(const OpStep& step) {
  begin_step(step);
  for (const Call& call : calls()) {
    poison_outputs(call);
    run(call);
  }
}

std::vector<std::string> OpWorld::integrity() const {
  std::vector<std::string> problems;
  const int32_t pool_size = geometry_.num_sets * geometry_.num_ways;
  for (int32_t slot = 0; slot < geometry_.num_cache_slots; ++slot) {
    const int32_t* slots = slot_of_token.data() + int64_t{slot} * geometry_.id_range;
    const int32_t* tokens = token_of_slot.data() + int64_t{slot} * pool_size;
    for (int32_t id = 0; id < geometry_.id_range; ++id) {
      const int32_t at = slots[id];
      if (at == -1) continue;
      if (at < 0 || at >= pool_size || tokens[at] != id) {
        problems.push_back(fmt::format("cache slot {}: token {} maps to slot {}, which is not its", slot, id, at));
      } else if (at / geometry_.num_ways != id % geometry_.num_sets) {
        problems.push_back(fmt::format("cache slot {}: token {} lies in slot {} of another set", slot, id, at));
      }
    }
    for (int32_t at = 0; at < pool_size; ++at) {
      const int32_t id = tokens[at];
      const int32_t state = slot_state[static_cast<size_t>(slot * pool_size + at)];
      if (state != (id == -1 ? 0 : generation[static_cast<size_t>(slot)])) {
        problems.push_back(fmt::format("cache slot {}: slot {} with token {} has state {}", slot, at, id, state));
      }
      if (id == -1) continue;
      if (id < 0 || id >= geometry_.id_range || slots[id] != at) {
        problems.push_back(fmt::format("cache slot {}: slot {} holds token {}, which maps elsewhere", slot, at, id));
      }
    }
    for (int32_t set = 0; set < geometry_.num_sets; ++set) {
      const int32_t way = cursor[static_cast<size_t>(slot * geometry_.num_sets + set)];
      if (way < 0 || way >= geometry_.num_ways) {
        problems.push_back(fmt::format("cache slot {}: the cursor of set {} is {}", slot, set, way));
      }
    }
  }
  for (const auto& status_rows : place_status) {
    for (size_t row = 0; row < status_rows.size(); row += static_cast<size_t>(geometry_.topk + 1)) {
      const auto places = status_rows.begin() + static_cast<ptrdiff_t>(row), end = places + geometry_.topk;
      if (*end < 0 || *end > geometry_.topk) {
        problems.push_back(fmt::format("a selection has {} places in use", *end));
      } else if (std::any_of(places + *end, end, [](int32_t id) { return id != -1; })) {
        problems.push_back(fmt::format("a place behind the {} in use names a position", *end));
      }
    }
  }
  for (uint32_t word : seen_plan_) {
    if (word != 0) return problems.push_back("plan left bits in its workspace"), problems;
  }
  for (uint32_t word : seen_install_) {
    if (word != 0) return problems.push_back("install left bits in its workspace"), problems;
  }
  return problems;
}

std::vector<std::string> differences(OpWorld& got, OpWorld& want) {
  std::vector<std::string> list;
  const std::vector<Region> a = got.regions(), b = want.regions();
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].workspace) continue;
    const auto [at, other] = std::mismatch(a[i].base, a[i].base + a[i].bytes, b[i].base);
    if (at != a[i].base + a[i].bytes) {
      list.push_back(fmt::format("{} differs first at byte {} of {}", a[i].name, at - a[i].base, a[i].bytes));
    }
  }
  return list;
}

}  // namespace tidepool::testing
