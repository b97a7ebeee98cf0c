// What the CUDA backend adds to the conformance suite: kernels that run on while the host goes on,
// and a device that breaks.
#include "gpu/stream.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <latch>
#include <memory>

#include "gpu/cuda/current.h"
#include "gpu/memory.h"
#include "tests/gpu/cuda/emulated_runtime.h"
#include "tests/support/errors.h"

namespace sluice::gpu {
namespace {

using test::expect_error;

Event launch(Stream& stream, std::function<void()> kernel) {
  return stream.run(
      [kernel = std::move(kernel)] { emulated::launch(cuda::current_stream(), kernel); });
}

TEST(CudaStream, TheHostIsNeverBlockedByAWait) {
  std::latch gate(1);
  std::atomic<bool> ran{false};
  Stream a("a");
  Stream b("b");
  const Event held = launch(a, [&] { gate.wait(); });
  b.wait(held);
  const Event after = launch(b, [&] { ran = true; });
  const Event point = b.record();
  EXPECT_FALSE(held.done());
  EXPECT_FALSE(after.done());
  EXPECT_FALSE(point.done());
  EXPECT_FALSE(ran);
  EXPECT_THROW(seconds_between(held, after), Error);
  gate.count_down();
  after.ticket().wait();
  EXPECT_TRUE(held.done());
  EXPECT_TRUE(ran);
}

TEST(CudaStream, WhoEnqueuesWaitsForNothing) {
  DeviceHeap heap(1_MiB);
  const DeviceBlock device = heap.allocate(64_KiB);
  const PinnedSlab host(64_KiB);
  Stream a("a");
  Stream b("b");
  const std::size_t before = emulated::host_waits();
  const Event first = launch(a, [] {});
  a.copy(device.data(), host.data(), 64_KiB);
  b.wait(a.record());
  launch(b, [] {});
  const Event last = b.copy(host.data(), device.data(), 64_KiB);
  last.ticket().wait();  // for a thread of the host's: that one waits for the device
  EXPECT_GE(seconds_between(first, last), 0);
  EXPECT_EQ(emulated::host_waits(), before);
}

TEST(CudaStream, WaitsOfTheHostAreSeenWhereThereAreSome) {
  const auto waits_in = [](auto work) {
    const std::size_t before = emulated::host_waits();
    work();
    return emulated::host_waits() - before;
  };
  DeviceHeap heap(1_MiB);
  DeviceBlock device;
  Stream stream("s");
  std::byte plain{};
  EXPECT_EQ(waits_in([&] { device = heap.allocate(64_KiB); }), 1U);
  EXPECT_EQ(waits_in([&] { stream.copy(device.data(), &plain, 1); }), 1U);
  EXPECT_EQ(waits_in([&] {
              stream.run([] { cudaStreamSynchronize(cuda::current_stream()); }).ticket().wait();
            }),
            1U);
  EXPECT_EQ(waits_in([&] { device = DeviceBlock(); }), 1U);
}

TEST(CudaStream, ATicketSaysWhenTheDeviceReachedTheCopy) {
  Stream stream("copies");
  std::latch gate(1);
  const Event first = launch(stream, [&] { gate.wait(); });
  const std::array<std::byte, 64> from{};
  std::array<std::byte, 64> to{};
  const Event copy = stream.copy(to.data(), from.data(), from.size());
  gate.count_down();
  copy.ticket().wait();
  EXPECT_GT(first.ticket().began(), 0);
  EXPECT_LT(first.ticket().began(), first.ticket().ended());
  EXPECT_GE(copy.ticket().began(), first.ticket().ended());
  EXPECT_GE(copy.ticket().ended(), copy.ticket().began());
  EXPECT_LE(copy.ticket().ended(), now_ns());
}

TEST(CudaStream, MeasuresByTheDevicesClock) {
  const emulated::On machine({});
  Stream stream("s");
  launch(stream, [] { emulated::set_clock(1'000'000'000); });
  const Event begin = stream.record();
  launch(stream, [] { emulated::set_clock(3'500'000'000); });
  const Event end = stream.record();
  end.ticket().wait();
  EXPECT_DOUBLE_EQ(seconds_between(begin, end), 2.5);
}

TEST(CudaStream, AWorkKnowsItsStreamAndNothingElseHasOne) {
  Stream a("a");
  Stream b("b");
  cudaStream_t in_a = nullptr;
  cudaStream_t in_b = nullptr;
  cudaStream_t in_a_again = nullptr;
  a.run([&] {
    in_a = cuda::current_stream();
    b.run([&] { in_b = cuda::current_stream(); });
    in_a_again = cuda::current_stream();
  });
  EXPECT_NE(in_a, nullptr);
  EXPECT_NE(in_a, in_b);
  EXPECT_EQ(in_a, in_a_again);
  expect_error(Errc::kLogic, {"outside"}, [] { cuda::current_stream(); });
}

TEST(CudaStream, AWorkMayEnqueueOnItsOwnStream) {
  std::atomic<int> ran{0};
  Stream stream("s");
  stream.run([&] { launch(stream, [&] { ++ran; }); }).ticket().wait();
  EXPECT_EQ(ran, 1);
}

TEST(CudaStream, ALaunchThatIsRefusedFailsItsWork) {
  Stream stream("compute");
  const Event work = stream.run([] { emulated::refuse_launch(cudaErrorInvalidConfiguration); });
  expect_error(Errc::kDevice, {"compute", "cudaErrorInvalidConfiguration"},
               [&] { work.ticket().wait(); });
  Stream other("other");  // it is forgotten there
  other.run([] {}).ticket().wait();
}

TEST(CudaStream, WhatBreaksTheDeviceFailsAllThatComesAfterIt) {
  const emulated::On machine({});
  std::atomic<bool> ran{false};
  Stream a("a");
  Stream b("b");
  const Event before = launch(a, [] {});
  before.ticket().wait();
  const Event bad = launch(a, [] { emulated::break_device(cudaErrorIllegalAddress); });
  const Event next = launch(a, [&] { ran = true; });
  b.wait(next);
  const Event beside = launch(b, [&] { ran = true; });
  for (const Event& event : {bad, next, beside}) {
    expect_error(Errc::kDevice, {"cudaErrorIllegalAddress"}, [&] { event.ticket().wait(); });
  }
  EXPECT_FALSE(ran);
  before.ticket().wait();  // that one had ended
  expect_error(Errc::kDevice, {"cudaErrorIllegalAddress"},
               [&] { a.run([&] { ran = true; }).ticket().wait(); });
  EXPECT_FALSE(ran);
}

TEST(CudaStream, NamesWhatFailingMemoryIsLookedAtWith) {
  const emulated::On machine({});
  Stream stream("s");
  const Event bad = launch(stream, [] { emulated::break_device(cudaErrorECCUncorrectable); });
  expect_error(Errc::kDevice, {"cudaErrorECCUncorrectable", "nvidia-smi -q -d ECC"},
               [&] { bad.ticket().wait(); });
}

TEST(CudaStream, AFailedStreamStillComesAfterWhatItWaitsFor) {
  std::latch gate(1);
  Stream a("a");
  Stream b("b");
  b.run([] { throw Error(Errc::kDevice, "b fails first"); });
  b.wait(launch(a, [&] { gate.wait(); }));
  const Event after = b.run([] {});
  EXPECT_FALSE(after.done());
  gate.count_down();
  expect_error(Errc::kDevice, {"b fails first"}, [&] { after.ticket().wait(); });
}

TEST(CudaStream, AWorkThatThrowsEndsAfterWhatItLaunched) {
  std::latch gate(1);
  Stream stream("s");
  const Event work = stream.run([&] {
    emulated::launch(cuda::current_stream(), [&] { gate.wait(); });
    throw Error(Errc::kDevice, "half way");
  });
  EXPECT_FALSE(work.done());
  gate.count_down();
  expect_error(Errc::kDevice, {"half way"}, [&] { work.ticket().wait(); });
}

/// Enqueues a kernel when it is dropped: two seconds pass in it.
struct LaunchesWhenDropped {
  cudaStream_t stream = nullptr;
  ~LaunchesWhenDropped() {
    emulated::launch(stream, [] { emulated::set_clock(3'000'000'000); });
  }
};

TEST(CudaStream, DropsWhatAWorkHoldsBeforeItsEventIsReached) {
  for (const bool failed : {false, true}) {
    const emulated::On machine({});
    emulated::set_clock(1'000'000'000);
    Stream stream("s");
    auto held = std::make_shared<LaunchesWhenDropped>();
    stream.run([&] { held->stream = cuda::current_stream(); });
    if (failed) stream.run([] { throw Error(Errc::kDevice, "what comes later is skipped"); });
    const Event before = stream.record();
    const Event event = stream.run([held = std::move(held)] {});
    event.ticket().wait_error();
    EXPECT_DOUBLE_EQ(seconds_between(before, event), 2.0) << (failed ? "skipped" : "run");
  }
}

}  // namespace
}  // namespace sluice::gpu
