#include "engine/base/stacks.h"

#include <execinfo.h>
#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/symbols.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr auto kPatience = std::chrono::seconds(1);
constexpr std::size_t kMostFrames = 64;
/// The handler, and what the kernel returns to from it.
constexpr int kFramesOfSignal = 2;
/// A line of the log is not broken before that.
constexpr std::size_t kColumns = 118;

/// A thread that was asked.
struct Asked {
  explicit Asked(pid_t thread) : id(thread) {}
  pid_t id;
  std::array<void*, kMostFrames> frames{};
  std::atomic<int> count{-1};  // of frames, which are written before; -1: no answer yet
};
using Question = std::deque<Asked>;

std::atomic<Question*> question{nullptr};
static_assert(std::atomic<Question*>::is_always_lock_free, "a signal handler reads it");

/// Only what is allowed inside a signal handler; backtrace() is, once it has been called.
void answer(int) {
  const int kept = errno;
  const pid_t self = ::gettid();
  for (Asked& asked : *question.load()) {
    if (asked.id != self || asked.count >= 0) continue;
    asked.count = ::backtrace(asked.frames.data(), static_cast<int>(kMostFrames));
  }
  errno = kept;
}

std::vector<pid_t> other_threads() {
  std::vector<pid_t> ids;
  std::error_code failed;
  const fs::directory_iterator end;
  for (fs::directory_iterator at("/proc/self/task", failed); !failed && at != end;
       at.increment(failed)) {
    const std::string name = at->path().filename();
    pid_t id = 0;
    std::from_chars(name.data(), name.data() + name.size(), id);
    if (id != ::gettid()) ids.push_back(id);
  }
  std::ranges::sort(ids);
  return ids;
}

/// The first line of a file that the kernel has about a thread; empty where it is gone.
std::string fact_of(pid_t thread, std::string_view file) {
  std::ifstream from(fmt::format("/proc/self/task/{}/{}", thread, file));
  std::string line;
  std::getline(from, line);
  return line;
}

/// Asks all of them; who is gone does not count.
Question& ask(const std::vector<pid_t>& threads) {
  // Never given back: one that the kernel held may answer at any time.
  static auto& asked = *new std::vector<std::unique_ptr<Question>>;
  std::array<void*, 1> primed{};
  ::backtrace(primed.data(), 1);
  asked.push_back(std::make_unique<Question>());
  for (const pid_t thread : threads) asked.back()->emplace_back(thread);
  question = asked.back().get();
  struct sigaction action {};
  action.sa_handler = answer;
  action.sa_flags = SA_RESTART;
  const int signal = SIGRTMIN + 1;
  ::sigaction(signal, &action, nullptr);
  for (Asked& thread : *asked.back()) {
    if (::tgkill(::getpid(), thread.id, signal) != 0) thread.count = 0;
  }
  return *asked.back();
}

void wait_for_answers(const Question& asked) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  const auto answered = [](const Asked& thread) { return thread.count >= 0; };
  while (!std::ranges::all_of(asked, answered) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::string frames_of(const Asked& thread, const Symbols& symbols) {
  const int count = thread.count;
  if (count < 0) {
    const std::string stat = fact_of(thread.id, "stat");
    const std::size_t name_end = stat.rfind(')');
    const std::string state = name_end + 2 < stat.size() ? stat.substr(name_end + 2, 1) : "?";
    return fmt::format("  does not answer: state {}, in {} of the kernel\n", state,
                       fact_of(thread.id, "wchan"));
  }
  std::string text;
  for (int i = std::min(kFramesOfSignal, count); i < count; ++i) {
    const auto* at = static_cast<const char*>(thread.frames[static_cast<std::size_t>(i)]);
    // Of a call the return address is known, which may lie behind the end of the function.
    const bool call = i > kFramesOfSignal;
    text += fmt::format("  {:.{}}\n", symbols.describe(call ? at - 1 : at), kColumns - 2);
  }
  return text;
}

}  // namespace

std::string stacks_of_threads() {
  const Question& asked = ask(other_threads());
  wait_for_answers(asked);
  const Symbols symbols;
  std::map<std::pair<std::string, std::string>, std::vector<pid_t>> places;  // name and frames
  for (const Asked& thread : asked) {
    if (thread.count == 0) continue;
    places[{fact_of(thread.id, "comm"), frames_of(thread, symbols)}].push_back(thread.id);
  }
  std::string text;
  for (const auto& [what, threads] : places) {
    const auto& [name, frames] = what;
    const std::string together =
        threads.size() == 1 ? ""
                            : fmt::format(", and {} more at the same place", threads.size() - 1);
    text += fmt::format("{} (thread {}{})\n{}", name, threads.front(), together, frames);
  }
  return text;
}

}  // namespace sluice
