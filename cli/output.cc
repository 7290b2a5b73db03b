#include "output.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/check.h"

namespace tidepool::cli {
namespace {

constexpr int kExitInterrupted = 130;
std::atomic<int> guards{0};
std::atomic<bool> stop_wanted{false};

extern "C" void on_interrupt(int) {
  if (guards.load() == 0 || stop_wanted.exchange(true)) _exit(kExitInterrupted);
}

}  // namespace

void print(std::string_view text) {
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  tidepool_check(written, "standard output: {}", std::strerror(errno));
}

void print_json(const base::Json& object) { print(object.dump() + "\n"); }

void note(std::string_view text) { fmt::print(stderr, "{}{}", text, text.empty() || text.back() != '\n' ? "\n" : ""); }

std::string bytes_text(uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string count_text(int64_t count) {
  const std::string digits = fmt::format("{}", count);
  const size_t first = count < 0 ? 1 : 0;
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > first && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

void handle_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);
}

InterruptGuard::InterruptGuard() { guards.fetch_add(1); }
InterruptGuard::~InterruptGuard() { guards.fetch_sub(1); }
bool interrupted() { return stop_wanted.load(); }

void Progress::update(uint64_t done, uint64_t total) {
  const bool is_terminal = isatty(STDERR_FILENO) != 0;
  const auto pause = std::chrono::milliseconds(is_terminal ? 100 : 3000);
  std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (now - last_ < pause || total == 0) return;
  last_ = now;
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const std::string amount = unit_ == "bytes" ? fmt::format("{} of {}", bytes_text(done), bytes_text(total))
                                              : fmt::format("{} of {} {}", done, total, unit_);
  if (!is_terminal) {
    note(fmt::format("{}: {} ({:.0f} %)", what_, amount, 100 * share));
    return;
  }
  constexpr int kWidth = 30;
  const auto filled = static_cast<size_t>(share * kWidth);
  fmt::print(stderr, "\r\033[K{} [{:<30}] {:3.0f} %  {}", what_, std::string(filled, '#'), 100 * share, amount);
  is_shown_ = true;
}

void Progress::clear() {
  std::lock_guard lock(mutex_);
  if (is_shown_) fmt::print(stderr, "\r\033[K");
  is_shown_ = false;
}

}  // namespace tidepool::cli
