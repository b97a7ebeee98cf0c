#include "engine/bench/pattern.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

namespace sluice::bench {
namespace {

constexpr Bytes kPeriod = 16_KiB;
constexpr Bytes kPatternBytes = 64_KiB;

class PatternTest : public testing::Test {
 protected:
  PatternTest() : memory_(nvme::allocate_aligned(kPeriod)) { pattern_.fill(memory()); }
  std::span<std::byte> memory() { return {memory_.get(), kPeriod}; }

  Pattern pattern_{kPatternBytes, kPeriod, 7};
  nvme::AlignedBytes memory_;
};

TEST_F(PatternTest, WhatWasStampedIsRight) {
  for (const Bytes offset : {Bytes{0}, 2 * kPeriod, kPatternBytes - kPeriod}) {
    pattern_.stamp(memory(), offset);
    EXPECT_EQ(pattern_.first_wrong(memory(), offset), std::nullopt);
  }
}

TEST_F(PatternTest, AnyFlippedBitIsFoundWithItsPlace) {
  pattern_.stamp(memory(), kPeriod);
  for (const Bytes at : {Bytes{16}, Bytes{4095}, 4096 + Bytes{100}, kPeriod - 1}) {
    memory()[at] ^= std::byte{0x10};
    EXPECT_EQ(pattern_.first_wrong(memory(), kPeriod), kPeriod + at);
    memory()[at] ^= std::byte{0x10};
  }
  memory()[kAlignment + 3] ^= std::byte{1};  // in a stamp: its block
  EXPECT_EQ(pattern_.first_wrong(memory(), kPeriod), kPeriod + kAlignment);
}

TEST_F(PatternTest, BytesOfAnotherPlaceAreWrong) {
  pattern_.stamp(memory(), kPeriod);
  pattern_.stamp(memory(), 0);
  EXPECT_EQ(pattern_.first_wrong(memory(), kPeriod), kPeriod);
}

TEST_F(PatternTest, BytesOfAnEarlierWriteAreWrong) {
  pattern_.stamp(memory(), 0);
  const nvme::AlignedBytes old = nvme::allocate_aligned(kPeriod);
  std::memcpy(old.get(), memory().data(), kPeriod);
  pattern_.stamp(memory().first(2 * kAlignment), 0);
  EXPECT_EQ(pattern_.first_wrong({old.get(), kPeriod}, 0), 0U);
  EXPECT_EQ(pattern_.first_wrong(memory(), 0), std::nullopt);
}

TEST_F(PatternTest, NoTwoBlocksAreAlike) {
  std::set<std::string> blocks;
  for (Bytes offset = 0; offset < kPatternBytes; offset += kPeriod) {
    pattern_.stamp(memory(), offset);
    for (Bytes at = 0; at < kPeriod; at += kAlignment) {
      blocks.emplace(reinterpret_cast<const char*>(memory().data()) + at, kAlignment);
    }
  }
  EXPECT_EQ(blocks.size(), kPatternBytes / kAlignment);
}

}  // namespace
}  // namespace sluice::bench
