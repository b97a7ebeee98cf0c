// What only streams that are threads can show: works that are held at a gate while the host goes
// on.
#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <string>
#include <thread>

#include "engine/base/error.h"
#include "gpu/stream.h"

namespace sluice::gpu {
namespace {

TEST(HostStream, TheHostIsNeverBlockedByAWait) {
  std::latch gate(1);
  std::atomic<bool> ran{false};
  Stream a("a");
  Stream b("b");
  const Event held = a.run([&] { gate.wait(); });
  b.wait(held);
  const Event after = b.run([&] { ran = true; });
  // Were wait() to block the host, the gate would never open.
  EXPECT_FALSE(held.done());
  EXPECT_FALSE(after.done());
  EXPECT_FALSE(ran);
  gate.count_down();
  after.ticket().wait();
  EXPECT_TRUE(held.done());
  EXPECT_TRUE(ran);
}

TEST(HostStream, ATicketSaysWhenTheStreamReachedTheCopy) {
  Stream stream("copies");
  Nanos first_ended = 0;
  std::latch gate(1);
  const Event first = stream.run([&] {
    gate.wait();
    first_ended = now_ns();
  });
  const std::array<std::byte, 64> from{};
  std::array<std::byte, 64> to{};
  const Event copy = stream.copy(to.data(), from.data(), from.size());
  gate.count_down();
  copy.ticket().wait();
  EXPECT_LT(first.ticket().began(), first_ended);
  EXPECT_GE(copy.ticket().began(), first_ended);
}

TEST(HostStream, TwoStreamsRunBesideEachOther) {
  std::latch both(2);
  Stream a("a");
  Stream b("b");
  const Event in_a = a.run([&] { both.arrive_and_wait(); });
  const Event in_b = b.run([&] { both.arrive_and_wait(); });
  in_a.ticket().wait();
  in_b.ticket().wait();
}

TEST(HostStream, RecordAfterAWaitComesAfterWhatIsWaitedOn) {
  std::latch gate(1);
  Stream a("a");
  Stream b("b");
  b.run([] {}).ticket().wait();
  b.wait(a.run([&] { gate.wait(); }));
  const Event point = b.record();
  EXPECT_FALSE(point.done());
  gate.count_down();
  point.ticket().wait();
}

TEST(HostStream, AFailedStreamStillComesAfterWhatItWaitsFor) {
  std::atomic<bool> ended{false};
  Stream a("a");
  Stream b("b");
  b.run([] { throw Error(Errc::kDevice, "b fails first"); });
  b.wait(a.run([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // time for b to come too early
    ended = true;
  }));
  EXPECT_THROW(b.run([] {}).ticket().wait(), Error);
  EXPECT_TRUE(ended);
}

/// Says when it is dropped whether an event had been reached by then.
struct Probe {
  const Event* event;
  bool* reached;
  ~Probe() { *reached = event->done(); }
};

TEST(HostStream, DropsWhatAWorkHoldsBeforeItsEventIsReached) {
  for (const bool failed : {false, true}) {
    std::latch gate(1);
    Event event;
    bool reached = true;
    Stream stream("s");
    stream.run([&] {
      gate.wait();
      if (failed) throw Error(Errc::kDevice, "what comes later is skipped");
    });
    event = stream.run([held = std::make_shared<Probe>(Probe{&event, &reached})] {});
    gate.count_down();
    event.ticket().wait_error();
    EXPECT_FALSE(reached) << (failed ? "skipped" : "run");
  }
}

TEST(HostStream, AWorkMayEnqueueOnItsOwnStream) {
  std::atomic<int> order{0};
  int inner_at = 0;
  int outer_at = 0;
  {
    Stream stream("s");
    stream
        .run([&] {
          stream.run([&] { inner_at = ++order; });
          outer_at = ++order;
        })
        .ticket()
        .wait();
  }
  EXPECT_EQ(outer_at, 1);
  EXPECT_EQ(inner_at, 2);
}

TEST(HostStream, AnyExceptionTravels) {
  Stream stream("s");
  const Event bad = stream.run([] { throw std::string("not even a std::exception"); });
  EXPECT_THROW(bad.ticket().wait(), std::string);
}

TEST(HostStream, ItsThreadCarriesTheNameOfTheLane) {
  std::array<char, 16> name{};
  Stream stream("h2d");
  stream.run([&] { pthread_getname_np(pthread_self(), name.data(), name.size()); }).ticket().wait();
  EXPECT_STREQ(name.data(), "h2d");
}

}  // namespace
}  // namespace sluice::gpu
