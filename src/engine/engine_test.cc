// The engine as its users see it, on a tiny model.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "engine/engine_impl.h"
#include "test_store.h"
#include "tiny_models.h"

namespace tidepool {
namespace {

using Rows = std::vector<std::vector<float>>;

EngineOptions tiny_options(OffloadRoute route, int32_t pool_size = 16) {
  EngineOptions o;
  o.model = test::tiny_model();
  o.route = route;
  o.pool_size = pool_size;
  o.num_threads = 2;
  o.max_model_len = 200;
  o.max_num_batched_tokens = 32;
  o.record_logits = true;
  return o;
}

std::vector<int32_t> prompt_of(int32_t len, uint64_t seed = 3) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < len; ++i) ids.push_back(static_cast<int32_t>(random() % 256));
  return ids;
}

RequestOptions request_of(int32_t prompt_len, int32_t max_tokens, uint64_t seed = 3) {
  RequestOptions r;
  r.prompt = prompt_of(prompt_len, seed);
  r.max_tokens = max_tokens;
  r.ignore_eos = true;
  return r;
}

// Logits of every token of every request, all submitted at once.
std::vector<Rows> run_all(EngineImpl& engine, const std::vector<RequestOptions>& requests) {
  std::vector<RequestId> ids;
  for (const auto& r : requests) ids.push_back(engine.submit(r).request);
  std::vector<Rows> logits(requests.size());
  StepResult result;
  while (engine.has_work()) {
    engine.step(result);
    for (auto& out : result.outputs) {
      EXPECT_EQ(out.error, "");
      const auto i = std::find(ids.begin(), ids.end(), out.request) - ids.begin();
      logits[static_cast<size_t>(i)].push_back(std::move(out.logits));
    }
  }
  return logits;
}

Rows run_one(const EngineOptions& options, const RequestOptions& request, const EngineHooks& hooks = {}) {
  EngineImpl engine(options, hooks);
  return run_all(engine, {request}).front();
}

bool same_bits(const Rows& a, const Rows& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size() || std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0)
      return false;
  }
  return true;
}

TEST(Engine, the_result_does_not_depend_on_chunk_size_threads_or_block_size) {
  const auto request = request_of(90, 12);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    auto options = tiny_options(OffloadRoute::kOff);
    options.kv_dtype = dtype;
    const Rows expected = run_one(options, request);
    ASSERT_EQ(expected.size(), 12u);
    for (int32_t chunk : {1, 2, 17, 64, 200}) {
      for (int threads : {1, 2, 3}) {
        for (OffloadRoute route : {OffloadRoute::kOff, OffloadRoute::kSelect}) {
          auto o = options;
          o.route = route;
          o.max_num_batched_tokens = chunk;
          o.num_threads = threads;
          o.block_size = chunk % 2 == 0 ? 128 : 256;
          EXPECT_TRUE(same_bits(expected, run_one(o, request))) << "chunk " << chunk << " threads " << threads;
        }
      }
    }
  }
}

TEST(Engine, the_result_does_not_depend_on_what_else_runs) {
  auto options = tiny_options(OffloadRoute::kSelect);
  options.max_num_seqs = 3;
  std::vector<RequestOptions> requests = {request_of(60, 9, 1), request_of(33, 20, 2), request_of(5, 14, 3),
                                          request_of(80, 3, 4)};
  EngineImpl engine(options);
  const auto together = run_all(engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(same_bits(together[i], run_one(tiny_options(OffloadRoute::kOff), requests[i]))) << "request " << i;
  }
}

