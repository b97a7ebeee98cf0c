#include "engine/schedule/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace sluice::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

/// Room for so many tokens, full of something.
std::vector<std::int64_t> buffer_of(std::int64_t tokens) {
  return std::vector<std::int64_t>(schedule::batch_bytes(tokens) / sizeof(std::int64_t), -7);
}

TEST(Batch, HasRoomForEachOfItsPartsAndNoneOverlap) {
  for (const std::int64_t tokens : {1, 2, 7, 10}) {
    auto buffer = buffer_of(tokens);
    const schedule::Batch batch = schedule::batch_of(buffer);
    EXPECT_EQ(batch.tokens.size(), static_cast<std::size_t>(tokens));
    EXPECT_GE(batch.ends.size(), static_cast<std::size_t>(tokens) + 1);
    std::ranges::fill(batch.tokens, 1);
    std::ranges::fill(batch.targets, 2);
    std::ranges::fill(batch.positions, 3);
    std::ranges::fill(batch.ends, 4);
    batch.program_targets = 5;
    EXPECT_THAT(batch.tokens, Each(1));
    EXPECT_THAT(batch.targets, Each(2));
    EXPECT_THAT(batch.positions, Each(3));
    EXPECT_THAT(batch.ends, Each(4));
    EXPECT_EQ(std::ranges::count(buffer, -7), 0);
  }
}

TEST(Batch, EndsDocumentsWhereTheNextOneOrARowBegins) {
  auto buffer = buffer_of(10);
  const schedule::Batch batch = schedule::batch_of(buffer);
  std::ranges::copy(std::vector{0, 1, 0, 0, 1, 5, 6, 0, 1, 2}, batch.positions.begin());
  schedule::mark_documents(batch, 5);
  EXPECT_THAT(batch.ends.first(6), ElementsAre(0, 2, 3, 5, 7, 10));
  EXPECT_THAT(batch.ends.subspan(6), Each(10));
}

TEST(Batch, HasRoomForADocumentPerToken) {
  auto buffer = buffer_of(4);
  const schedule::Batch batch = schedule::batch_of(buffer);
  std::ranges::fill(batch.positions, 0);
  schedule::mark_documents(batch, 4);
  EXPECT_THAT(batch.ends.first(5), ElementsAre(0, 1, 2, 3, 4));
}

}  // namespace
}  // namespace sluice::testing
