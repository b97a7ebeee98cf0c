#include "engine/memory/slot_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/stream.h"
#include "tests/nvme/buffer.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace sluice::memory {
namespace {

using prefetch::MemoryTag;
using prefetch::Tier;
using test::error_of;
using test::TempFolder;
using ::testing::HasSubstr;

const prefetch::Pools kPools = {{"gpu param", Tier::kGpu, 8_KiB, 3},
                                {"cpu grad", Tier::kCpu, 4_KiB, 5},
                                {"cpu none", Tier::kCpu, 4_KiB, 0},
                                {"gpu act", Tier::kGpu, 12_KiB, 2},
                                {"nvme state", Tier::kNvme, 16_KiB, 3}};
const std::vector<MemoryTag> kTags = {MemoryTag::kParam, MemoryTag::kGradient, MemoryTag::kGradient,
                                      MemoryTag::kActivation, MemoryTag::kState};

struct Tiers {
  TempFolder folder;
  nvme::Store store{{folder / "drive"}, 48_KiB, {}, nvme::AllowRam::kYes};
  Ledger ledger{{48_KiB, 20_KiB, 48_KiB}};
};

struct Range {
  std::uintptr_t begin, end;
};

TEST(SlotMemory, SlotsAreAlignedAndShareNoByte) {
  Tiers tiers;
  const SlotMemory memory(kPools, kTags, tiers.ledger, &tiers.store);
  std::vector<Range> ranges;
  for (prefetch::PoolId pool : {0U, 1U, 3U}) {
    for (std::uint32_t slot = 0; slot < kPools[pool].slots; ++slot) {
      const auto begin = reinterpret_cast<std::uintptr_t>(memory.address(pool, slot));
      EXPECT_EQ(begin % kAlignment, 0U);
      ranges.push_back({begin, begin + kPools[pool].slot});
    }
  }
  std::ranges::sort(ranges, {}, &Range::begin);
  for (std::size_t i = 1; i < ranges.size(); ++i) EXPECT_LE(ranges[i - 1].end, ranges[i].begin);
}

TEST(SlotMemory, EverySlotKeepsWhatIsWrittenToAllOfIt) {
  Tiers tiers;
  const SlotMemory memory(kPools, kTags, tiers.ledger, &tiers.store);
  gpu::Stream stream("copies");  // the device's slots are not the host's to write
  const auto marked = [](prefetch::PoolId pool, std::uint32_t slot) {
    return std::vector<std::byte>(kPools[pool].slot, static_cast<std::byte>(pool * 16 + slot + 1));
  };
  for (prefetch::PoolId pool : {0U, 1U, 3U}) {
    for (std::uint32_t slot = 0; slot < kPools[pool].slots; ++slot) {
      const auto bytes = marked(pool, slot);
      stream.copy(memory.address(pool, slot), bytes.data(), bytes.size()).ticket().wait();
    }
  }
  for (prefetch::PoolId pool : {0U, 1U, 3U}) {
    for (std::uint32_t slot = 0; slot < kPools[pool].slots; ++slot) {
      std::vector<std::byte> bytes(kPools[pool].slot);
      stream.copy(bytes.data(), memory.address(pool, slot), bytes.size()).ticket().wait();
      EXPECT_TRUE(bytes == marked(pool, slot)) << "pool " << pool << " slot " << slot;
    }
  }
}

TEST(SlotMemory, SlotsOnNvmeAreExtentsThatKeepTheirOwnBytes) {
  Tiers tiers;
  const SlotMemory memory(kPools, kTags, tiers.ledger, &tiers.store);
  std::vector<test::Buffer> written;
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    EXPECT_EQ(memory.extent(4, slot).bytes, 16_KiB);
    written.push_back(test::Buffer::random(16_KiB, slot));
    memory.store().write(memory.extent(4, slot), 0, written.back().span()).wait();
  }
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    const test::Buffer read(16_KiB);
    memory.store().read(memory.extent(4, slot), 0, read.span()).wait();
    EXPECT_TRUE(read == written[slot]) << slot;
  }
}

