// What only gpu/host can show: addresses of device memory at which nothing may be touched.
#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "gpu/local.h"
#include "gpu/memory.h"

namespace sluice::gpu {
namespace {

TEST(HostReach, WhatIsTheDevicesAloneDiesWhenTheHostTouchesIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  DeviceHeap heap(1_MiB, Reach::kDevice);
  const DeviceBlock block = heap.allocate(3 * kAlignment);
  volatile std::byte* first = block.data();
  volatile std::byte* last = block.data() + block.size() - 1;
  EXPECT_DEATH(*first = std::byte{1}, "");
  EXPECT_DEATH(*last = std::byte{1}, "");
  EXPECT_DEATH([[maybe_unused]] const std::byte read = *first, "");
  local(block.data())[0] = std::byte{1};
  EXPECT_DEATH([[maybe_unused]] const std::byte read = *first, "");
}

TEST(HostReach, LocalFindsEveryByteOfTheBlockFromTheFirstToTheLast) {
  DeviceHeap heap(1_MiB, Reach::kDevice);
  const DeviceBlock a = heap.allocate(3 * kAlignment);
  const DeviceBlock b = heap.allocate(2 * kAlignment);
  for (const DeviceBlock* block : {&a, &b}) {
    std::byte* begin = local(block->data());
    EXPECT_NE(begin, block->data());
    EXPECT_EQ(local(block->data() + 1), begin + 1);
    EXPECT_EQ(local(block->data() + block->size() - 1), begin + block->size() - 1);
    EXPECT_EQ(local(std::span<const float>(reinterpret_cast<float*>(block->data()), 7)).data(),
              reinterpret_cast<float*>(begin));
  }
  *local(a.data()) = std::byte{1};
  *local(b.data()) = std::byte{2};
  EXPECT_EQ(*local(a.data()), std::byte{1}) << "two blocks, two memories";
}

TEST(HostReach, LocalEndsWhereTheBlockEnds) {
  DeviceHeap heap(1_MiB, Reach::kDevice);
  const DeviceBlock block = heap.allocate(kAlignment);
  EXPECT_EQ(local(block.data() - 1), block.data() - 1);
  EXPECT_EQ(local(block.data() + block.size()), block.data() + block.size());
}

TEST(HostReach, ForgetsABlockThatIsGivenBackAndKeepsTheOther) {
  DeviceHeap heap(1_MiB, Reach::kDevice);
  const DeviceBlock kept = heap.allocate(kAlignment);
  std::byte* const where = local(kept.data());
  std::optional<DeviceBlock> block(heap.allocate(kAlignment));
  std::byte* const address = block->data();
  block.reset();
  EXPECT_EQ(local(address), address);
  EXPECT_EQ(local(kept.data()), where);
}

TEST(HostReach, OrdinaryMemoryIsWhereItIs) {
  std::array<std::byte, 8> on_stack{};
  DeviceHeap open(1_MiB);
  const DeviceBlock reached = open.allocate(kAlignment);
  const PinnedSlab pinned(kAlignment);
  DeviceHeap strict(1_MiB, Reach::kDevice);
  const DeviceBlock hidden = strict.allocate(kAlignment);
  for (std::byte* p :
       {on_stack.data(), reached.data(), pinned.data(), static_cast<std::byte*>(nullptr)}) {
    EXPECT_EQ(local(p), p);
  }
}

}  // namespace
}  // namespace sluice::gpu
