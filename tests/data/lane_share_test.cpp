#include "engine/data/lane_share.h"

#include <gtest/gtest.h>

namespace sluice::data {
namespace {

TEST(LaneTable, HasALinePerLaneThatWorkedWithItsThreeLargestReasons) {
  const std::vector<LaneShare> lanes = {
      {"compute",
       0.7,
       {{"h2d", 0.2}, {"memory of gpu w 4.0 KiB", 0.06}, {"start", 0.03}, {"cpu", 0.01}}},
      {"nvme-read", 0, {{"stream", 1}}},
      {"d2h", 0.996, {{"start", 0.004}}},
  };
  EXPECT_EQ(lane_table(lanes),
            "compute    70% | h2d 20%, memory of gpu w 4.0 KiB 6%, start 3%\n"
            "d2h       100%");
  EXPECT_EQ(lane_table({}), "");
}

}  // namespace
}  // namespace sluice::data
