// What the program writes: results to standard output, everything else to standard error. And how it is interrupted.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/text.h"

namespace tidepool::cli {

// Writes to standard output at once; throws Error when it cannot (a full disk, a closed pipe).
void print(std::string_view text);
// One JSON object and a newline.
void print_json(const base::Json& object);
// Lines to standard error; adds the last newline where it is missing. Whether anybody can read them is no matter.
void note(std::string_view text);

using base::bytes_text;
std::string count_text(int64_t count);  // "1,234,567"

// Thrown where work stops because of SIGINT, SIGTERM or SIGHUP: exit code 130.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted"; }
};

// While one of these lives, SIGINT, SIGTERM and SIGHUP only make interrupted() true, so that the work can end in good
// order; a second SIGINT ends the program. Otherwise they end it at once, with exit code 130 in both cases.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};
void handle_interrupts();  // once, at the start of main
bool interrupted();

// Shows how far long work is, on standard error: a bar on a terminal, a line every few seconds elsewhere.
// Thread safe.
class Progress {
 public:
  Progress(std::string what, std::string unit) : what_(std::move(what)), unit_(std::move(unit)) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(uint64_t done, uint64_t total);
  void clear();  // takes the bar off the terminal

 private:
  using Clock = std::chrono::steady_clock;
  std::mutex mutex_;
  std::string what_, unit_;
  Clock::time_point last_ = Clock::now();
  bool is_shown_ = false;
};

}  // namespace tidepool::cli