TEST(Engine, a_static_batch_decodes_once_all_prompts_are_done_and_gives_the_same_result) {
  const std::vector<RequestOptions> requests{request_of(30, 20, 3), request_of(70, 20, 4), request_of(9, 20, 5)};
  for (int32_t drafts : {0, 2}) {
    EngineOptions options = tiny_options(OffloadRoute::kSelect);
    options.max_num_seqs = 3;
    options.num_draft_tokens = drafts;
    EngineImpl together(options);
    const auto expected = run_all(together, requests);
    options.prefill_first = true;
    EngineImpl engine(options);
    EXPECT_EQ(run_all(engine, requests), expected);
    StepResult result;
    int32_t most = 0;
    for (const auto& r : requests) EXPECT_TRUE(engine.submit(r).admitted);
    while (engine.has_work()) {
      engine.step(result);
      EXPECT_TRUE(result.prefill_tokens == 0 || result.decode_tokens == 0);
      most = std::max(most, result.decode_tokens);
    }
    EXPECT_EQ(most, 3);
  }
}

TEST(Engine, one_by_one_decoding_of_a_text_gives_the_logits_of_its_prefill) {
  auto options = tiny_options(OffloadRoute::kSelect);
  options.record_hidden = true;
  auto request = request_of(70, 1);
  const auto collect = [&](EngineImpl& engine, const RequestOptions& r) {
    std::vector<RowRecord> rows;
    engine.submit(r);
    while (engine.has_work()) {
      StepResult result;
      engine.step(result);
      for (auto& row : result.rows) rows.push_back(std::move(row));
    }
    return rows;
  };
  EngineImpl prefill(options);
  const auto at_once = collect(prefill, request);
  RequestOptions forced = request;
  forced.forced.assign(request.prompt.begin() + 1, request.prompt.end());
  forced.prompt.resize(1);
  forced.max_tokens = 70;
  EngineImpl decode(options);
  const auto one_by_one = collect(decode, forced);
  ASSERT_EQ(at_once.size(), 70u);
  ASSERT_EQ(one_by_one.size(), 70u);
  for (size_t i = 0; i < 70; ++i) {
    EXPECT_TRUE(same_bits({at_once[i].logits}, {one_by_one[i].logits})) << "position " << i;
    EXPECT_TRUE(same_bits(at_once[i].hidden, one_by_one[i].hidden)) << "position " << i;
    EXPECT_EQ(at_once[i].topk, one_by_one[i].topk) << "position " << i;
  }
}

TEST(Engine, simd_kernels_choose_the_tokens_of_the_plain_loops) {
  for (OffloadRoute route : {OffloadRoute::kOff, OffloadRoute::kSelect}) {
    auto options = tiny_options(route);
    options.kv_dtype = DType::kF32;
    const Rows fast = run_one(options, request_of(40, 6));
    options.reference_kernels = true;
    const Rows plain = run_one(options, request_of(40, 6));
    ASSERT_EQ(fast.size(), plain.size());
    for (size_t i = 0; i < fast.size(); ++i) {
      for (size_t v = 0; v < fast[i].size(); ++v) ASSERT_NEAR(fast[i][v], plain[i][v], 2e-4f) << i << " " << v;
    }
  }
}

TEST(Engine, a_byte_copy_of_one_decode_steps_operations_replays_for_the_next_fifty_steps) {
  for (OffloadRoute route : {OffloadRoute::kOff, OffloadRoute::kSelect}) {
    auto options = tiny_options(route);
    options.max_num_seqs = 2;
    const std::vector<RequestOptions> requests = {request_of(40, 60, 1), request_of(30, 60, 2)};
    EngineImpl eager(options);
    const auto expected = run_all(eager, requests);

    EngineImpl engine(options);
    for (const auto& r : requests) engine.submit(r);
    std::vector<Rows> logits(2);
    device::OpList first, second;
    int32_t decode_steps = 0, replayed = 0;
    const device::OpList* playing = nullptr;
    StepResult result;
    while (engine.has_work()) {
      engine.step(result);
      for (auto& out : result.outputs) logits[static_cast<size_t>(out.request)].push_back(std::move(out.logits));
      const bool both = result.decode_tokens == 2 && result.prefill_tokens == 0;
      replayed += both && playing != nullptr;
      decode_steps += both;
      if (decode_steps == 2 && first.empty()) engine.capture_next_decode_step(&first);
      if (decode_steps == 4 && second.empty()) engine.capture_next_decode_step(&second);
      if (decode_steps == 5 && playing == nullptr) {
        EXPECT_EQ(first.bytes().size(), second.bytes().size());
        second = first;  // another copy, other addresses
        first.clear();
        playing = &second;
        engine.replay_decode_steps(playing);
      }
      if (replayed == 50) {
        engine.replay_decode_steps(nullptr);
        playing = nullptr;
        ++replayed;
      }
    }
    EXPECT_EQ(replayed, 51);  // 50, and the mark that they ended
    EXPECT_TRUE(same_bits(expected[0], logits[0]));
    EXPECT_TRUE(same_bits(expected[1], logits[1]));
  }
}

