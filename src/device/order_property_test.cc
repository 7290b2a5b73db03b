// Random programs against a model of the order that streams, events and the host give (that a record holds its stream
// back until the event's record before it is complete is not used: other backends have no such hold):
// the order checker refuses exactly the operations that the model finds unordered, and what it accepts gives the result
// of the order in which it was pushed, under every schedule. (Under the thread sanitizer this also shows that the order
// is real: the cells are plain memory.)
#include <gtest/gtest.h>

#include <deque>
#include <mutex>
#include <random>

#include "device/executor.h"
#include "device/test_ops.h"
#include "tidepool/error.h"

namespace tidepool::device {
namespace {

using testing::Body;
using testing::push;
using testing::push_async;

constexpr int kNumCells = 12;
constexpr int kNumEvents = 4;

// Nodes in the order they are made; an edge goes from an earlier node to a later one.
class Order {
 public:
  int node(const std::vector<int>& after) {
    std::vector<bool> before(before_.size() + 1);
    for (int earlier : after) {
      if (earlier < 0) continue;
      before[static_cast<size_t>(earlier)] = true;
      for (size_t i = 0; i < before_[static_cast<size_t>(earlier)].size(); ++i) {
        if (before_[static_cast<size_t>(earlier)][i]) before[i] = true;
      }
    }
    before_.push_back(std::move(before));
    return static_cast<int>(before_.size()) - 1;
  }
  bool is_before(int a, int b) const { return before_[static_cast<size_t>(b)][static_cast<size_t>(a)]; }

 private:
  std::vector<std::vector<bool>> before_;  // [node][earlier node]
};

struct Operation {
  int id;
  int read_begin, read_end, write_begin, write_end;  // cells
  bool asynchronous;
  int complete;  // node
  Event* done;
  Body body;

  bool conflicts_with(const Operation& other) const {
    const auto overlap = [](int b0, int e0, int b1, int e1) { return std::max(b0, b1) < std::min(e0, e1); };
    return overlap(write_begin, write_end, other.write_begin, other.write_end) ||
           overlap(write_begin, write_end, other.read_begin, other.read_end) ||
           overlap(read_begin, read_end, other.write_begin, other.write_end);
  }
};

// Copies that asynchronous operations asked for, done one by one in a random order by the pump.
struct Copies {
  std::mutex mutex;
  std::vector<std::function<void()>> waiting;
  std::mt19937_64 random{99};
  bool pump() {
    std::function<void()> copy;
    {
      const std::lock_guard lock(mutex);
      if (waiting.empty() || random() % 3 == 0) return false;
      std::swap(waiting[random() % waiting.size()], waiting.back());
      copy = std::move(waiting.back());
      waiting.pop_back();
    }
    copy();
    return true;
  }
};

class Program {
 public:
  Program(uint64_t seed, const ExecutorOptions& options) : random_(seed), executor_(options) {
    executor_.add_pump([this] { return copies_.pump(); });
  }

  void run(int num_entries) {
    for (int i = 0; i < num_entries; ++i) {
      const StreamId stream = static_cast<StreamId>(random_() % kNumStreams);
      const size_t event = random_() % kNumEvents;
      switch (random_() % 12) {
        case 0:
        case 1:
          executor_.record(stream, events_[event]);
          stream_last_[stream] = order_.node({stream_last_[stream], host_});
          records_[event] = order_.node({stream_last_[stream], records_[event]});
          break;
        case 2:
        case 3:
        case 4:
          executor_.wait(stream, events_[event]);
          stream_last_[stream] = order_.node({stream_last_[stream], records_[event]});
          break;
        case 5:
          synchronize(stream, event);
          break;
        default:
          operation(stream, event);
      }
    }
    executor_.synchronize_all();
    for (Event& event : events_) executor_.synchronize(event);
  }

  int64_t num_accepted() const { return static_cast<int64_t>(operations_.size()) - num_refused_; }
  int64_t num_refused() const { return num_refused_; }
  bool gives_the_result_of_push_order() const {
    return std::equal(std::begin(cells_), std::end(cells_), std::begin(expected_));
  }

 private:
  void synchronize(StreamId stream, size_t event) {
    if (random_() % 3 > 0) return;  // rare: it orders everything
    if (random_() % 2 == 0) {
      executor_.synchronize(stream);
      host_ = order_.node({host_, stream_last_[stream]});
    } else {
      executor_.synchronize(events_[event]);
      host_ = order_.node({host_, records_[event]});
    }
  }

