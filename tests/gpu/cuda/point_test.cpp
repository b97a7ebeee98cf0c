#include "gpu/cuda/point.h"

#include <gtest/gtest.h>

#include "tests/gpu/cuda/emulated_runtime.h"

namespace sluice::gpu::cuda {
namespace {

constexpr Nanos kMs = 1'000'000;

/// Points at chosen times of the device.
class Times : public testing::Test {
 protected:
  Times() { cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking); }
  ~Times() override { cudaStreamDestroy(stream_); }

  Point at(Nanos device_time) {
    emulated::set_clock(device_time);
    Point point = record_point(stream_);
    cudaEventSynchronize(point.get());
    return point;
  }

 private:
  const emulated::On machine_{{}};
  cudaStream_t stream_ = nullptr;
};

TEST_F(Times, AreCountedByTheDevice) {
  EXPECT_DOUBLE_EQ(seconds_between(at(100 * kMs), at(350 * kMs)), 0.25);
}

// The device's clock reads 5 s when ours reads 100 s.
TEST_F(Times, OfWorksThatOneWakeUpTellsOfStandBehindEachOther) {
  DeviceClock clock;
  clock.place(nullptr, at(5000 * kMs), 100'000 * kMs);
  const Nanos woke = 100'030 * kMs;
  const auto a = clock.place(at(5001 * kMs), at(5003 * kMs), woke);
  const auto b = clock.place(at(5004 * kMs), at(5010 * kMs), woke);
  EXPECT_NEAR(double(a.began), 100'001.0 * kMs, 0.01 * kMs);
  EXPECT_NEAR(double(a.ended), 100'003.0 * kMs, 0.01 * kMs);
  EXPECT_NEAR(double(b.began), 100'004.0 * kMs, 0.01 * kMs);
  EXPECT_NEAR(double(b.ended), 100'010.0 * kMs, 0.01 * kMs);
}

TEST_F(Times, NeverComeAfterTheWakeUp) {
  DeviceClock clock;
  clock.place(nullptr, at(0), 100 * kMs);  // woken late
  const auto next = clock.place(at(2 * kMs), at(10 * kMs), 105 * kMs);
  EXPECT_EQ(next.ended, 105 * kMs);
  EXPECT_EQ(next.began, 100 * kMs);  // nor before the end of the one before it
}

TEST_F(Times, FollowOursWhereTheDeviceCountsSlowly) {
  DeviceClock clock;
  clock.place(nullptr, at(0), 0);
  Nanos ours = 0;
  for (int minute = 1; minute <= 600; ++minute) {
    ours = minute * 60'000 * kMs;
    const Nanos devices = ours - ours / 20'000;  // 50 in a million
    EXPECT_EQ(clock.place(nullptr, at(devices), ours).ended, ours);
  }
}

TEST_F(Times, WithoutABeginningIsNone) {
  EXPECT_EQ(DeviceClock().place(nullptr, at(0), kMs).began, 0);
}

}  // namespace
}  // namespace sluice::gpu::cuda
