#include "nvme/speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/clock.h"
#include "tests/support/temp_folder.h"

namespace sluice::nvme {
namespace {

TEST(Speed, OfAPathIsWhatTheLookMovedInItsTimeAndLeavesNothing) {
  const test::TempFolder folder;
  const Nanos begin = now_ns();
  const std::vector<Speed> speeds = look_at({folder / "not/yet"}, {});
  const double look_s = to_seconds(now_ns() - begin);
  ASSERT_EQ(speeds.size(), 1U);
  for (const Rate& rate : {speeds[0].read, speeds[0].write}) {
    EXPECT_GT(rate.alone, static_cast<double>(kLookedAt) / look_s);
    if (rate.together > 0) {
      EXPECT_GE(rate.together, rate.alone);
    }
  }
  EXPECT_TRUE(folder.empty());
}

TEST(Speed, OfBothDirectionsIsThatOfAByteThereAndBack) {
  const Speed drive{{3e9, 6e9}, {2e9, 3e9}};
  EXPECT_DOUBLE_EQ(drive.both(), 2e9);
  const Speed slow{{3e6, 0}, {6e6, 0}};
  EXPECT_DOUBLE_EQ(slow.both(), 2e6);
}

TEST(Speed, OfSeveralPathsCountsEachDriveOnce) {
  const test::TempFolder folder;
  const std::vector<Speed> speeds{{{1, 2}, {3, 4}}, {{10, 20}, {30, 40}}, {{5, 0}, {6, 0}}};
  const Speed one = together({folder / "a", folder / "b"}, speeds);
  EXPECT_DOUBLE_EQ(one.read.together, 2);
  const Speed two = together({folder / "a", folder / "b", "/proc"}, speeds);
  EXPECT_DOUBLE_EQ(two.read.alone, 1 + 5);
  EXPECT_DOUBLE_EQ(two.read.together, 2 + 5);
  EXPECT_DOUBLE_EQ(two.write.together, 4 + 6);
}

}  // namespace
}  // namespace sluice::nvme
