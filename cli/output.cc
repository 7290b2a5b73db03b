#include "output.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
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

// Supervisors send SIGTERM and SIGHUP together, so a second one of those says no more than the first.
extern "C" void on_interrupt(int signal_number) {
  if (guards.load() == 0) _exit(kExitInterrupted);
  if (stop_wanted.exchange(true) && signal_number == SIGINT) _exit(kExitInterrupted);
}

// Nothing can be done, or said, when standard error is closed or full.
void write_error(const std::string& text) { (void)!std::fwrite(text.data(), 1, text.size(), stderr); }

}  // namespace

void print(std::string_view text) {
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  tidepool_check(written, "standard output: {}", std::strerror(errno));
}

void print_json(const base::Json& object) { print(object.dump() + "\n"); }

void note(std::string_view text) { write_error(std::string(text) + (text.ends_with('\n') ? "" : "\n")); }

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
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    sigaction(number, nullptr, &before);
    if (number == SIGHUP && before.sa_handler == SIG_IGN) continue;  // nohup
    sigaction(number, &action, nullptr);
  }
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
  write_error(fmt::format("\r\033[K{} [{:<30}] {:3.0f} %  {}", what_, std::string(filled, '#'), 100 * share, amount));
  is_shown_ = true;
}

void Progress::clear() {
  std::lock_guard lock(mutex_);
  if (is_shown_) write_error("\r\033[K");
  is_shown_ = false;
}

}  // namespace tidepool::cli
