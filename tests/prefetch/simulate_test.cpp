#include "prefetch/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "tests/prefetch/programs.h"

namespace sluice::prefetch {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

LaneCost one_byte_per_second(std::vector<Demand> demands = {}) {
  LaneCost cost;
  cost.bytes_per_second = 1;
  cost.demands = std::move(demands);
  return cost;
}

Timeline run(const std::vector<std::shared_ptr<const Program>>& stream, const Lanes& lanes,
             const CostModel& cost, const Pools& pools = {}) {
  auto residents = std::shared_ptr<const Residents>(stream.front(), &stream.front()->residents());
  return simulate({residents, pools, lanes}, stream, cost);
}

TEST(Simulate, OpsThatShareADiskTakeTwiceAsLong) {
  Writing w;
  w.op(0, {}, {}, 3);
  w.op(1, {}, {}, 3);
  const CostModel cost{{{"disk"}},
                       {one_byte_per_second({{0, 1.0}}), one_byte_per_second({{0, 1.0}})}};
  const auto line = run({w.done()}, {kHost, kHost}, cost);
  EXPECT_DOUBLE_EQ(line.seconds, 6);
  EXPECT_THAT(line.busy, ElementsAre(DoubleEq(6), DoubleEq(6)));
}

/// A drive that turns from reading to writing: 6 bytes one way and 6 the other, then 3 alone.
TEST(Simulate, AResourceMayGiveSeveralLanesMoreOrLessThanOne) {
  const auto seconds = [](double shared) {
    Writing w;
    w.op(0, {}, {}, 6);
    w.op(0, {}, {}, 3);
    w.op(1, {}, {}, 6);
    LaneCost reads = one_byte_per_second({{0, 1.0}});
    reads.at_once = 1;
    const CostModel cost{{{"disk", shared}}, {reads, one_byte_per_second({{0, 1.0}})}};
    return run({w.done()}, {{"reads", 2, Issue::kOldestReady}, kHost}, cost).seconds;
  };
  EXPECT_DOUBLE_EQ(seconds(1), 6 + 6 + 3);
  EXPECT_DOUBLE_EQ(seconds(0.75), (6 + 6) / 0.75 + 3);
  EXPECT_DOUBLE_EQ(seconds(2), 6 + 3);
}

/// Both directions of a drive get as many bytes, though one of them is three times as fast alone:
/// what that takes of it is 1/4 for each byte per second there, 1/4 / 3 here.
TEST(Simulate, AWeightSaysHowMuchOfAScarceResourceAnOpGets) {
  Writing w;
  w.op(0, {}, {}, 3);
  w.op(1, {}, {}, 6);
  LaneCost slow = one_byte_per_second({{0, 1.0}}), fast = slow;
  fast.bytes_per_second = 3;
  fast.weight = 1.0 / 3;
  const auto line = run({w.done()}, {kHost, kHost}, {{{"disk"}}, {slow, fast}});
  // At 3/4 of a byte per second each, until the first is done.
  EXPECT_DOUBLE_EQ(line.busy[0], 4);
  EXPECT_DOUBLE_EQ(line.seconds, 4 + 1);
}

TEST(Simulate, AWeightDoesNotSlowDownWhoIsNotShortOfAnything) {
  Writing w;
  w.op(0, {}, {}, 3);
  LaneCost cost = one_byte_per_second({{0, 0.5}});
  cost.weight = 0.1;
  EXPECT_DOUBLE_EQ(run({w.done()}, {kHost}, {{{"disk"}}, {cost}}).seconds, 3);
}

/// A long op is under way when a short one comes, which is done first; the long one then goes on.
TEST(Simulate, TheShortestOfALanesOpsMayHaveTheTurn) {
  Writing w;
  const BufferId later = w.control();
  w.op(1, {}, {later}, 1);
  w.op(0, {}, {}, 5);
  w.op(0, {later}, {}, 2);
  LaneCost drive = one_byte_per_second();
  drive.at_once = 1;
  drive.turn = Turn::kShortestFirst;
  const auto line = run({w.done()}, {{"drive", 2, Issue::kOldestReady}, kHost},
                        {{}, {drive, one_byte_per_second()}});
  ASSERT_EQ(line.spans.size(), 3U);
  EXPECT_DOUBLE_EQ(line.spans[1].begin, 1);
  EXPECT_DOUBLE_EQ(line.spans[1].end, 3) << "the short one";
  EXPECT_DOUBLE_EQ(line.spans[2].end, 7) << "the long one, begun at 0";
  EXPECT_DOUBLE_EQ(line.spans[2].begin, 0);
}

/// It comes 1 s after the long one, and then waits for what is under way of it: 1.5 s of work, or
/// what is left.
TEST(Simulate, AShortOpDoesNotOvertakeWhatIsInFlight) {
  const auto ends = [](double in_flight_s, std::uint32_t at_once, double long_s) {
    Writing w;
    const BufferId later = w.control();
    w.op(1, {}, {later}, 1);
    w.op(0, {}, {}, long_s);
    w.op(0, {later}, {}, 2);
    LaneCost drive = one_byte_per_second({{0, 1.0 / at_once}});
    drive.at_once = at_once;
    drive.turn = Turn::kShortestFirst;
    drive.in_flight_s = in_flight_s;
    const auto line = run({w.done()}, {{"drive", 2, Issue::kOldestReady}, kHost},
                          {{{"drive"}}, {drive, one_byte_per_second()}});
    std::vector<double> ends(3);
    for (const auto& span : line.spans) ends[span.op.index] = span.end;
    return ends;
  };
  EXPECT_THAT(ends(1.5, 1, 5), ElementsAre(1, DoubleEq(7), DoubleEq(4.5)));
  EXPECT_THAT(ends(1.5, 1, 2.5), ElementsAre(1, DoubleEq(2.5), DoubleEq(4.5)));
  EXPECT_THAT(ends(9, 1, 5), ElementsAre(1, DoubleEq(5), DoubleEq(7)));
  EXPECT_THAT(ends(1.5, 2, 5), ElementsAre(1, DoubleEq(5), DoubleEq(3))) << "the drive has room";
}

/// Two are worked on at a time, so the second, at 1 s, finds room and is behind nobody; the third,
/// at 2 s, waits for 4 s of the work of both, and then stops the longer one.
TEST(Simulate, AnOpThatFindsRoomKeepsItsTurnFromWhatComesLater) {
  Writing w;
  const BufferId first = w.control(), second = w.control();
  w.op(1, {}, {first}, 1);
  w.op(1, {first}, {second}, 1);
  w.op(0, {}, {}, 9);
  w.op(0, {first}, {}, 5);
  w.op(0, {second}, {}, 1);
  LaneCost drive = one_byte_per_second();
  drive.at_once = 2;
  drive.turn = Turn::kShortestFirst;
  drive.in_flight_s = 4;
  const auto line = run({w.done()}, {{"drive", 3, Issue::kOldestReady}, kHost},
                        {{}, {drive, one_byte_per_second()}});
  std::vector<double> ends(5);
  for (const auto& span : line.spans) ends[span.op.index] = span.end;
  EXPECT_THAT(ends, ElementsAre(1, 2, DoubleEq(10), DoubleEq(6), DoubleEq(5)));
}

TEST(Simulate, OpsOnDisjointResourcesDoNotDisturbEachOther) {
  Writing w;
  w.op(0, {}, {}, 3);
  w.op(1, {}, {}, 2);
  const CostModel cost{{{"disk"}, {"other disk"}},
                       {one_byte_per_second({{0, 1.0}}), one_byte_per_second({{1, 1.0}})}};
  const auto line = run({w.done()}, {kHost, kHost}, cost);
  EXPECT_DOUBLE_EQ(line.seconds, 3);
  EXPECT_THAT(line.busy, ElementsAre(DoubleEq(3), DoubleEq(2)));
}

TEST(Simulate, TheScarcestOfAnOpsResourcesDecidesItsSpeed) {
  Writing w;
  for (const LaneId lane : {0U, 1U, 2U, 3U}) w.op(lane, {}, {}, 12);
  const auto demands =
      std::vector<std::vector<Demand>>{{{0, 1.0}, {1, 1.0}}, {{0, 1.0}}, {{0, 1.0}}, {{1, 1.0}}};
  CostModel cost{{{"disk"}, {"link"}}, {}};
  for (const auto& of_lane : demands) cost.lanes.push_back(one_byte_per_second(of_lane));
  // Three share the disk, so the first goes at a third of its speed, and leaves the last two thirds
  // of the link.
  const auto line = run({w.done()}, {kHost, kHost, kHost, kHost}, cost);
  EXPECT_THAT(line.busy[0], DoubleEq(36));
  EXPECT_THAT(line.busy[3], DoubleEq(18));
}

TEST(Simulate, WhoNeedsNoneOfAResourceIsAsFastAsAlone) {
  Writing w;
  for (const LaneId lane : {0U, 1U, 2U}) w.op(lane, {}, {}, 3);
  CostModel cost{{{"cores"}, {"dram"}}, {}};
  cost.lanes = {one_byte_per_second({{0, 1.0}, {1, 0.5}}), one_byte_per_second({{0, 1.0}}),
                one_byte_per_second({{0, 0.0}, {1, 0.75}})};
  const auto line = run({w.done()}, {kHost, kHost, kHost}, cost);
  EXPECT_THAT(line.busy, ElementsAre(DoubleEq(6), DoubleEq(6), DoubleEq(3)));
}

TEST(Simulate, SharesThatFitTogetherDoNotSlowDown) {
  Writing w;
  w.op(0, {}, {}, 3);
  w.op(1, {}, {}, 3);
  const CostModel cost{{{"dram"}},
                       {one_byte_per_second({{0, 0.5}}), one_byte_per_second({{0, 0.5}})}};
  EXPECT_DOUBLE_EQ(run({w.done()}, {kHost, kHost}, cost).seconds, 3);
}

TEST(Simulate, AnOpSpeedsUpWhenItsCompetitorEnds) {
  Writing w;
  w.op(0, {}, {}, 1);
  w.op(1, {}, {}, 3);
  const CostModel cost{{{"disk"}},
                       {one_byte_per_second({{0, 1.0}}), one_byte_per_second({{0, 1.0}})}};
  EXPECT_DOUBLE_EQ(run({w.done()}, {kHost, kHost}, cost).seconds, 4);
}

TEST(Simulate, CostIsLatencyBytesAndFlops) {
  LaneCost lane;
  lane.bytes_per_second = 2;
  lane.flops_per_second = 4;
  lane.latency_s = 0.5;
  Op op = make_op(0, {}, {}, 3);
  op.cost.flops = 8;
  EXPECT_DOUBLE_EQ((CostModel{{}, {lane}}.seconds(op)), 0.5 + 1.5 + 2);
  EXPECT_DOUBLE_EQ((CostModel{{}, {LaneCost{}}}.seconds(op)), 0);
}

TEST(Simulate, SerialSecondsAddUpEveryOpOfTheStream) {
  Writing w;
  w.op(0, {}, {}, 3);
  w.op(1, {}, {}, 4);
  const auto program = w.done();
  const CostModel cost{{}, {one_byte_per_second(), one_byte_per_second()}};
  const std::vector<std::shared_ptr<const Program>> stream = {program, program};
  EXPECT_DOUBLE_EQ(serial_seconds(stream, cost), 14);
}

TEST(Simulate, AWideLaneRunsOpsTogetherAStreamOneByOne) {
  const CostModel cost{{}, {one_byte_per_second()}};
  Writing w;
  w.op(0, {}, {}, 2);
  w.op(0, {}, {}, 3);
  const auto program = w.done();
  const auto wide = run({program}, {{"wide", 2, Issue::kOldestReady}}, cost);
  EXPECT_DOUBLE_EQ(wide.seconds, 3);
  EXPECT_DOUBLE_EQ(wide.busy[0], 3);
  EXPECT_DOUBLE_EQ(run({program}, {{"stream", 2, Issue::kFifo}}, cost).seconds, 5);
}

/// Of two copies on one stream the first is there after half of the time that both take.
TEST(Simulate, OpsOfALaneThatWorksOnOneAtATimeTakeTurns) {
  Writing w;
  w.op(0, {}, {}, 3);
  w.op(0, {}, {}, 3);
  w.op(1, {}, {}, 4);
  LaneCost copies = one_byte_per_second();
  copies.at_once = 1;
  const Lane two_in_flight{"copies", 2, Issue::kOldestReady};
  const auto line = run({w.done()}, {two_in_flight, kHost}, {{}, {copies, one_byte_per_second()}});
  ASSERT_EQ(line.spans.size(), 3U);
  EXPECT_DOUBLE_EQ(line.spans[0].end, 3);
  EXPECT_DOUBLE_EQ(line.spans[1].end, 4) << "the other lane is as fast as alone";
  EXPECT_DOUBLE_EQ(line.spans[2].begin, 3);
  EXPECT_DOUBLE_EQ(line.spans[2].end, 6);
  EXPECT_THAT(line.busy, ElementsAre(DoubleEq(6), DoubleEq(4)));
}

/// The turn is that of the start: a younger op that could start first is not overtaken.
TEST(Simulate, TurnsFollowTheOrderInWhichOpsWereStarted) {
  Writing w;
  const BufferId late = w.control();
  w.op(1, {}, {late}, 1);
  w.op(0, {late}, {}, 1);  // older, starts when the other two are under way
  w.op(0, {}, {}, 2);
  w.op(0, {}, {}, 2);
  LaneCost copies = one_byte_per_second();
  copies.at_once = 1;
  const Lane wide{"copies", 3, Issue::kOldestReady};
  const auto line = run({w.done()}, {wide, kHost}, {{}, {copies, one_byte_per_second()}});
  ASSERT_EQ(line.spans.size(), 4U);
  EXPECT_EQ(line.spans.back().op.index, 1U);
  EXPECT_DOUBLE_EQ(line.spans.back().begin, 4);
}

TEST(Simulate, AKindOfOpsHasDemandsOfItsOwn) {
  Writing w;
  w.op(0, {}, {}, 3);  // kind 1
  w.op(1, {}, {}, 3);
  CostModel cost{{{"dram"}, {"cores"}},
                 {one_byte_per_second({{1, 1.0}}), one_byte_per_second({{0, 1.0}})}};
  const OpCost of_dram{Rate{1, 0, 0}, {{0, 1.0}}};
  cost.kinds = {std::nullopt, of_dram};
  const auto program = w.done();
  EXPECT_DOUBLE_EQ(run({program}, {kHost, kHost}, cost).seconds, 6);
}

TEST(Simulate, AStreamWaitsOnTheEventOfAnotherStream) {
  Writing w;
  const BufferId x = w.control();
  w.op(0, {}, {x}, 5);
  w.op(1, {x}, {}, 1);
  const auto line =
      run({w.done()}, {kStream, kStream}, {{}, {one_byte_per_second(), one_byte_per_second()}});
  ASSERT_EQ(line.spans.size(), 2U);
  EXPECT_DOUBLE_EQ(line.spans[1].begin, 5);
  EXPECT_DOUBLE_EQ(line.seconds, 6);
}

TEST(Simulate, MoreSlotsFetchAhead) {
  Writing w;
  for (int i = 0; i < 4; ++i) {
    const BufferId weight = w.buffer();
    w.op(0, {}, {weight}, 2);
    w.op(1, {weight}, {}, 2);
  }
  const auto program = w.done();
  const CostModel cost{{}, {one_byte_per_second(), one_byte_per_second()}};
  EXPECT_DOUBLE_EQ(run({program}, {kHost, kStream}, cost, {pool_of(1)}).seconds, 16);
  EXPECT_DOUBLE_EQ(run({program}, {kHost, kStream}, cost, {pool_of(2)}).seconds, 10);
}

TEST(Simulate, TheSecondProgramOverlapsTheFirstAndTheThirdWaitsForIt) {
  Writing w;
  w.op(0, {}, {}, 1);
  w.op(1, {}, {}, 5);
  const auto program = w.done();
  const auto line = run({program, program, program}, {kHost, kHost},
                        {{}, {one_byte_per_second(), one_byte_per_second()}});
  EXPECT_THAT(line.finished, ElementsAre(DoubleEq(5), DoubleEq(10), DoubleEq(15)));
  std::vector<double> begins;
  for (const auto& span : line.spans) {
    if (span.lane == 0) begins.push_back(span.begin);
  }
  EXPECT_THAT(begins, ElementsAre(DoubleEq(0), DoubleEq(1), DoubleEq(5)));
}

TEST(Simulate, ASteadyStepOverlapsTheOneBeforeIt) {
  Writing w;
  const BufferId weights = w.control();
  w.op(0, {}, {weights}, 2);
  w.op(1, {weights}, {}, 5);
  const auto program = w.done();
  const auto step = steady_step({w.residents(), {}, {kHost, kHost}}, program,
                                {{}, {one_byte_per_second(), one_byte_per_second()}});
  EXPECT_DOUBLE_EQ(step.seconds, 5) << "the first step alone takes 7";
  EXPECT_THAT(step.busy, ElementsAre(DoubleEq(2), DoubleEq(5)));
}

/// Two steps at half the speed end together, and so do the two after them.
TEST(Simulate, ASteadyStepIsTheMeanOfTwoThatEndByTurns) {
  Writing w;
  w.op(0, {}, {}, 3);
  const auto program = w.done();
  LaneCost drive;
  drive.bytes_per_second = 1;
  drive.demands = {{0, 1.0}};
  const CostModel cost{{{"drive"}}, {drive}};
  const Lane wide{"drive", 2, Issue::kOldestReady};
  const auto line = run({program, program, program, program}, {wide}, cost);
  ASSERT_THAT(line.finished, ElementsAre(DoubleEq(6), DoubleEq(6), DoubleEq(12), DoubleEq(12)));
  EXPECT_DOUBLE_EQ(steady_step({w.residents(), {}, {wide}}, program, cost).seconds, 3);
}

TEST(Simulate, ARateOfAKindOfOpsReplacesThatOfTheLane) {
  CostModel cost{{}, {one_byte_per_second()}};
  const Op op = make_op(0, {}, {}, 8);  // kind 1
  cost.kinds = {std::nullopt};
  EXPECT_DOUBLE_EQ(cost.seconds(op), 8) << "there is none for this kind";
  cost.kinds = {OpCost{}, OpCost{{4, 0, 0.5}, {}}};
  EXPECT_DOUBLE_EQ(cost.seconds(op), 2.5);
}

TEST(Simulate, ProgramsWithoutOpsAreFinishedWhenTheyAreAppended) {
  Writing w;
  w.op(0, {}, {}, 2);
  const auto empty = Writing(w.residents()).done();
  const auto line = run({w.done(), empty}, {kHost}, {{}, {one_byte_per_second()}});
  EXPECT_THAT(line.finished, ElementsAre(DoubleEq(2), DoubleEq(0)));
}

TEST(Simulate, AnUncheckedProgramThatDoesNotFitIsAnErrorNotAHang) {
  Writing w;
  w.op(0, {}, {w.buffer(), w.buffer()});
  EXPECT_THROW(run({w.done()}, {kHost}, {{}, {one_byte_per_second()}}, {pool_of(1)}), Error);
}

}  // namespace
}  // namespace sluice::prefetch
