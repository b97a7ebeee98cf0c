// What the CUDA backend adds to slot_memory_test, which runs on the emulated runtime too.
#include "engine/memory/slot_memory.h"

#include <gtest/gtest.h>

#include "tests/gpu/cuda/emulated_runtime.h"

namespace sluice::memory {
namespace {

using prefetch::MemoryTag;
using prefetch::Tier;

TEST(CudaSlotMemory, PinsAllPoolsOfTheHostWhenToldTo) {
  const prefetch::Pools pools = {{"act", Tier::kGpu, 4_KiB, 5},
                                 {"none", Tier::kCpu, 4_KiB, 0},
                                 {"gradients", Tier::kCpu, 8_KiB, 3},
                                 {"state", Tier::kCpu, 4_KiB, 2}};
  const std::vector<MemoryTag> tags(pools.size(), MemoryTag::kWorkspace);
  Ledger ledger({20_KiB, 32_KiB, 0});
  SlotMemory memory(pools, tags, ledger, nullptr);
  EXPECT_EQ(gpu::emulated::registered(), 0U);
  memory.pin();
  EXPECT_EQ(gpu::emulated::registered(), 32_KiB);
}

TEST(CudaSlotMemory, AllPoolsOfTheDeviceAreOneAllocation) {
  const prefetch::Pools pools = {{"param", Tier::kGpu, 8_KiB, 3},
                                 {"act", Tier::kGpu, 4_KiB, 5},
                                 {"none", Tier::kGpu, 4_KiB, 0},
                                 {"host", Tier::kCpu, 4_KiB, 1},
                                 {"workspace", Tier::kGpu, 12_KiB, 1}};
  const std::vector<MemoryTag> tags(pools.size(), MemoryTag::kWorkspace);
  Ledger ledger({56_KiB, 4_KiB, 0});
  {
    const SlotMemory memory(pools, tags, ledger, nullptr);
    EXPECT_EQ(gpu::emulated::allocations(), 1U);
  }
  EXPECT_EQ(gpu::emulated::allocations(), 0U);
}

}  // namespace
}  // namespace sluice::memory
