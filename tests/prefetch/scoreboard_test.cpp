#include "prefetch/scoreboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "tests/prefetch/boards.h"

namespace sluice::prefetch {
namespace {

using ::testing::ElementsAre;

TEST(Scoreboard, IssuedReleasesOpsOfOtherStreamsWhichThenWaitForIt) {
  Writing w;
  const BufferId x = w.control();
  w.op(kFirst, {}, {x});
  w.op(kSecond, {x}, {});
  auto board = board_with(w, {}, {kStream, kStream});
  board.append(w.done());
  const OpRef writer = must_start(board, kFirst);
  EXPECT_FALSE(board.has_next(kSecond));
  board.issued(writer);
  const OpRef reader = must_start(board, kSecond);
  EXPECT_THAT(board.stream_waits(reader), ElementsAre(writer));
  board.completed(writer);
  EXPECT_TRUE(board.stream_waits(reader).empty());
}

TEST(Scoreboard, NothingWaitsForWhatIsDoneInAProgramThatIsNot) {
  auto residents = std::make_shared<Residents>();
  const BufferId x = residents->buffer({});
  residents->seal();
  Writing before(residents), after(residents);
  before.op(kFirst, {}, {x});
  before.op(kFirst, {}, {});
  after.op(kSecond, {x}, {});
  auto board = board_with(before, {}, {kHost, kHost});
  board.append(before.done());
  board.completed(must_start(board, kFirst));
  board.append(after.done());
  EXPECT_EQ(board.in_flight(), 2U);
  EXPECT_TRUE(board.has_next(kSecond));
}

TEST(Scoreboard, OnlyCompletedReleasesHostLanes) {
  Writing w;
  const BufferId x = w.control();
  w.op(kFirst, {}, {x});
  w.op(kSecond, {x}, {});
  auto board = board_with(w, {}, {kStream, kHost});
  board.append(w.done());
  const OpRef writer = must_start(board, kFirst);
  board.issued(writer);
  EXPECT_FALSE(board.has_next(kSecond));
  board.completed(writer);
  EXPECT_TRUE(board.has_next(kSecond));
}

TEST(Scoreboard, AStreamWaitsForHostOpsUntilTheyAreCompleted) {
  Writing w;
  const BufferId x = w.control();
  w.op(kFirst, {}, {x});
  w.op(kSecond, {x}, {});
  auto board = board_with(w, {}, {kHost, kStream});
  board.append(w.done());
  const OpRef writer = must_start(board, kFirst);
  EXPECT_FALSE(board.has_next(kSecond));
  board.completed(writer);
  EXPECT_TRUE(board.stream_waits(must_start(board, kSecond)).empty());
}

TEST(Scoreboard, AStreamTakesItsNextOpWhenTheLastOneIsIssuedAHostLaneWhenItIsCompleted) {
  Writing w;
  for (const LaneId lane : {kFirst, kFirst, kSecond, kSecond}) w.op(lane, {}, {});
  auto board = board_with(w, {}, {kStream, kHost});
  board.append(w.done());
  const OpRef on_stream = must_start(board, kFirst);
  EXPECT_FALSE(board.has_next(kFirst));
  board.issued(on_stream);
  EXPECT_TRUE(board.has_next(kFirst));
  const OpRef on_host = must_start(board, kSecond);
  EXPECT_FALSE(board.has_next(kSecond));
  board.completed(on_host);
  EXPECT_TRUE(board.has_next(kSecond));
}

TEST(Scoreboard, WidthIsHowManyOpsAHostLaneRuns) {
  Writing w;
  for (int i = 0; i < 3; ++i) w.op(kFirst, {}, {});
  auto board = board_with(w, {}, {{"wide", 2, Issue::kOldestReady}});
  board.append(w.done());
  must_start(board, kFirst);
  must_start(board, kFirst);
  EXPECT_FALSE(board.has_next(kFirst));
}

TEST(Scoreboard, EachPoolGrantsInProgramOrderAndPoolsDoNotWaitForEachOther) {
  Writing w;
  const BufferId a = w.buffer(0), b = w.buffer(0), c = w.buffer(1), d = w.buffer(0);
  w.op(0, {}, {a});
  w.op(1, {}, {b});
  w.op(2, {}, {c});
  w.op(3, {}, {d});
  auto board = board_with(w, {pool_of(1), pool_of(1)}, {kHost, kHost, kHost, kHost});
  board.append(w.done());
  EXPECT_FALSE(board.has_next(1));  // the one slot is a's
  EXPECT_FALSE(board.has_next(3));
  EXPECT_TRUE(board.has_next(2));  // another pool
  const auto freed = board.completed(must_start(board, 0));
  ASSERT_EQ(freed.size(), 1U);
  EXPECT_EQ(freed[0].pool, 0U);
  EXPECT_EQ(freed[0].bytes, 4_KiB);
  EXPECT_TRUE(board.has_next(1));
  EXPECT_FALSE(board.has_next(3));  // b comes first
}

TEST(Scoreboard, ASlotIsFreedWhenEveryOpThatNamesAPartIsDone) {
  Writing w;
  const BufferId root = w.buffer();
  const BufferId left = w.part(root, 0, 2_KiB), right = w.part(root, 2_KiB, 2_KiB);
  w.op(0, {}, {left});
  w.op(1, {}, {right});
  auto board = board_with(w, {pool_of(1)}, {kHost, kHost});
  board.append(w.done());
  const OpRef one = must_start(board, 0);
  const OpRef other = must_start(board, 1);  // parts do not depend on each other
  EXPECT_EQ(board.slot(one, left), board.slot(other, right));
  EXPECT_TRUE(board.completed(other).empty());
  EXPECT_EQ(board.free_slots(0), 0U);
  EXPECT_EQ(board.completed(one).size(), 1U);
  EXPECT_EQ(board.free_slots(0), 1U);
}

TEST(Scoreboard, AWriterOfAPartWaitsForTheGrantOfItsRoot) {
  Writing w;
  const BufferId first = w.buffer(), root = w.buffer();
  const BufferId left = w.part(root, 0, 2_KiB), right = w.part(root, 2_KiB, 2_KiB);
  w.op(0, {}, {first});
  w.op(0, {}, {left});
  w.op(1, {}, {right});
  auto board = board_with(w, {pool_of(1)}, {kHost, kHost});
  board.append(w.done());
  EXPECT_FALSE(board.has_next(1));
  board.completed(must_start(board, 0));
  EXPECT_TRUE(board.has_next(1));
}

TEST(Scoreboard, WholeAndPartDependOnEachOther) {
  Writing w;
  const BufferId root = w.buffer();
  const BufferId part = w.part(root, 1_KiB, 1_KiB);
  w.op(0, {}, {root});
  w.op(1, {part}, {});
  w.op(2, {root}, {});
  w.op(3, {}, {part});
  auto board = board_with(w, {pool_of(1)}, {kHost, kHost, kHost, kHost});
  board.append(w.done());
  EXPECT_FALSE(board.has_next(1));
  board.completed(must_start(board, 0));
  const OpRef of_part = must_start(board, 1);
  const OpRef of_whole = must_start(board, 2);
  board.completed(of_part);
  EXPECT_FALSE(board.has_next(3));
  board.completed(of_whole);
  EXPECT_TRUE(board.has_next(3));
}

TEST(Scoreboard, AnOldestReadyLaneOvertakesWhatIsNotReadyAndPrefersTheOldest) {
  Writing w;
  const BufferId x = w.control();
  w.op(kSecond, {}, {x});
  w.op(kFirst, {x}, {});
  w.op(kFirst, {}, {});
  w.op(kFirst, {}, {});
  auto board = board_with(w, {}, {kHost, kHost});
  board.append(w.done());
  const OpRef overtaker = must_start(board, kFirst);
  EXPECT_EQ(overtaker.index, 2U);
  board.completed(must_start(board, kSecond));
  board.completed(overtaker);
  EXPECT_EQ(must_start(board, kFirst).index, 1U);
}

TEST(Scoreboard, AFifoLaneWaitsAtItsHead) {
  Writing w;
  const BufferId x = w.control();
  w.op(kSecond, {}, {x});
  w.op(kFirst, {x}, {});
  w.op(kFirst, {}, {});
  auto board = board_with(w, {}, {kStream, kHost});
  board.append(w.done());
  EXPECT_FALSE(board.has_next(kFirst));
  board.completed(must_start(board, kSecond));
  EXPECT_EQ(must_start(board, kFirst).index, 1U);
}

TEST(Scoreboard, TheNextProgramStartsBeforeTheLastHasDrained) {
  auto residents = std::make_shared<Residents>();
  const BufferId weight0 = residents->buffer({}), weight1 = residents->buffer({});
  residents->seal();
  Writing w(residents);
  w.op(0, {}, {weight0});
  w.op(1, {}, {weight1});
  Writing v(residents);
  v.op(2, {weight0}, {});
  v.op(2, {weight1}, {});
  Scoreboard board(residents, {}, {kHost, kHost, kHost});
  EXPECT_EQ(board.append(w.done()), 0U);
  EXPECT_EQ(board.append(v.done()), 1U);
  board.completed(must_start(board, 0));
  const OpRef early = must_start(board, 2);
  EXPECT_EQ(early, (OpRef{1, 0}));
  board.completed(early);
  EXPECT_FALSE(board.has_next(2));
  EXPECT_EQ(board.in_flight(), 2U);
  board.completed(must_start(board, 1));
  EXPECT_TRUE(board.finished(0));
  board.completed(must_start(board, 2));
  EXPECT_TRUE(board.idle());
}

TEST(Scoreboard, PersistentsHaveTheirSlotsForTheWholeRun) {
  auto residents = std::make_shared<Residents>();
  const BufferId a = residents->buffer({0, 4_KiB, MemoryTag::kState});
  const BufferId b = residents->buffer({0, 4_KiB, MemoryTag::kState});
  residents->seal();
  Writing w(residents);
  const BufferId c = w.buffer();
  w.op(0, {}, {a, b, c});
  Scoreboard board(residents, {pool_of(3)}, {kHost});
  EXPECT_EQ(board.free_slots(0), 1U);
  board.append(w.done());
  const OpRef ref = must_start(board, 0);
  EXPECT_EQ(board.slot(ref, a), 0U);
  EXPECT_EQ(board.slot(ref, b), 1U);
  EXPECT_EQ(board.slot(ref, c), 2U);
  board.completed(ref);
  EXPECT_EQ(board.free_slots(0), 1U);
}

TEST(Scoreboard, BuffersWithoutBytesOrderOpsOfEveryProgramAndHaveNoSlot) {
  auto residents = std::make_shared<Residents>();
  const BufferId kept = residents->buffer({});
  residents->seal();
  Writing first(residents), second(residents);
  const BufferId control = first.control();
  first.op(0, {}, {control});
  first.op(1, {control}, {kept});
  second.op(2, {kept}, {kept});
  Scoreboard board(residents, {pool_of(1)}, {kHost, kHost, kHost});
  board.append(first.done());
  board.append(second.done());
  EXPECT_EQ(board.peak_slots(0), 0U);
  for (const LaneId lane : {0U, 1U, 2U}) {
    for (const LaneId later : {1U, 2U}) EXPECT_EQ(board.has_next(later), later == lane);
    const OpRef op = must_start(board, lane);
    EXPECT_THROW(board.slot(op, kept), Error);
    if (lane == 0) {
      EXPECT_THROW(board.slot(op, control), Error);
    }
    EXPECT_TRUE(board.completed(op).empty());
  }
  EXPECT_TRUE(board.idle());
}

TEST(Scoreboard, StopStartsNothingMoreAndLetsStartedOpsComplete) {
  Writing w;
  w.op(kFirst, {}, {});
  w.op(kFirst, {}, {});
  w.op(kSecond, {}, {});
  auto board = board_with(w, {}, {kStream, kHost});
  board.append(w.done());
  const OpRef started = must_start(board, kFirst);
  board.stop();
  EXPECT_FALSE(board.next(kSecond));
  EXPECT_FALSE(board.idle());
  board.issued(started);
  EXPECT_FALSE(board.next(kFirst));
  board.completed(started);
  EXPECT_TRUE(board.idle());
  EXPECT_FALSE(board.finished(0));
}

TEST(Scoreboard, BreakingTheProtocolThrows) {
  Writing w;
  w.op(kFirst, {}, {});
  w.op(kSecond, {}, {});
  auto board = board_with(w, {}, {kStream, kHost});
  const auto program = w.done();
  board.append(program);
  const OpRef on_stream = must_start(board, kFirst);
  const OpRef on_host = must_start(board, kSecond);
  EXPECT_THROW(board.completed(on_stream), Error);
  EXPECT_THROW(board.issued(on_host), Error);
  board.issued(on_stream);
  EXPECT_THROW(board.issued(on_stream), Error);
  board.completed(on_host);
  EXPECT_THROW(board.completed(on_host), Error);
  EXPECT_THROW(board.op({7, 0}), Error);
  EXPECT_THROW(board.append(Writing(no_residents()).done()), Error);  // another table
  EXPECT_THROW(board.append(std::make_shared<Program>("unsealed", w.residents())), Error);
}

TEST(Scoreboard, AnUncheckedProgramThatDoesNotFitIsSeenToBeStuck) {
  Writing w;
  w.op(kFirst, {}, {w.buffer(), w.buffer()});
  auto board = board_with(w, {pool_of(1)}, {kHost});
  EXPECT_FALSE(board.stuck());
  board.append(w.done());
  EXPECT_TRUE(board.stuck());
  board.stop();
  EXPECT_FALSE(board.stuck());
}

TEST(Scoreboard, AProgramWithoutOpsIsFinishedAtOnce) {
  Writing w;
  auto board = board_with(w, {}, {kHost});
  EXPECT_TRUE(board.finished(board.append(w.done())));
  EXPECT_TRUE(board.idle());
}

}  // namespace
}  // namespace sluice::prefetch
