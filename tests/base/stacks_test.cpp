#include "engine/base/stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <condition_variable>
#include <csignal>
#include <latch>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/threads.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Where threads of the tests hang until they are let go.
class Hang {
 public:
  [[gnu::noinline]] void hang_here(std::latch& there) {
    std::unique_lock lock(mutex_);
    there.count_down();
    let_go_.wait(lock, [&] { return gone_; });
    if (!gone_) hang_here(there);  // not a tail call above
  }
  void end() {
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
    }
    let_go_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable let_go_;
  bool gone_ = false;
};

/// The block of the first thread of this name; empty where there is none.
std::string block_of(const std::string& name, const std::string& stacks) {
  const std::size_t from = ("\n" + stacks).find("\n" + name + " (thread ");
  if (from == std::string::npos) return {};
  std::size_t end = stacks.find('\n', from);
  while (end + 1 < stacks.size() && stacks[end + 1] == ' ') end = stacks.find('\n', end + 1);
  return stacks.substr(from, end - from);
}

TEST(Stacks, NameTheFunctionInWhichAThreadHangs) {
  Hang hang;
  std::latch there(1);
  std::jthread thread([&] {
    name_this_thread("hanging");
    hang.hang_here(there);
  });
  there.wait();
  const std::string stacks = stacks_of_threads();
  hang.end();
  EXPECT_THAT(block_of("hanging", stacks), HasSubstr("Hang::hang_here(std::latch&)")) << stacks;
  EXPECT_THAT(stacks, Not(HasSubstr("stacks_of_threads")));  // who asks is left out
}

TEST(Stacks, ThreadsAtOnePlaceStandTogether) {
  Hang hang;
  std::latch there(3);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      name_this_thread("one of three");
      hang.hang_here(there);
    });
  }
  there.wait();
  std::string stacks;  // the last may be on its way into the wait
  for (int i = 0; i < 1000 && block_of("one of three", stacks).find("2 more") == std::string::npos;
       ++i) {
    stacks = stacks_of_threads();
  }
  hang.end();
  EXPECT_THAT(block_of("one of three", stacks), HasSubstr(", and 2 more at the same place)"))
      << stacks;
}

TEST(Stacks, AThreadThatDoesNotAnswerIsSaidToBeSo) {
  Hang hang;
  std::latch there(1);
  std::jthread thread([&] {
    name_this_thread("deaf");
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    hang.hang_here(there);
  });
  there.wait();
  const std::string stacks = stacks_of_threads();
  hang.end();
  EXPECT_THAT(block_of("deaf", stacks),
              AllOf(HasSubstr("does not answer: state S"), Not(HasSubstr("hang_here"))))
      << stacks;
}

}  // namespace
}  // namespace sluice
