#include "tests/train/pairwise.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sluice::train {
namespace {

const std::vector<std::size_t> kValues = {2, 5, 3, 4};

/// Value 0 of axis 0 never meets value 4 of axis 1.
bool fits(const Choice& a, const Choice& b) {
  return !(a == Choice{0, 0} && b == Choice{1, 4});
}

TEST(Pairwise, EveryTwoValuesThatFitMeetInARow) {
  const std::vector<Row> rows = pairwise_cover(kValues, fits);
  const auto together = [&](const Choice& a, const Choice& b) {
    return std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
      return row[a.axis] == a.value && row[b.axis] == b.value;
    });
  };
  for (std::size_t a = 0; a < kValues.size(); ++a) {
    for (std::size_t b = a + 1; b < kValues.size(); ++b) {
      for (std::size_t va = 0; va < kValues[a]; ++va) {
        for (std::size_t vb = 0; vb < kValues[b]; ++vb) {
          EXPECT_EQ(together({a, va}, {b, vb}), fits({a, va}, {b, vb}))
              << "axis " << a << " value " << va << ", axis " << b << " value " << vb;
        }
      }
    }
  }
}

TEST(Pairwise, TakesFewRowsAndTheSameOnesAgain) {
  const std::vector<Row> rows = pairwise_cover(kValues, fits);
  EXPECT_LE(rows.size(), 2U * 5 * 4) << "5 x 4 rows are the least";
  EXPECT_EQ(pairwise_cover(kValues, fits), rows);
}

TEST(Pairwise, LeavesOutTwoValuesBetweenWhichNothingStands) {
  const auto nothing_between = [](const Choice& a, const Choice& b) {
    const bool both = a.axis == 0 && b.axis == 2;
    return !(both && a.value != b.value) && !(a == Choice{1, 0} && b == Choice{2, 0}) &&
           !(a == Choice{1, 1} && b == Choice{0, 0});
  };
  // Axis 0 and axis 2 are equal; with 0, axis 1 has no value left.
  EXPECT_EQ(pairwise_cover({2, 2, 2}, nothing_between), (std::vector<Row>{{1, 0, 1}, {1, 1, 1}}));
}

}  // namespace
}  // namespace sluice::train
