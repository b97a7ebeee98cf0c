#include "gpu/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "tests/gpu/cuda/emulated_runtime.h"
#include "tests/support/errors.h"

namespace sluice::gpu {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string said(const std::function<void()>& action) {
  testing::internal::CaptureStderr();
  action();
  return testing::internal::GetCapturedStderr();
}

TEST(CudaMemory, SaysWhatTheDeviceHasFreeWhenItRefuses) {
  const emulated::On machine({.memory = 8_GiB, .of_others = 7_GiB});
  DeviceHeap heap(4_GiB);
  test::expect_error(Errc::kBudget,
                     {"asked 2.0 GiB", "budget of 4.0 GiB", "1.0 GiB free of 8.0 GiB"},
                     [&] { heap.allocate(2_GiB); });
  EXPECT_EQ(heap.used(), 0U);
}

TEST(CudaMemory, PinsExactlyWhatWasAskedForInPages) {
  const PinnedSlab a(5_MiB + 1);
  {
    const PinnedSlab b(kAlignment);
    EXPECT_EQ(emulated::registered(), 5_MiB + 2 * kAlignment);
  }
  EXPECT_EQ(emulated::registered(), 5_MiB + kAlignment);
}

TEST(CudaMemory, PinsLaterWhatIsToBeTouchedFirst) {
  const Bytes before = emulated::untouched();
  PinnedSlab slab(8 * kAlignment, Pin::kLater);
  EXPECT_EQ(emulated::registered(), 0U);
  slab.data()[0] = slab.data()[kAlignment] = std::byte{1};
  slab.pin();
  EXPECT_EQ(emulated::registered(), 8 * kAlignment);
  EXPECT_EQ(emulated::untouched(), before + 6 * kAlignment);
  slab = PinnedSlab(kAlignment, Pin::kLater);
  EXPECT_EQ(emulated::registered(), 0U);
}

TEST(CudaMemory, IsPlainWherePinningIsRefusedAndSaysSoOnce) {
  const emulated::On machine({.registration = cudaErrorMemoryAllocation});
  PinnedSlab slab;
  EXPECT_THAT(said([&] { slab = PinnedSlab(1_MiB); }),
              AllOf(HasSubstr("refused 1.0 MiB more"), HasSubstr("cudaErrorMemoryAllocation"),
                    HasSubstr("ulimit -l"), HasSubstr("WSL")));
  slab.data()[1_MiB - 1] = std::byte{1};
  EXPECT_EQ(emulated::registered(), 0U);
  EXPECT_EQ(said([&] { slab = PinnedSlab(1_MiB); }), "");
}

TEST(CudaMemory, PinsUpToTheLimitAndSaysOnceThatItIsReached) {
  set_pinned_limit(3_MiB);
  PinnedSlab a(2_MiB);
  PinnedSlab b;
  EXPECT_THAT(said([&] { b = PinnedSlab(2_MiB); }),
              AllOf(HasSubstr("there is 2.0 MiB"), HasSubstr("tiers.cpu.pinned_limit")));
  const PinnedSlab c(1_MiB);
  EXPECT_EQ(emulated::registered(), 3_MiB);
  b = PinnedSlab();  // gives back nothing that it never had
  EXPECT_EQ(said([&] { b = PinnedSlab(1_MiB); }), "");
  EXPECT_EQ(emulated::registered(), 3_MiB);
  a = PinnedSlab();
  b = PinnedSlab(2_MiB);
  EXPECT_EQ(emulated::registered(), 3_MiB);
  set_pinned_limit(1_MiB);  // less than is pinned
  const PinnedSlab d(kAlignment);
  EXPECT_EQ(emulated::registered(), 3_MiB);
  set_pinned_limit(std::numeric_limits<Bytes>::max());
}

}  // namespace
}  // namespace sluice::gpu