TEST(Engine, one_flipped_bit_in_one_pool_row_changes_the_logits) {
  const auto request = request_of(80, 30);
  const Rows off = run_one(tiny_options(OffloadRoute::kOff), request);
  EngineImpl engine(tiny_options(OffloadRoute::kSelect, 64));
  engine.submit(request);
  Rows logits;
  bool flipped = false;
  StepResult result;
  while (engine.has_work()) {
    engine.step(result);
    for (auto& out : result.outputs) logits.push_back(std::move(out.logits));
    engine.executor().synchronize_all();
    const auto hits = engine.cache().hits_of_last_step(0);
    if (flipped || hits.empty() || logits.size() < 5) continue;
    const int32_t row = hits.front().first * 64 + hits.front().second;
    *engine.cache().pool_planes(0).latent.row(row) ^= std::byte{0x40};
    flipped = true;
  }
  ASSERT_TRUE(flipped);
  EXPECT_FALSE(same_bits(off, logits));
  EXPECT_TRUE(same_bits({off[0]}, {logits[0]}));
}

TEST(Engine, counters_add_up) {
  EngineImpl engine(tiny_options(OffloadRoute::kSelect));
  run_all(engine, {request_of(60, 20)});
  const CacheStats stats = engine.stats();
  const auto groups = static_cast<int64_t>(stats.groups.size());
  // 19 decode steps, all lists full from position 8 on.
  EXPECT_EQ(stats.total.hits + stats.total.misses + stats.total.window, 19 * 8 * groups);
  EXPECT_LE(stats.total.evictions, stats.total.installed_rows);
  int64_t fetched = 0;
  for (size_t g = 0; g < stats.groups.size(); ++g) {
    const auto layers = static_cast<int64_t>(engine.info().layer_groups[g].size());
    fetched += (stats.groups[g].misses - stats.groups[g].unspilled) * layers;
  }
  EXPECT_EQ(stats.total.fetched_rows, fetched);
}

TEST(Engine, a_request_that_can_never_fit_is_refused_naming_the_short_budget) {
  auto options = tiny_options(OffloadRoute::kSelect);
  options.max_num_seqs = 4;
  EngineImpl roomy(options);
  const uint64_t all = roomy.cache().arena().used_bytes();

  options.device_kv_bytes = all - all / 20;
  EngineImpl engine(options);
  EXPECT_LE(engine.stats().device_kv_bytes, options.device_kv_bytes);
  options.device_kv_bytes = all / 50;
  try {
    EngineImpl tight(options);
    FAIL() << "a budget too small for one request was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("--device-kv-gib"), std::string::npos) << e.what();
  }
  options.device_kv_bytes = 0;
  options.host_kv_bytes = 1000;
  try {
    EngineImpl tight(options);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("--host-kv-gib"), std::string::npos) << e.what();
  }
}

