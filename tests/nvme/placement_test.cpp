#include "nvme/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tests/support/errors.h"

namespace sluice::nvme {
namespace {

using test::error_of;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(ShareCapacity, IsEvenWhereThereIsRoom) {
  EXPECT_THAT(share_capacity({{"a", 1, 1_GiB}, {"b", 2, 4_GiB}}, 1_GiB),
              ElementsAre(512_MiB, 512_MiB));
}

TEST(ShareCapacity, ASmallDriveGivesItsRestToTheOthers) {
  EXPECT_THAT(share_capacity({{"a", 1, 4_GiB}, {"b", 2, 100_MiB}, {"c", 3, 4_GiB}}, 1124_MiB),
              ElementsAre(512_MiB, 100_MiB, 512_MiB));
}

TEST(ShareCapacity, FoldersOfOneDriveDoNotCountItsSpaceTwice) {
  const Error error = error_of([] {
    share_capacity({{"a", 1, 1_GiB}, {"b", 1, 1_GiB}}, 1_GiB + 4_KiB);
  });
  EXPECT_EQ(error.code, Errc::kBudget);
  EXPECT_THAT(share_capacity({{"a", 1, 1_GiB}, {"b", 1, 1_GiB}}, 1_GiB),
              ElementsAre(512_MiB, 512_MiB));
}

TEST(ShareCapacity, ARefusalNamesNeedFreeAndFolders) {
  const std::string text = error_of([] {
                             share_capacity({{"/x", 1, 1_GiB}, {"/y", 2, 2_GiB}}, 5_GiB);
                           }).what();
  EXPECT_THAT(text, HasSubstr("needs 5.0 GiB, 3.0 GiB free"));
  EXPECT_THAT(text, HasSubstr("/x has 1.0 GiB"));
  EXPECT_THAT(text, HasSubstr("/y has 2.0 GiB"));
}

TEST(ShareCapacity, TheLastByteFits) {
  for (Bytes odd = 0; odd < 6; ++odd) {
    const std::vector<Bytes> shares = share_capacity(
        {{"a", 1, 5 * 4_KiB}, {"b", 2, 3 * 4_KiB}, {"c", 3, 9 * 4_KiB}}, 17 * 4_KiB - odd);
    EXPECT_THAT(shares, ElementsAre(5 * 4_KiB, 3 * 4_KiB, 9 * 4_KiB));
  }
}

TEST(ShareCapacity, AFasterDriveGetsMore) {
  EXPECT_THAT(share_capacity({{"a", 1, 1024_GiB, 150.0}, {"b", 2, 1024_GiB, 450.0}}, 4_GiB),
              ElementsAre(1_GiB, 3_GiB));
  EXPECT_THAT(share_capacity({{"a", 1, 1024_GiB, 150.0}, {"b", 2, 1_GiB, 450.0}}, 4_GiB),
              ElementsAre(3_GiB, 1_GiB))
      << "as much as it has room for";
}

/// Every byte of the shares is in the line once, whatever they are.
void expect_complete(const std::vector<Bytes>& shares) {
  const Stripes stripes(shares);
  std::set<std::pair<std::size_t, Bytes>> seen;
  ASSERT_EQ(stripes.bytes(), std::accumulate(shares.begin(), shares.end(), Bytes{0}));
  for (Bytes at = 0; at < stripes.bytes(); at += kAlignment) {
    const std::vector<Part> parts = stripes.slice(at, kAlignment);
    ASSERT_EQ(parts.size(), 1U);
    ASSERT_EQ(parts[0].bytes, kAlignment);
    ASSERT_LE(parts[0].offset + kAlignment, shares[parts[0].path]);
    ASSERT_TRUE(seen.insert({parts[0].path, parts[0].offset}).second) << at;
  }
}

TEST(Stripes, HoldEveryByteOfTheSharesOnce) {
  expect_complete({4_KiB});
  expect_complete({96_KiB, 96_KiB});
  expect_complete({64_MiB + 12_KiB, 64_MiB + 12_KiB});
  expect_complete({20_MiB, 60_MiB});
  expect_complete({7 * 4_KiB, 0, 1000 * 4_KiB, 13 * 4_KiB});
  expect_complete({33_MiB, 47_MiB + 4_KiB, 5_MiB});
}

/// How much of a stretch lies on each path.
std::vector<Bytes> on_paths(const Stripes& stripes, std::size_t paths, Bytes begin, Bytes n) {
  std::vector<Bytes> bytes(paths, 0);
  for (const Part& part : stripes.slice(begin, n)) bytes[part.path] += part.bytes;
  return bytes;
}

TEST(Stripes, AnyLongStretchIsSharedAsTheWholeIs) {
  const std::vector<std::vector<Bytes>> all = {
      {10_GiB, 10_GiB}, {1_GiB, 3_GiB}, {4_GiB, 4_GiB, 4_GiB, 4_GiB}, {5_GiB, 9_GiB, 2_GiB}};
  for (const auto& shares : all) {
    const Stripes stripes(shares);
    const Bytes round = 64 * Stripes::kUnit;
    for (Bytes begin = 0; begin + round < stripes.bytes(); begin += 5 * round + 12_KiB) {
      const auto bytes = on_paths(stripes, shares.size(), begin, round);
      for (std::size_t path = 0; path < shares.size(); ++path) {
        const double share =
            static_cast<double>(shares[path]) / static_cast<double>(stripes.bytes());
        EXPECT_NEAR(static_cast<double>(bytes[path]) / static_cast<double>(round), share, 0.04);
      }
    }
  }
}

/// Two drives of 150 and 450 MB/s: while one does a turn the other does three.
TEST(Stripes, TurnsAreSpreadEvenly) {
  const Stripes stripes({1_GiB, 3_GiB});
  std::vector<std::size_t> turns;
  for (Bytes at = 0; at < 8 * Stripes::kUnit; at += Stripes::kUnit) {
    turns.push_back(stripes.slice(at, Stripes::kUnit).at(0).path);
  }
  EXPECT_EQ(std::count(turns.begin(), turns.begin() + 4, 0U), 1);
  EXPECT_EQ(std::count(turns.begin() + 4, turns.end(), 0U), 1);
}

TEST(Stripes, OnePathIsOnePart) {
  const Stripes stripes({1_GiB});
  EXPECT_EQ(stripes.slice(5_MiB, 900_MiB).size(), 1U);
}

TEST(Stripes, ASliceGoesOnWhereTheOneBeforeEnded) {
  const Stripes stripes({40_MiB, 24_MiB});
  const std::vector<Part> whole = stripes.slice(0, stripes.bytes());
  Bytes at = 0;
  for (const Part& part : whole) {
    const std::vector<Part> again = stripes.slice(at, part.bytes);
    ASSERT_EQ(again.size(), 1U);
    EXPECT_EQ(again[0].path, part.path);
    EXPECT_EQ(again[0].offset, part.offset);
    at += part.bytes;
  }
  EXPECT_TRUE(stripes.slice(stripes.bytes(), 0).empty());
}

}  // namespace
}  // namespace sluice::nvme
