#include "cpu_adam/workers.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/cores.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "tests/support/errors.h"

namespace sluice::cpu_adam {
namespace {

std::string name_of_this_thread() {
  std::array<char, 32> name{};
  pthread_getname_np(pthread_self(), name.data(), name.size());
  return name.data();
}

TEST(Workers, CutACountAtGrainsIntoRangesThatCoverItOnce) {
  for (const unsigned threads : {1U, 2U, 4U}) {
    const Workers workers(threads);
    EXPECT_EQ(workers.threads(), threads);
    for (const std::size_t count :
         {std::size_t{1}, kGrainElems, 5 * kGrainElems, 33 * kGrainElems + 7}) {
      std::mutex mutex;
      std::map<std::size_t, std::size_t> ranges;
      workers.for_grains(count, [&](std::size_t first, std::size_t last) {
        const std::lock_guard lock(mutex);
        ranges[first] = last;
      });
      std::size_t end = 0;
      for (const auto& [first, last] : ranges) {
        EXPECT_EQ(first, end);
        EXPECT_EQ(first % kGrainElems, 0U);
        end = last;
      }
      EXPECT_EQ(end, count);
    }
  }
}

TEST(Workers, ThrowWhatTheirWorkThrowsAndWorkAgain) {
  for (const unsigned threads : {1U, 3U}) {
    const Workers workers(threads);
    std::atomic<int> inside{0};
    const auto fail_at_the_end = [&](std::size_t, std::size_t last) {
      if (last == 64 * kGrainElems) throw Error(Errc::kFormat, "the last grain");
      ++inside;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      --inside;
    };
    test::expect_error(Errc::kFormat, {"the last grain"},
                       [&] { workers.for_grains(64 * kGrainElems, fail_at_the_end); });
    EXPECT_EQ(inside, 0) << "nothing of it goes on";
    EXPECT_NO_THROW(workers.for_grains(63 * kGrainElems, fail_at_the_end));
  }
}

TEST(Workers, AreLeftAloneWhenThereIsNothingToDo) {
  const Workers workers(2);
  workers.for_grains(0, [](std::size_t, std::size_t) { ADD_FAILURE() << "called"; });
}

class ThreadsOfWorkers : public testing::TestWithParam<unsigned> {};

/// Every range waits until all threads have one: with fewer of them this never ends.
TEST_P(ThreadsOfWorkers, WorkAllAtOnceUnderTheirNameBesideTheCaller) {
  const unsigned threads = GetParam();
  const Workers workers(threads);
  std::mutex mutex;
  std::condition_variable arrived;
  std::map<std::thread::id, std::string> names;
  workers.for_grains(threads * 64 * kGrainElems, [&](std::size_t, std::size_t) {
    std::unique_lock lock(mutex);
    names[std::this_thread::get_id()] = name_of_this_thread();
    arrived.notify_all();
    arrived.wait(lock, [&] { return names.size() == threads; });
  });
  EXPECT_NE(names.at(std::this_thread::get_id()), "cpu adam") << "the caller works too";
  names.erase(std::this_thread::get_id());
  EXPECT_EQ(names.size(), threads - 1);
  for (const auto& [thread, name] : names) EXPECT_EQ(name, "cpu adam");
}

// The last: more than oneTBB would take by itself.
INSTANTIATE_TEST_SUITE_P(Counts, ThreadsOfWorkers, testing::Values(1U, 2U, core_count() + 1));

}  // namespace
}  // namespace sluice::cpu_adam
