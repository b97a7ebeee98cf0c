#include "engine/executor/lane_time.h"

#include <gtest/gtest.h>

#include <numeric>

namespace sluice::executor {
namespace {

using prefetch::Cause;

const Reasons kReasons(2, 1);

Nanos all(const LaneTime& time) {
  return std::accumulate(time.idle.begin(), time.idle.end(), time.busy);
}

TEST(LaneAccount, BusyIsTheUnionOfTheRunningIntervals) {
  LaneAccount lane(0, kReasons.size());
  lane.begin(10, 10, Reasons::kStream);
  lane.begin(15, 15, Reasons::kStream);
  EXPECT_EQ(lane.look(20).busy, 10);
  lane.end(20);
  lane.end(30);
  EXPECT_EQ(lane.look(100).busy, 20);
  lane.begin(100, 100, Reasons::kStream);
  EXPECT_EQ(lane.look(105).busy, 25);
  lane.end(110);
  EXPECT_EQ(lane.look(200).busy, 30);
}

TEST(LaneAccount, AnIdleStretchIsPutDownToTheOpThatEndsItAndWhatIsLeftToItsStart) {
  LaneAccount lane(100, kReasons.size());
  lane.begin(150, 140, kReasons.lane(1));
  lane.end(160);
  lane.begin(200, 90, kReasons.pool(0));  // it could start long before: all of it is the start
  lane.end(210);
  lane.begin(210, 300, Reasons::kStream);  // no idle time
  lane.end(220);
  const LaneTime& time = lane.look(220);
  EXPECT_EQ(time.idle[kReasons.lane(1)], 40);
  EXPECT_EQ(time.idle[kReasons.pool(0)], 0);
  EXPECT_EQ(time.idle[Reasons::kStart], 10 + 40);
  EXPECT_EQ(time.idle[Reasons::kStream], 0);
  EXPECT_EQ(all(time), 120);
  EXPECT_EQ(time.ended, time.idle);
}

TEST(LaneAccount, ALookCutsAStretchWhoseEndIsNotKnown) {
  LaneAccount lane(0, kReasons.size());
  EXPECT_EQ(all(lane.look(30)), 30);
  lane.begin(50, 40, kReasons.lane(0));
  lane.end(60);
  const LaneTime& time = lane.look(60);
  EXPECT_EQ(time.idle[Reasons::kLater], 30);
  EXPECT_EQ(time.idle[kReasons.lane(0)], 10);
  EXPECT_EQ(time.idle[Reasons::kStart], 10);
  EXPECT_EQ(all(time), 60);
  EXPECT_EQ(time.ended[Reasons::kLater], 0);
  EXPECT_EQ(time.ended[kReasons.lane(0)], 40);
  EXPECT_EQ(time.ended[Reasons::kStart], 10);
}

TEST(LaneAccount, AnOpWhoseBeginIsLearntAfterALookCountsFromThatLook) {
  LaneAccount lane(0, kReasons.size());
  lane.look(30);
  lane.begin(20, 10, kReasons.lane(0));
  lane.end(50);
  EXPECT_EQ(lane.look(50).busy, 20);
  EXPECT_EQ(all(lane.look(50)), 50);
}

TEST(Reasons, EveryCauseHasItsOwn) {
  EXPECT_EQ(kReasons.of({Cause::Kind::kStream, 0}), Reasons::kStream);
  EXPECT_EQ(kReasons.of({Cause::Kind::kLane, 1}), kReasons.lane(1));
  EXPECT_EQ(kReasons.of({Cause::Kind::kMemory, 0}), kReasons.pool(0));
  EXPECT_EQ(kReasons.pool(0), kReasons.lane(1) + 1);
  EXPECT_EQ(kReasons.size(), kReasons.pool(0) + 1);
}

}  // namespace
}  // namespace sluice::executor