TEST(SlotMemory, APoolsBytesAreAllItsSlots) {
  Tiers tiers;
  const SlotMemory memory(kPools, kTags, tiers.ledger, &tiers.store);
  for (prefetch::PoolId pool : {0U, 1U, 3U}) {
    EXPECT_EQ(memory.bytes(pool).data(), memory.address(pool, 0));
    EXPECT_EQ(memory.bytes(pool).size(), kPools[pool].slot * kPools[pool].slots);
  }
  EXPECT_TRUE(memory.bytes(2).empty());  // without slots
  EXPECT_TRUE(memory.bytes(4).empty());  // on nvme
  EXPECT_EQ(error_of([&] { memory.bytes(5); }).code, Errc::kLogic);
}

TEST(SlotMemory, RefusesPoolsThatTheMachineHasNoMemoryFor) {
  const prefetch::Pools pools = {{"cpu grad", Tier::kCpu, Bytes{1} << 40, 1024}};
  Ledger ledger({0, Bytes{1} << 60, 0});
  const Error error =
      error_of([&] { const SlotMemory memory(pools, {MemoryTag::kGradient}, ledger, nullptr); });
  EXPECT_EQ(error.code, Errc::kBudget);
  EXPECT_THAT(error.what(), HasSubstr("available"));
}

TEST(SlotMemory, EntersEveryPoolInTheLedger) {
  Tiers tiers;
  const SlotMemory memory(kPools, kTags, tiers.ledger, &tiers.store);
  EXPECT_EQ(tiers.ledger.used(Tier::kGpu, MemoryTag::kParam), 24_KiB);
  EXPECT_EQ(tiers.ledger.used(Tier::kGpu, MemoryTag::kActivation), 24_KiB);
  EXPECT_EQ(tiers.ledger.used(Tier::kCpu, MemoryTag::kGradient), 20_KiB);
  EXPECT_EQ(tiers.ledger.used(Tier::kNvme, MemoryTag::kState), 48_KiB);
  EXPECT_EQ(tiers.store.free(), 0U);
}

TEST(SlotMemory, RefusesPoolsBeyondATiersLimit) {
  for (const Tier tier : prefetch::kTiers) {
    Tiers tiers;
    prefetch::BytesByTier limits = {48_KiB, 20_KiB, 48_KiB};
    --limits[index(tier)];
    Ledger ledger(limits);
    const Error error =
        error_of([&] { const SlotMemory memory(kPools, kTags, ledger, &tiers.store); });
    EXPECT_EQ(error.code, Errc::kBudget);
    EXPECT_THAT(error.what(), HasSubstr(std::string(name_of(tier)) + " tier: asked"));
  }
}

TEST(SlotMemory, AWrongSlotPoolOrTierIsOurOwnMistake) {
  Tiers tiers;
  const SlotMemory memory(kPools, kTags, tiers.ledger, &tiers.store);
  const auto code_of_address = [&](prefetch::PoolId pool, std::uint32_t slot) {
    return error_of([&] { memory.address(pool, slot); }).code;
  };
  const auto code_of_extent = [&](prefetch::PoolId pool, std::uint32_t slot) {
    return error_of([&] { memory.extent(pool, slot); }).code;
  };
  EXPECT_EQ(code_of_address(0, 3), Errc::kLogic);
  EXPECT_EQ(code_of_address(2, 0), Errc::kLogic);  // a pool without slots
  EXPECT_EQ(code_of_address(4, 0), Errc::kLogic);  // on nvme
  EXPECT_EQ(code_of_address(5, 0), Errc::kLogic);
  EXPECT_EQ(code_of_extent(4, 3), Errc::kLogic);
  EXPECT_EQ(code_of_extent(0, 0), Errc::kLogic);  // in memory
  EXPECT_EQ(code_of_extent(5, 0), Errc::kLogic);
}

TEST(SlotMemory, NeedsAStoreOnlyForPoolsOnNvme) {
  const prefetch::Pools in_memory(kPools.begin(), kPools.begin() + 4);
  Ledger ledger({48_KiB, 20_KiB, 48_KiB});
  EXPECT_NO_THROW(SlotMemory(in_memory, kTags, ledger, nullptr));
  Ledger other({48_KiB, 20_KiB, 48_KiB});
  EXPECT_EQ(error_of([&] { SlotMemory(kPools, kTags, other, nullptr); }).code, Errc::kLogic);
}

}  // namespace
}  // namespace sluice::memory
