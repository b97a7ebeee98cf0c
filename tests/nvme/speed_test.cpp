#include "nvme/speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

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
  EXPECT_GT(speeds[0].overlap, 0);
  EXPECT_LE(speeds[0].overlap, 2);
  EXPECT_TRUE(folder.empty());
}

TEST(Speed, IsLookedAtBesideWhatGoesOnInARunAndNoLonger) {
  const test::TempFolder folder;
  std::atomic<int> times = 0;
  look_at({folder / ""}, {}, 0, [&] { ++times; });
  const int meanwhile = times;
  EXPECT_GT(meanwhile, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(times, meanwhile);
}

TEST(Speed, ThatDoesNotHoldStillIsLookedAtAgainAndTheSteadiestLookCounts) {
  std::vector<Moved> looks;
  std::size_t at = 0;
  const auto seen = [&](std::vector<Moved> of) {
    looks = std::move(of);
    at = 0;
    return steadiest([&] { return looks.at(at++); }).whole;
  };
  EXPECT_EQ(seen({{10, 10, 11.9}, {20, 1, 1}}), 10);
  EXPECT_EQ(at, 1U);
  EXPECT_EQ(seen({{10, 10, 13}, {20, 1, 1}}), 20);
  EXPECT_EQ(at, 2U);
  EXPECT_EQ(seen({{10, 10, 13}, {20, 5, 4}, {30, 2, 1}, {40, 1, 1}}), 20);
  EXPECT_EQ(at, 3U);
  EXPECT_DOUBLE_EQ((Moved{1, 5, 4}).spread(), 0.25);
  EXPECT_DOUBLE_EQ((Moved{1, 4, 5}).spread(), 0.25);
}

/// No two halves are equally long.
TEST(Speed, TellsItsSpreadWhereTheLookWasLongEnough) {
  const test::TempFolder folder;
  EXPECT_GT(look_at({folder / ""}, {}, 9 * kLookedAt).front().spread, 0);
  EXPECT_EQ(look_at({folder / ""}, {}).front().spread, 0);
  EXPECT_EQ(together({{{1, 1}, {1, 1}, 1, 0.5}, {{1, 1}, {1, 1}, 1, 0.3}}).spread, 0.5);
}

TEST(Speed, OfBothDirectionsIsThatOfAByteThereAndBack) {
  const Speed drive{{3e9, 6e9}, {2e9, 3e9}};
  EXPECT_DOUBLE_EQ(drive.both(), 2e9);
  const Speed slow{{3e6, 0}, {6e6, 0}};
  EXPECT_DOUBLE_EQ(slow.both(), 2e6);
  const Speed some{{3e9, 6e9}, {2e9, 3e9}, 1.2};
  EXPECT_DOUBLE_EQ(some.both(), 2.4e9);
  const Speed apart{{3e9, 6e9}, {2e9, 3e9}, 2};
  EXPECT_DOUBLE_EQ(apart.both(), 3e9) << "the slower direction alone";
}

TEST(Speed, OfBothDirectionsIsWhatTheyMovedAtOnce) {
  Speed drive{{3e9, 3e9}, {6e9, 6e9}};
  EXPECT_DOUBLE_EQ(overlap_of(4e9, drive), 1) << "as in turn: 2 GB each in a second";
  for (const double moved : {1.5e9, 4e9, 5e9}) {
    drive.overlap = overlap_of(moved, drive);
    EXPECT_DOUBLE_EQ(2 * drive.both(), moved);
  }
  EXPECT_EQ(overlap_of(0.5e9, drive), 0.25) << "a disturbance";
  EXPECT_EQ(overlap_of(20e9, drive), 2);
}

TEST(Speed, OfSeveralPathsIsTheirSum) {
  const Speed all = together({{{1, 2}, {3, 4}}, {{5, 0}, {6, 0}}});
  EXPECT_DOUBLE_EQ(all.read.alone, 1 + 5);
  EXPECT_DOUBLE_EQ(all.read.together, 2 + 5);
  EXPECT_DOUBLE_EQ(all.write.together, 4 + 6);
  // The second moves three times as much.
  EXPECT_DOUBLE_EQ(together({{{1, 2}, {1, 2}, 1}, {{1, 3}, {1, 3}, 2}}).overlap, 1.75);
}

TEST(Speed, OfADriveIsSharedByItsPaths) {
  const test::TempFolder folder;
  const std::vector<Speed> two = look_at({folder / "a", folder / "b"}, {});
  ASSERT_EQ(two.size(), 2U);
  EXPECT_GT(two[0].read.alone, 0);
  EXPECT_EQ(two[0].read.alone, two[1].read.alone);  // one look, not two alike
  EXPECT_EQ(two[0].read.together, two[1].read.together);
  EXPECT_EQ(two[0].write.alone, two[1].write.alone);
  EXPECT_EQ(two[0].spread, 0);
  // Of all that will be there: half of it would be too little to tell.
  EXPECT_GT(look_at({folder / "a", folder / "b"}, {}, 9 * kLookedAt).front().spread, 0);
}

}  // namespace
}  // namespace sluice::nvme
