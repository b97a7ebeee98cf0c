#include "nvme/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(Allocator, GoesRoundTheFoldersByRoom) {
  Allocator allocator({"a", "b"}, {64_KiB, 64_KiB});
  std::vector<std::size_t> paths;
  for (int i = 0; i < 4; ++i) paths.push_back(allocator.allocate(8_KiB).parts.at(0).path);
  EXPECT_THAT(paths, ElementsAre(0, 1, 0, 1));
}

TEST(Allocator, ExtentsDoNotOverlapAndFillTheLastByte) {
  // Three equal extents on two folders: the last must be cut, or a third of the space is lost.
  Allocator allocator({"a", "b"}, {96_KiB, 96_KiB});
  std::set<std::pair<std::size_t, Bytes>> grains;
  for (int i = 0; i < 3; ++i) {
    const Extent extent = allocator.allocate(64_KiB);
    for (const Part& part : extent.parts) {
      for (Bytes at = 0; at < part.bytes; at += kAlignment) {
        EXPECT_LE(part.offset + at + kAlignment, 96_KiB);
        EXPECT_TRUE(grains.insert({part.path, part.offset + at}).second);
      }
    }
  }
  EXPECT_EQ(grains.size(), 192_KiB / kAlignment);
  EXPECT_EQ(allocator.free(), 0U);
}

TEST(Allocator, RoundsUpAndRefusesWhatDoesNotFit) {
  Allocator allocator({"/x"}, {16_KiB});
  EXPECT_EQ(allocator.allocate(1).bytes, kAlignment);
  const Error error = error_of([&] { allocator.allocate(12_KiB + 1); });
  EXPECT_EQ(error.code, Errc::kBudget);
  EXPECT_THAT(error.what(), HasSubstr("12.0 KiB free of 16.0 KiB"));
  EXPECT_EQ(error_of([&] { allocator.allocate(~Bytes{0}); }).code, Errc::kBudget);
  EXPECT_EQ(allocator.allocate(12_KiB).bytes, 12_KiB);
}

TEST(Extent, ASliceSpansRuns) {
  const Extent extent{24_KiB, {{0, 4_KiB, 8_KiB}, {1, 0, 12_KiB}, {0, 32_KiB, 4_KiB}}};
  const std::vector<Part> parts = extent.slice(4_KiB, 18_KiB);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].offset, 8_KiB);
  EXPECT_EQ(parts[0].bytes, 4_KiB);
  EXPECT_EQ(parts[1].path, 1U);
  EXPECT_EQ(parts[1].bytes, 12_KiB);
  EXPECT_EQ(parts[2].offset, 32_KiB);
  EXPECT_EQ(parts[2].bytes, 2_KiB);
  EXPECT_TRUE(extent.slice(24_KiB, 0).empty());
}

}  // namespace
}  // namespace sluice::nvme
