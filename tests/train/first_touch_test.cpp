#include "engine/train/first_touch.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "engine/memory/ledger.h"

namespace sluice::train {
namespace {

using prefetch::MemoryTag;
using prefetch::Tier;

const prefetch::Pools kPools = {{"gpu param", Tier::kGpu, 3_MiB, 3},
                                {"cpu grad", Tier::kCpu, 17_MiB, 2},
                                {"cpu state", Tier::kCpu, 12_KiB, 3},
                                {"cpu none", Tier::kCpu, 4_KiB, 0},
                                {"cpu batch", Tier::kCpu, 1_MiB, 1}};
const std::vector<MemoryTag> kTags = {MemoryTag::kParam, MemoryTag::kGradient, MemoryTag::kState,
                                      MemoryTag::kGradient, MemoryTag::kBatch};

/// How many of the pages have memory behind them.
std::size_t resident(std::span<std::byte> bytes) {
  std::vector<unsigned char> pages(div_ceil(bytes.size(), kAlignment));
  EXPECT_EQ(::mincore(bytes.data(), bytes.size(), pages.data()), 0);
  return static_cast<std::size_t>(
      std::ranges::count_if(pages, [](auto p) { return (p & 1) != 0; }));
}

/// Pages that were made for a thread, or for all.
std::int64_t made_for(int who) {
  rusage usage{};
  EXPECT_EQ(::getrusage(who, &usage), 0);
  return usage.ru_minflt;
}

/// Pages of host pools that other threads than the caller made; a few are theirs whatever they do.
std::int64_t made_by_others(const cpu_adam::Optimizer& optimizer) {
  memory::Ledger ledger({1_GiB, 1_GiB, 0});
  const memory::SlotMemory memory({{"cpu grad", Tier::kCpu, 32_MiB, 2}}, {MemoryTag::kGradient},
                                  ledger, nullptr);
  const auto bytes = memory.bytes(0);
  (void)::madvise(bytes.data(), bytes.size(), MADV_NOHUGEPAGE);  // refused where there are none
  gpu::Stream compute("compute");
  const std::int64_t of_all = made_for(RUSAGE_SELF), of_one = made_for(RUSAGE_THREAD);
  first_touch(memory, optimizer, compute, 1);
  return made_for(RUSAGE_SELF) - of_all - (made_for(RUSAGE_THREAD) - of_one);
}

TEST(FirstTouch, OfHostMemoryIsByTheThreadsOfTheUpdate) {
  const std::int64_t few = static_cast<std::int64_t>(64_MiB) / ::sysconf(_SC_PAGESIZE) / 16;
  // A busy machine may keep a thread waiting, but not each time.
  std::int64_t most = 0;
  const cpu_adam::Optimizer two({.threads = 2});
  for (int i = 0; i < 20 && most <= few; ++i) most = std::max(most, made_by_others(two));
  EXPECT_GT(most, few);
  EXPECT_LT(made_by_others(cpu_adam::Optimizer({.threads = 1})), few);
}

TEST(FirstTouch, MakesEveryPageOfEveryPool) {
  memory::Ledger ledger({1_GiB, 1_GiB, 0});
  const memory::SlotMemory memory(kPools, kTags, ledger, nullptr);
  const cpu_adam::Optimizer optimizer({.threads = 2});
  gpu::Stream compute("compute");
  for (const prefetch::PoolId pool : {0U, 1U, 2U, 4U}) {
    EXPECT_EQ(resident(memory.bytes(pool)), 0U) << pool;
  }
  first_touch(memory, optimizer, compute, 3);
  for (const prefetch::PoolId pool : {0U, 1U, 2U, 4U}) {
    const auto bytes = memory.bytes(pool);
    EXPECT_EQ(resident(bytes), div_ceil(bytes.size(), kAlignment)) << pool;
  }
}

}  // namespace
}  // namespace sluice::train
