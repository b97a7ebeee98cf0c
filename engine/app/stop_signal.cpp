#include "engine/app/stop_signal.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <string_view>

namespace sluice::app {
namespace {

constexpr std::array kNumbers{SIGINT, SIGTERM};
std::array<bool, kNumbers.size()> watched{};  // written before their handler can run
std::atomic<int> signal_number{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may set nothing else");

/// Only what is allowed inside a signal handler.
void note(int number) {
  const int kept = errno;
  signal_number = number;
  for (std::size_t i = 0; i < kNumbers.size(); ++i) {
    if (watched[i]) std::signal(kNumbers[i], SIG_DFL);
  }
  constexpr std::string_view kText =
      "\nstopping after the steps that are under way; once more stops at once\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText.data(), kText.size());
  errno = kept;
}

}  // namespace

const std::atomic<int>& stop_signal() {
  return signal_number;
}

void watch_stop_signals() {
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

}  // namespace sluice::app
