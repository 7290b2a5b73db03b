// Operations for the tests of this folder: their body is a function of the test.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "device/executor.h"
#include "tidepool/error.h"

namespace tidepool::device::testing {

struct Body {
  std::function<void(int32_t piece)> run;  // by any worker
  std::function<void(AccessList&)> declare = [](AccessList&) {};
  int32_t num_pieces = 1;
};

struct BodyParams {
  const Body* body;  // outlives the run
};

inline int32_t body_pieces(const BodyParams& p) { return p.body->num_pieces; }
inline void body_run(const BodyParams& p, int32_t piece, int32_t) {
  if (p.body->run) p.body->run(piece);
}
inline void body_declare(const BodyParams& p, AccessList& list) { p.body->declare(list); }
inline Cost body_cost(const BodyParams&) { return {1, 2, 3, 4}; }

template <Part kPart = Part::kOther>
constexpr OpType body_type(const char* name) {
  return make_op_type<BodyParams, body_pieces, body_run, body_declare, body_cost>(name, kPart);
}
inline constexpr OpType kBody = body_type("body");

inline void push(Executor& executor, StreamId stream, const Body& body) {
  executor.push(stream, kBody, BodyParams{&body});
}
inline void push_async(Executor& executor, StreamId stream, const Body& body, Event& done) {
  executor.push_async(stream, kBody, BodyParams{&body}, done);
}

// The sentence of the Error that the call throws.
inline std::string sentence_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Who ran, in order.
struct Log {
  std::mutex mutex;
  std::vector<int> ids;
  Body append(int id) {
    return {[this, id](int32_t) {
      const std::lock_guard lock(mutex);
      ids.push_back(id);
    }};
  }
};

// Both schedules with 1, 2 and 4 threads.
inline std::vector<ExecutorOptions> all_options(uint64_t seed) {
  std::vector<ExecutorOptions> all;
  for (int threads : {1, 2, 4}) {
    for (Schedule schedule : {Schedule::kPreferMain, Schedule::kRandom}) {
      all.push_back({.num_threads = threads, .schedule = schedule, .seed = seed});
    }
  }
  return all;
}

}  // namespace tidepool::device::testing