  static void apply(const Operation& op, uint64_t* cells) {
    uint64_t sum = static_cast<uint64_t>(op.id);
    for (int i = op.read_begin; i < op.read_end; ++i) sum = sum * 31 + cells[i];
    for (int i = op.write_begin; i < op.write_end; ++i) cells[i] = cells[i] * 7 + sum;
  }

  void operation(StreamId stream, size_t event) {
    Operation& op = operations_.emplace_back();
    op.id = static_cast<int>(operations_.size());
    op.read_begin = static_cast<int>(random_() % kNumCells);
    op.read_end = std::min(kNumCells, op.read_begin + static_cast<int>(random_() % 3));
    op.write_begin = static_cast<int>(random_() % kNumCells);
    op.write_end = std::min(kNumCells, op.write_begin + static_cast<int>(random_() % 3));
    op.asynchronous = random_() % 4 == 0;
    op.done = op.asynchronous ? &events_[event] : nullptr;
    op.body.declare = [this, &op](AccessList& list) {
      list.read(&cells_[op.read_begin], sizeof(uint64_t) * static_cast<size_t>(op.read_end - op.read_begin));
      list.write(&cells_[op.write_begin], sizeof(uint64_t) * static_cast<size_t>(op.write_end - op.write_begin));
    };
    op.body.run = [this, &op](int32_t) {
      if (!op.asynchronous) return apply(op, cells_);
      const std::lock_guard lock(copies_.mutex);
      copies_.waiting.push_back([this, &op] {
        apply(op, cells_);
        op.done->finish_piece();
      });
    };
    push_and_compare(stream, event, op);
  }

  void push_and_compare(StreamId stream, size_t event, Operation& op) {
    const int start = order_.node({stream_last_[stream], host_});
    bool expected = true;
    for (const Operation* earlier : accepted_) {
      if (op.conflicts_with(*earlier) && !order_.is_before(earlier->complete, start)) expected = false;
    }
    bool accepted = true;
    try {
      op.asynchronous ? push_async(executor_, stream, op.body, *op.done) : push(executor_, stream, op.body);
    } catch (const Error&) {
      accepted = false;
    }
    ASSERT_EQ(accepted, expected) << "operation " << op.id;
    if (!accepted) {
      ++num_refused_;
      return;
    }
    accepted_.push_back(&op);
    apply(op, expected_);
    stream_last_[stream] = op.complete = start;
    if (op.asynchronous) records_[event] = op.complete = order_.node({start, records_[event]});
  }

  std::mt19937_64 random_;
  Event events_[kNumEvents];
  uint64_t cells_[kNumCells] = {}, expected_[kNumCells] = {};
  Order order_;
  int host_ = -1;
  int stream_last_[kNumStreams] = {-1, -1, -1};
  int records_[kNumEvents] = {-1, -1, -1, -1};
  std::deque<Operation> operations_;
  std::vector<const Operation*> accepted_;
  int64_t num_refused_ = 0;
  Copies copies_;
  Executor executor_;
};

void run_programs(uint64_t num_seeds, int num_threads, Schedule schedule) {
  int64_t accepted = 0, refused = 0;
  for (uint64_t seed = 0; seed < num_seeds; ++seed) {
    Program program(seed, {.num_threads = num_threads, .schedule = schedule, .seed = seed, .check_order = true});
    program.run(60);
    ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "seed " << seed;
    ASSERT_TRUE(program.gives_the_result_of_push_order()) << "seed " << seed;
    accepted += program.num_accepted();
    refused += program.num_refused();
  }
  EXPECT_GT(accepted, refused / 4);
  EXPECT_GT(refused, accepted / 16);
}

TEST(OrderProperty, TheCheckerAgreesWithAModelOfTheOrder) { run_programs(2000, 1, Schedule::kRandom); }
TEST(OrderProperty, ItHoldsWithoutRandomSchedules) { run_programs(500, 1, Schedule::kPreferMain); }
TEST(OrderProperty, ItHoldsWithTwoThreads) {
  run_programs(400, 2, Schedule::kRandom);
  run_programs(200, 2, Schedule::kPreferMain);
}
TEST(OrderProperty, ItHoldsWithFourThreads) { run_programs(100, 4, Schedule::kRandom); }

}  // namespace
}  // namespace tidepool::device
