#include "engine/memory/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "engine/memory/resident.h"
#include "tests/support/errors.h"

namespace sluice::memory {
namespace {

using prefetch::MemoryTag;
using prefetch::Tier;
using test::error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Ledger, CountsByTierAndClass) {
  Ledger ledger({8_GiB, 64_GiB, 0});
  ledger.reserve(Tier::kCpu, MemoryTag::kParam, 3_GiB);
  ledger.reserve(Tier::kCpu, MemoryTag::kState, 5_GiB);
  ledger.reserve(Tier::kCpu, MemoryTag::kState, 1_GiB);
  ledger.reserve(Tier::kGpu, MemoryTag::kParam, 2_GiB);
  EXPECT_EQ(ledger.used(Tier::kCpu, MemoryTag::kState), 6_GiB);
  EXPECT_EQ(ledger.used(Tier::kCpu), 9_GiB);
  EXPECT_EQ(ledger.used(Tier::kGpu), 2_GiB);
  EXPECT_EQ(ledger.used(Tier::kNvme), 0U);
  EXPECT_EQ(ledger.limit(Tier::kCpu), 64_GiB);
}

TEST(Ledger, GivesTheLastByteAndNotOneMore) {
  Ledger ledger({8_GiB, 0, 0});
  ledger.reserve(Tier::kGpu, MemoryTag::kWorkspace, 8_GiB);
  EXPECT_EQ(error_of([&] { ledger.reserve(Tier::kGpu, MemoryTag::kWorkspace, 1); }).code,
            Errc::kBudget);
}

TEST(Ledger, RefusalSaysAskedFreeAndWhatToChangeAndKeepsTheNumbers) {
  Ledger ledger({0, 64_GiB, 0});
  ledger.reserve(Tier::kCpu, MemoryTag::kParam, 62_GiB);
  const Error error = error_of([&] { ledger.reserve(Tier::kCpu, MemoryTag::kState, 4_GiB); });
  EXPECT_EQ(error.code, Errc::kBudget);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("cpu tier: asked 4.0 GiB for optimizer state"),
                    HasSubstr("2.0 GiB free of 64.0 GiB"), HasSubstr("raise tiers.cpu.limit")));
  EXPECT_EQ(ledger.used(Tier::kCpu), 62_GiB);
  EXPECT_EQ(ledger.used(Tier::kCpu, MemoryTag::kState), 0U);
  ledger.reserve(Tier::kCpu, MemoryTag::kState, 2_GiB);
}

TEST(Ledger, RefusesAnAskThatWouldWrapAround) {
  Ledger ledger({0, 64_GiB, 0});
  ledger.reserve(Tier::kCpu, MemoryTag::kParam, 1_GiB);
  EXPECT_EQ(error_of([&] { ledger.reserve(Tier::kCpu, MemoryTag::kState, ~Bytes{0}); }).code,
            Errc::kBudget);
}

TEST(Ledger, TableHasALinePerTierInUseWithItsClasses) {
  Ledger ledger({8_GiB, 64_GiB, 1_GiB});
  EXPECT_EQ(ledger.table(), "");
  ledger.reserve(Tier::kCpu, MemoryTag::kState, 34_GiB);
  ledger.reserve(Tier::kCpu, MemoryTag::kParam, 15_GiB);
  ledger.reserve(Tier::kGpu, MemoryTag::kWorkspace, 512_MiB);
  EXPECT_EQ(ledger.table(),
            "gpu  512.0 MiB of 8.0 GiB: workspace 512.0 MiB\n"
            "cpu  49.0 GiB of 64.0 GiB: parameters 15.0 GiB, optimizer state 34.0 GiB");
}

TEST(Ledger, KeepsTheHighWaterMarksOfItsClasses) {
  Ledger ledger({8_GiB, 64_GiB, 0});
  const prefetch::Pools pools = {{"large", Tier::kGpu, 4_KiB, 8},
                                 {"small", Tier::kGpu, 1_KiB, 4},
                                 {"workspace", Tier::kGpu, 64_KiB, 1}};
  const std::vector<MemoryTag> tags = {MemoryTag::kParam, MemoryTag::kParam, MemoryTag::kWorkspace};
  for (std::size_t i = 0; i < pools.size(); ++i) {
    ledger.reserve(pools[i].tier, tags[i], pools[i].slot * pools[i].slots);
  }
  ledger.set_peaks(pools, tags, {8, 4, 1});
  ledger.set_peaks(pools, tags, {5, 2, 1});
  ledger.set_peak(Tier::kGpu, MemoryTag::kWorkspace, 48_KiB);
  const auto entries = ledger.entries();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].tag, MemoryTag::kParam);
  EXPECT_EQ(entries[0].reserved, 36_KiB);
  EXPECT_EQ(entries[0].peak, 22_KiB);
  EXPECT_EQ(entries[1].reserved, 64_KiB);
  EXPECT_EQ(entries[1].peak, 48_KiB);
  EXPECT_THAT(ledger.peak_table(),
              AllOf(HasSubstr("gpu  parameters           36.0 KiB      22.0 KiB"),
                    HasSubstr("gpu  workspace            64.0 KiB      48.0 KiB")));
}

TEST(PeakResident, IsAtLeastWhatThisTestHasTouched) {
  const Bytes before = peak_resident().value_or(0);
  std::vector<char> touched(64_MiB, 1);
  EXPECT_GT(peak_resident().value_or(0), touched.size());
  EXPECT_GE(peak_resident().value_or(0), before);
}

}  // namespace
}  // namespace sluice::memory
