// What every backend keeps. No work here waits for its caller, since a backend may run it at once.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "gpu/memory.h"
#include "gpu/stream.h"
#include "tests/gpu/needs_device.h"

namespace sluice::gpu {
namespace {

using StreamConformance = NeedsDevice;

constexpr Bytes kBig = 2_MiB;  // long enough for another stream to be caught in the middle

void fill(const PinnedSlab& slab, unsigned value) {
  std::memset(slab.data(), static_cast<int>(value & 0xffU), slab.size());
}

bool all(const PinnedSlab& slab, unsigned value) {
  for (Bytes i = 0; i < slab.size(); ++i) {
    if (slab.data()[i] != std::byte(value & 0xffU)) return false;
  }
  return true;
}

[[noreturn]] void fail_with(const char* message) {
  throw Error(Errc::kDevice, message);
}

std::string message_of(const Ticket& ticket) {
  try {
    ticket.wait();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST_F(StreamConformance, AnEmptyEventIsReached) {
  const Event event;
  EXPECT_TRUE(event.done());
  event.ticket().wait();
  Stream stream("s");
  stream.wait(event);
  stream.record().ticket().wait();
}

TEST_F(StreamConformance, CopiesGoRoundThroughTheDevice) {
  DeviceHeap heap(2 * kBig);
  const DeviceBlock a = heap.allocate(kBig);
  const DeviceBlock b = heap.allocate(kBig);
  const PinnedSlab in(kBig);
  const PinnedSlab out(kBig);
  fill(in, 0xa5);
  Stream stream("s");
  stream.copy(a.data(), in.data(), kBig);
  stream.copy(b.data(), a.data(), kBig);
  stream.copy(out.data(), b.data(), kBig).ticket().wait();
  EXPECT_TRUE(all(out, 0xa5));
}

TEST_F(StreamConformance, KeepsTheOrderOfCopiesThroughOneBuffer) {
  DeviceHeap heap(64_KiB);
  const DeviceBlock slot = heap.allocate(64_KiB);
  std::vector<PinnedSlab> in;
  std::vector<PinnedSlab> out;
  Stream stream("s");
  for (unsigned i = 0; i < 100; ++i) {
    fill(in.emplace_back(64_KiB), i);
    out.emplace_back(64_KiB);
  }
  for (unsigned i = 0; i < 100; ++i) {
    stream.copy(slot.data(), in[i].data(), 64_KiB);
    stream.copy(out[i].data(), slot.data(), 64_KiB);
  }
  stream.record().ticket().wait();
  for (unsigned i = 0; i < 100; ++i) EXPECT_TRUE(all(out[i], i)) << i;
}

TEST_F(StreamConformance, AWaitOrdersTwoStreamsInBothDirections) {
  DeviceHeap heap(kBig);
  const DeviceBlock slot = heap.allocate(kBig);  // written by one stream, read by the other
  const PinnedSlab out(kBig);
  std::vector<PinnedSlab> in(4);
  for (unsigned i = 0; i < 4; ++i) fill(in[i] = PinnedSlab(kBig), i);
  Stream load("load");
  Stream store("store");
  std::vector<PinnedSlab> seen;
  for (unsigned round = 0; round < 24; ++round) {
    const Event loaded = load.copy(slot.data(), in[round % 4].data(), kBig);
    store.wait(loaded);
    load.wait(store.copy(seen.emplace_back(kBig).data(), slot.data(), kBig));
  }
  store.record().ticket().wait();
  for (unsigned round = 0; round < 24; ++round) EXPECT_TRUE(all(seen[round], round % 4)) << round;
}

TEST_F(StreamConformance, AnEventCoversAllThatStandsBeforeIt) {
  std::atomic<int> ran{0};
  Stream a("a");
  Stream b("b");
  for (int i = 0; i < 10; ++i) a.run([&] { ++ran; });
  b.wait(a.record());
  b.record().ticket().wait();
  EXPECT_EQ(ran, 10);
}

TEST_F(StreamConformance, IsDoneNoSoonerThanWhatItStandsBehind) {
  Stream a("a");
  Stream b("b");
  for (int i = 0; i < 300; ++i) {
    const Event before = a.run([] {});
    b.wait(before);
    b.run([] {}).ticket().wait();
    ASSERT_TRUE(before.done()) << i;
  }
}

TEST_F(StreamConformance, AnErrorComesWithTheEventNotFromTheCall) {
  Stream stream("s");
  const Event good = stream.run([] {});
  const Event bad = stream.run([] { fail_with("the kernel fell over"); });
  EXPECT_EQ(message_of(good.ticket()), "no error");
  EXPECT_EQ(message_of(bad.ticket()), "the kernel fell over");
  EXPECT_TRUE(bad.done());
}

TEST_F(StreamConformance, AFailedStreamSkipsWorkAndCopiesAndKeepsTheFirstError) {
  const PinnedSlab from(4_KiB);
  const PinnedSlab to(4_KiB);
  fill(from, 1);
  fill(to, 2);
  std::atomic<bool> ran{false};
  Stream stream("s");
  stream.run([] { fail_with("first"); });
  stream.run([] { fail_with("second"); });
  const Event work = stream.run([&] { ran = true; });
  const Event copy = stream.copy(to.data(), from.data(), 4_KiB);
  EXPECT_EQ(message_of(work.ticket()), "first");
  EXPECT_EQ(message_of(copy.ticket()), "first");
  EXPECT_EQ(message_of(stream.record().ticket()), "first");
  EXPECT_FALSE(ran);
  EXPECT_TRUE(all(to, 2));
}

TEST_F(StreamConformance, AnErrorCrossesStreamsWithTheWait) {
  std::atomic<bool> ran{false};
  Stream a("a");
  Stream b("b");
  Stream c("c");
  Stream apart("apart");
  b.wait(a.run([] { fail_with("in a"); }));
  c.wait(b.record());
  const Event skipped = c.run([&] { ran = true; });
  EXPECT_EQ(message_of(skipped.ticket()), "in a");
  EXPECT_FALSE(ran);
  EXPECT_EQ(message_of(apart.run([&] { ran = true; }).ticket()), "no error");
  EXPECT_TRUE(ran);
}

TEST_F(StreamConformance, AFailedStreamKeepsItsErrorAcrossAWait) {
  Stream a("a");
  Stream b("b");
  b.run([] { fail_with("first in b"); });
  b.wait(a.run([] { fail_with("in a"); }));
  EXPECT_EQ(message_of(b.record().ticket()), "first in b");
}

TEST_F(StreamConformance, TheDestructorDrains) {
  const PinnedSlab in(kBig);
  const PinnedSlab out(kBig);
  fill(in, 7);
  Event last;
  {
    Stream stream("s");
    for (int i = 0; i < 20; ++i) last = stream.copy(out.data(), in.data(), kBig);
  }
  EXPECT_TRUE(last.done());
  EXPECT_TRUE(all(out, 7));
}

TEST_F(StreamConformance, TheDestructorOfAFailedStreamIsQuiet) {
  Event last;
  {
    Stream stream("s");
    stream.run([] { fail_with("nobody listens"); });
    last = stream.run([] {});
  }
  EXPECT_EQ(message_of(last.ticket()), "nobody listens");
}

TEST_F(StreamConformance, ACopyOfNothingIsOrderedToo) {
  Stream stream("s");
  stream.run([] { fail_with("before it"); });
  EXPECT_EQ(message_of(stream.copy(nullptr, nullptr, 0).ticket()), "before it");
}

TEST_F(StreamConformance, RefusesACopyOntoItselfAndARunOfNothing) {
  const PinnedSlab slab(8_KiB);
  Stream stream("s");
  EXPECT_THROW(stream.copy(slab.data() + 1_KiB, slab.data(), 2_KiB), Error);
  EXPECT_THROW(stream.copy(slab.data(), slab.data() + 1_KiB, 2_KiB), Error);
  EXPECT_THROW(stream.run(nullptr), Error);
  stream.copy(slab.data() + 4_KiB, slab.data(), 4_KiB).ticket().wait();
}

TEST_F(StreamConformance, MovesWithItsQueue) {
  const PinnedSlab in(kBig);
  const PinnedSlab out(kBig);
  fill(in, 9);
  Stream first("s");
  first.copy(out.data(), in.data(), kBig);
  Stream second(std::move(first));
  second.record().ticket().wait();
  EXPECT_TRUE(all(out, 9));
}

TEST_F(StreamConformance, TellsTheTimeBetweenTwoEvents) {
  const PinnedSlab in(kBig);
  const PinnedSlab out(kBig);
  Stream stream("s");
  const Event begin = stream.record();
  const Event copy = stream.copy(out.data(), in.data(), kBig);
  const Event end = stream.record();
  end.ticket().wait();
  EXPECT_GT(seconds_between(begin, copy), 0);
  EXPECT_GE(seconds_between(copy, end), 0);
  EXPECT_LE(seconds_between(begin, copy), seconds_between(begin, end));
  EXPECT_THROW(seconds_between(Event(), end), Error);
}

TEST_F(StreamConformance, ARecordIsReachedAfterItWasAskedFor) {
  Stream stream("s");
  const Event work = stream.run([] {});
  work.ticket().wait();
  const Event later = stream.record();
  later.ticket().wait();
  EXPECT_GT(later.ticket().ended(), work.ticket().ended());
}

// Every thread moves a token of its own from slot to slot, over streams taken at random, ordered by
// events alone; a lost or early wait shows as a wrong byte (and as a race under TSan).
TEST_F(StreamConformance, HammeredFromSeveralThreads) {
  constexpr int kThreads = 4;
  constexpr unsigned kMoves = 300;
  constexpr Bytes kSlot = 16_KiB;
  DeviceHeap heap(2 * kThreads * kSlot);
  std::vector<Stream> streams;
  for (const char* lane : {"s0", "s1", "s2"}) streams.emplace_back(lane);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::minstd_rand random(static_cast<unsigned>(t) + 1);
      const DeviceBlock a = heap.allocate(kSlot);
      const DeviceBlock b = heap.allocate(kSlot);
      const PinnedSlab in(kSlot);
      const PinnedSlab out(kSlot);
      Event before;
      for (unsigned i = 0; i < kMoves; ++i) {
        const std::byte* path[] = {in.data(), a.data(), b.data(), out.data()};
        before.ticket().wait();
        fill(in, i);
        for (int hop = 0; hop < 3; ++hop) {
          Stream& stream = streams[random() % streams.size()];
          stream.wait(before);
          before = stream.copy(const_cast<std::byte*>(path[hop + 1]), path[hop], kSlot);
        }
        before.ticket().wait();
        ASSERT_TRUE(all(out, i)) << "thread " << t << " move " << i;
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace sluice::gpu