TEST(Engine, requests_beyond_a_budget_wait_with_its_name_and_finish_in_turn) {
  for (bool host : {false, true}) {
    auto options = tiny_options(OffloadRoute::kSelect);
    options.max_num_seqs = 3;
    options.block_size = 128;  // two blocks a request
    EngineImpl roomy(options);
    if (host) {
      options.host_kv_bytes = roomy.cache().host_bytes() * 4 / 6;
    } else {
      options.device_kv_bytes = roomy.cache().arena().used_bytes() - 2 * 128 * 4 * 32 * 2;  // two blocks of keys less
    }
    EngineImpl engine(options);
    std::vector<std::string> reasons;
    for (uint64_t i = 0; i < 3; ++i) reasons.push_back(engine.submit(request_of(150, 10, i)).reason);
    StepResult result;
    engine.step(result);
    const auto late = engine.submit(request_of(150, 10, 9));
    EXPECT_TRUE(late.admitted);
    EXPECT_NE(late.reason.find(host ? "--host-kv-gib" : "--device-kv-gib"), std::string::npos) << late.reason;
    int32_t finished = 0;
    while (engine.has_work()) {
      engine.step(result);
      for (const auto& out : result.outputs) finished += out.finish == FinishReason::kLength;
      EXPECT_LE(engine.stats().device_kv_bytes, engine.stats().device_kv_budget_bytes);
    }
    EXPECT_EQ(finished, 4);
  }
}

TEST(Engine, a_failed_fetch_ends_its_request_alone_with_an_error_and_no_token) {
  auto options = tiny_options(OffloadRoute::kSelect);
  options.max_num_seqs = 2;
  std::unique_ptr<ops::RowStore> inner;
  testing::DelayedRowStore* store = nullptr;
  const int32_t* victim_status = nullptr;
  bool armed = false;
  EngineHooks hooks;
  hooks.decorate_store = [&](std::unique_ptr<ops::RowStore> made) -> std::unique_ptr<ops::RowStore> {
    inner = std::move(made);
    testing::DelayOptions delay;
    delay.fails = [&](const ops::RowTransfer& t, bool is_store) {
      return armed && !is_store && t.status == victim_status && t.count > 0;
    };
    auto decorated = std::make_unique<testing::DelayedRowStore>(*inner, delay);
    store = decorated.get();
    return decorated;
  };
  EngineImpl engine(options, hooks);
  engine.executor().add_pump([&] { return store->pump(); });
  const auto good = request_of(50, 20, 1), bad = request_of(50, 20, 2);
  const RequestId good_id = engine.submit(good).request, bad_id = engine.submit(bad).request;
  Rows logits;
  int32_t bad_tokens = 0;
  std::string error;
  StepResult result;
  while (engine.has_work()) {
    engine.step(result);
    for (auto& out : result.outputs) {
      if (out.request == good_id) logits.push_back(std::move(out.logits));
      if (out.request == bad_id && !error.empty()) FAIL() << "output after the error";
      if (out.request == bad_id) {
        bad_tokens += out.token >= 0;
        error = out.error;
      }
    }
    if (bad_tokens == 5) {
      victim_status = engine.cache().status_word(bad_id == 1 ? 1 : 0);
      armed = true;
    }
  }
  EXPECT_NE(error.find("host store"), std::string::npos) << error;
  EXPECT_EQ(bad_tokens, 5);
  EXPECT_TRUE(same_bits(logits, run_one(tiny_options(OffloadRoute::kOff), good)));
}

TEST(Engine, bad_requests_are_refused_in_one_sentence) {
  EngineImpl engine(tiny_options(OffloadRoute::kOff));
  const auto refusal = [&](auto change) -> std::string {
    RequestOptions r = request_of(10, 10);
    change(r);
    try {
      engine.submit(r);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(refusal([](auto& r) { r.prompt.clear(); }).find("empty"), std::string::npos);
  EXPECT_NE(refusal([](auto& r) { r.prompt[3] = 256; }).find("256"), std::string::npos);
  EXPECT_NE(refusal([](auto& r) { r.prompt[3] = -1; }).find("vocabulary"), std::string::npos);
  EXPECT_NE(refusal([](auto& r) { r.max_tokens = 0; }).find("--max-tokens"), std::string::npos);
  EXPECT_NE(refusal([](auto& r) { r.max_tokens = 500; }).find("--max-model-len"), std::string::npos);
  EXPECT_NE(refusal([](auto& r) { r.top_p = 0; }).find("--top-p"), std::string::npos);
  EXPECT_NE(refusal([](auto& r) { r.temperature = -1; }).find("--temperature"), std::string::npos);
  EXPECT_FALSE(engine.has_work());
}

}  // namespace
}  // namespace tidepool
