#include "gpu/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "gpu/stream.h"
#include "tests/gpu/needs_device.h"

namespace sluice::gpu {
namespace {

using DeviceHeapTest = NeedsDevice;
using DeviceBlockTest = NeedsDevice;

bool aligned(const std::byte* p) {
  return reinterpret_cast<std::uintptr_t>(p) % kAlignment == 0;
}

template <class F>
std::optional<Error> error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  return std::nullopt;
}

TEST_F(DeviceHeapTest, CountsWholePagesAndGivesThemBack) {
  DeviceHeap heap(1_MiB);
  {
    const DeviceBlock a = heap.allocate(1);
    const DeviceBlock b = heap.allocate(8_KiB);
    EXPECT_EQ(a.size(), 1U);
    EXPECT_EQ(heap.used(), 12_KiB);
    EXPECT_TRUE(aligned(a.data()));
    EXPECT_TRUE(aligned(b.data()));
    EXPECT_NE(a.data(), b.data());
  }
  EXPECT_EQ(heap.used(), 0U);
  heap.allocate(1);
  EXPECT_EQ(heap.peak(), 12_KiB);
  EXPECT_EQ(heap.budget(), 1_MiB);
}

TEST_F(DeviceHeapTest, RefusesWhatExceedsTheBudgetAndSaysHowMuchIsFree) {
  DeviceHeap heap(1_MiB);
  const DeviceBlock held = heap.allocate(768_KiB);
  const auto error = error_of([&] { heap.allocate(512_KiB); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, Errc::kBudget);
  EXPECT_THAT(error->what(), testing::AllOf(testing::HasSubstr("asked 512.0 KiB"),
                                            testing::HasSubstr("256.0 KiB free of 1.0 MiB")));
  EXPECT_EQ(heap.used(), 768_KiB);
  EXPECT_EQ(heap.allocate(256_KiB).size(), 256_KiB);
}

TEST_F(DeviceHeapTest, RefusesABlockThatFitsOnlyBeforeItIsRoundedUp) {
  DeviceHeap heap(kAlignment + 100);
  EXPECT_THROW(heap.allocate(kAlignment + 1), Error);
  EXPECT_EQ(heap.allocate(kAlignment).size(), kAlignment);
}

TEST_F(DeviceHeapTest, RefusesAbsurdSizesWithoutLosingCount) {
  DeviceHeap heap(~Bytes{0});
  for (const Bytes n : {~Bytes{0}, ~Bytes{0} - kAlignment, Bytes{1} << 62}) {
    const auto error = error_of([&] { heap.allocate(n); });
    ASSERT_TRUE(error) << n;
    EXPECT_EQ(error->code, Errc::kBudget);
    EXPECT_EQ(heap.used(), 0U);
  }
}

TEST(DeviceHeap, ZeroBytesAreABlockWithoutMemory) {
  DeviceHeap heap(0);
  const DeviceBlock block = heap.allocate(0);
  EXPECT_EQ(block.size(), 0U);
  EXPECT_EQ(heap.used(), 0U);
}

TEST_F(DeviceHeapTest, ABlockMayOutliveItsHeap) {
  std::optional<DeviceHeap> heap(std::in_place, 1_MiB);
  DeviceBlock block = heap->allocate(64_KiB);
  heap.reset();
  block = DeviceBlock();
  EXPECT_EQ(block.data(), nullptr);
}

TEST_F(DeviceBlockTest, MovingOntoABlockGivesTheOldOneBack) {
  DeviceHeap heap(1_MiB);
  DeviceBlock a = heap.allocate(64_KiB);
  DeviceBlock b = heap.allocate(128_KiB);
  const std::byte* kept = b.data();
  a = std::move(b);
  EXPECT_EQ(heap.used(), 128_KiB);
  EXPECT_EQ(a.data(), kept);
  EXPECT_EQ(a.size(), 128_KiB);
}

TEST_F(DeviceHeapTest, NeverExceedsItsBudgetFromSeveralThreads) {
  DeviceHeap heap(16 * kAlignment);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        const auto refused = error_of([&] {
          const DeviceBlock block = heap.allocate(6 * kAlignment);
          EXPECT_LE(heap.used(), heap.budget());
        });
        EXPECT_TRUE(!refused || refused->code == Errc::kBudget);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(heap.used(), 0U);
  EXPECT_GE(heap.peak(), 6 * kAlignment);
  EXPECT_LE(heap.peak(), 12 * kAlignment);
}

TEST(PinnedSlab, IsWritableToTheLastByte) {
  const PinnedSlab slab(3 * kAlignment + 17);
  ASSERT_TRUE(aligned(slab.data()));
  EXPECT_EQ(slab.size(), 3 * kAlignment + 17);
  std::memset(slab.data(), 0x5a, slab.size());
  EXPECT_EQ(slab.data()[slab.size() - 1], std::byte{0x5a});
}

TEST(PinnedSlab, MovesWithItsBytes) {
  PinnedSlab a(kAlignment);
  a.data()[7] = std::byte{42};
  PinnedSlab b;
  b = std::move(a);
  const PinnedSlab c(std::move(b));
  EXPECT_EQ(c.data()[7], std::byte{42});
  EXPECT_EQ(c.size(), kAlignment);
}

/// Bytes of addresses that this process has mapped.
Bytes mapped() {
  std::ifstream statm("/proc/self/statm");
  Bytes pages = 0;
  statm >> pages;
  return pages * static_cast<Bytes>(::sysconf(_SC_PAGESIZE));
}

TEST(PinnedSlab, BeginsOnAHugePageWhenItIsLargeAndGivesAllOfItBack) {
  const Bytes before = mapped();
  for (const Bytes n : {4_MiB, 5_MiB + kAlignment, 64_MiB + 17}) {
    std::vector<PinnedSlab> slabs;  // several, so that none is where the last one ended by luck
    for (int i = 0; i < 4; ++i) {
      const PinnedSlab& slab = slabs.emplace_back(n);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(slab.data()) % 2_MiB, 0U);
      slab.data()[n - 1] = std::byte{1};
    }
  }
  // Four slabs of 64 MiB and what they were cut from; malloc may have kept a little.
  EXPECT_LT(mapped(), before + 1_MiB);
}

TEST(PinnedSlab, RefusesWhatTheSystemHasNot) {
  for (const Bytes n : {~Bytes{0}, Bytes{1} << 62}) {
    const auto error = error_of([&] { const PinnedSlab slab(n); });
    ASSERT_TRUE(error) << n;
    EXPECT_EQ(error->code, Errc::kBudget);
  }
}

}  // namespace
}  // namespace sluice::gpu
