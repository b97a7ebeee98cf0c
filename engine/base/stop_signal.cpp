#include "engine/base/stop_signal.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>

namespace sluice {
namespace {

constexpr std::array kNumbers{SIGINT, SIGTERM, SIGHUP};
std::array<bool, kNumbers.size()> watched{};  // written before their handler can run
std::string_view what_it_does;                // likewise
std::atomic<int> signal_number{0};
std::atomic<bool> save_asked{false};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may set nothing else");

/// Only what is allowed inside a signal handler.
void note(int number) {
  const int kept = errno;
  signal_number = number;
  for (std::size_t i = 0; i < kNumbers.size(); ++i) {
    if (watched[i]) std::signal(kNumbers[i], SIG_DFL);
  }
  for (const std::string_view text :
       {std::string_view("\n"), what_it_does, std::string_view("; once more stops at once\n")}) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  }
  errno = kept;
}

void note_save(int /*number*/) {
  save_asked = true;
}

}  // namespace

const std::atomic<int>& stop_signal() {
  return signal_number;
}

void watch_stop_signals(std::string_view what) {
  what_it_does = what;
  for (std::size_t i = 0; i < kNumbers.size(); ++i) {
    struct sigaction action {};
    ::sigaction(kNumbers[i], nullptr, &action);
    // A script's background jobs are started deaf to Ctrl-C: so they stay.
    if (action.sa_handler == SIG_IGN) continue;
    watched[i] = true;
    action = {};
    action.sa_handler = note;
    action.sa_flags = SA_RESTART;
    ::sigaction(kNumbers[i], &action, nullptr);
  }
}

void watch_save_signal() {
  struct sigaction action {};
  action.sa_handler = note_save;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &action, nullptr);
}

bool take_save_signal() {
  return save_asked.exchange(false);
}

}  // namespace sluice
