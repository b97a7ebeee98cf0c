#include "nvme/sums.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <random>
#include <span>
#include <vector>

namespace sluice::nvme {
namespace {

constexpr Bytes kUnit = Sums::kUnit;

std::vector<std::byte> noise(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(n);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::optional<Bytes> bad_unit(const Sums& sums, Bytes begin, std::span<const std::byte> read) {
  const auto bad = sums.differs(begin, read);
  return bad ? std::optional(bad->begin) : std::nullopt;
}

TEST(Sums, AnyFlippedBitOfARecordIsNoticedInItsUnit) {
  Sums sums;
  auto bytes = noise(3 * kUnit + 4096, 1);
  sums.note(8192, bytes);
  EXPECT_EQ(bad_unit(sums, 8192, bytes), std::nullopt);
  std::mt19937 random(2);
  for (int i = 0; i < 200; ++i) {
    const std::size_t at = i == 0 ? 0 : i == 1 ? bytes.size() - 1 : random() % bytes.size();
    const auto bit = std::byte{1} << (random() % 8);
    bytes[at] ^= bit;
    const auto bad = sums.differs(8192, bytes);
    ASSERT_TRUE(bad) << at;
    EXPECT_EQ(bad->begin, 8192 + at / kUnit * kUnit);
    EXPECT_EQ(bad->bytes, at < 3 * kUnit ? kUnit : 4096);
    bytes[at] ^= bit;
  }
}

TEST(Sums, ReadsOfPartsOfSeveralRecordsCheckTheUnitsWithin) {
  Sums sums;
  auto bytes = noise(6 * kUnit, 3);
  const std::span<std::byte> all(bytes);
  sums.note(0, all.first(2 * kUnit));
  sums.note(2 * kUnit, all.subspan(2 * kUnit, 4096));
  sums.note(2 * kUnit + 4096, all.subspan(2 * kUnit + 4096));
  for (const std::size_t at :
       {std::size_t{5}, 2 * kUnit + 5, 2 * kUnit + 4096 + 5, 6 * kUnit - 5}) {
    bytes[at] ^= std::byte{4};
    EXPECT_TRUE(sums.differs(0, bytes)) << at;
    bytes[at] ^= std::byte{4};
  }
  EXPECT_EQ(bad_unit(sums, 0, bytes), std::nullopt);
  // From the second unit on: what is wrong before it is not of this read.
  bytes[5] ^= std::byte{4};
  EXPECT_EQ(bad_unit(sums, kUnit, all.subspan(kUnit)), std::nullopt);
  EXPECT_EQ(bad_unit(sums, 0, all.first(kUnit)), 0U);
}

TEST(Sums, TheLastWriteCounts) {
  Sums sums;
  const auto first = noise(2 * kUnit, 4);
  const auto second = noise(2 * kUnit, 5);
  sums.note(0, first);
  sums.note(0, second);
  EXPECT_EQ(bad_unit(sums, 0, second), std::nullopt);
  EXPECT_EQ(bad_unit(sums, 0, first), 0U);
}

/// Nothing is said of what an overlapping write has changed in part.
TEST(Sums, AWriteForgetsTheRecordsThatItMeets) {
  Sums sums;
  const auto old = noise(4 * kUnit, 6);
  const auto fresh = noise(2 * kUnit, 7);
  sums.note(0, old);
  sums.note(3 * kUnit, fresh);
  EXPECT_EQ(bad_unit(sums, 0, noise(3 * kUnit, 8)), std::nullopt);
  EXPECT_EQ(bad_unit(sums, 3 * kUnit, fresh), std::nullopt);
  EXPECT_EQ(bad_unit(sums, 3 * kUnit, noise(2 * kUnit, 8)), 3 * kUnit);
  sums.note(kUnit, noise(3 * kUnit, 9));  // begins before the record and meets it
  EXPECT_EQ(bad_unit(sums, 4 * kUnit, noise(kUnit, 10)), std::nullopt);
}

}  // namespace
}  // namespace sluice::nvme
