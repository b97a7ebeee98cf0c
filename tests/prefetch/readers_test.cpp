/// Who has read a leaf since it was written, as the scoreboard keeps it for the next writer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/prefetch/boards.h"

namespace sluice::prefetch {
namespace {

using ::testing::ElementsAre;

TEST(Readers, AWriteWaitsForReadersOfEarlierPrograms) {
  auto residents = std::make_shared<Residents>();
  const BufferId weight = residents->buffer({});
  residents->seal();
  Scoreboard board(residents, {}, {kHost, kHost});
  const auto append = [&](LaneId lane, std::vector<BufferId> reads, std::vector<BufferId> writes) {
    Writing w(residents);
    w.op(lane, std::move(reads), std::move(writes));
    board.append(w.done());
  };
  append(0, {}, {weight});
  board.completed(must_start(board, 0));
  for (int i = 0; i < 100; ++i) {  // read for ever: the readers that are gone are forgotten
    append(0, {weight}, {});
    if (i < 99) board.completed(must_start(board, 0));
  }
  append(1, {}, {weight});
  EXPECT_FALSE(board.has_next(1));
  board.completed(must_start(board, 0));
  EXPECT_TRUE(board.has_next(1));
}

TEST(Readers, ForgettingFinishedReadersKeepsThoseInFlight) {
  auto residents = std::make_shared<Residents>();
  const BufferId weight = residents->buffer({});
  residents->seal();
  Scoreboard board(residents, {}, {kHost, kHost, kHost});
  Writing first(residents), second(residents), third(residents);
  first.op(0, {weight}, {});
  second.op(1, {weight}, {});
  third.op(0, {weight}, {});
  third.op(2, {}, {weight});
  board.append(first.done());
  board.append(second.done());
  board.completed(must_start(board, 0));
  board.append(third.done());  // the first program is gone, the second still reads
  board.completed(must_start(board, 0));
  EXPECT_FALSE(board.has_next(2));
  board.completed(must_start(board, 1));
  EXPECT_TRUE(board.has_next(2));
}

TEST(Readers, OfOneStreamAreOneEdgeToEachWriterThoseOfAHostLaneOneEach) {
  for (const Lane& readers : {kStream, kHost}) {
    Writing w;
    const BufferId x = w.control();
    w.op(kSecond, {}, {x});
    for (int i = 0; i < 5; ++i) w.op(kFirst, {x}, {});
    w.op(kSecond, {}, {x});
    auto board = board_with(w, {}, {readers, kHost});
    board.append(w.done());
    const std::size_t edges = readers.issue == Issue::kFifo ? 1 : 5;
    EXPECT_EQ(board.edges(),
              edges + edges + 1);  // reads after the write, a write after them and it
  }
}

TEST(Readers, OfAnotherStreamThanTheFirstReaderWaitForTheWriterThemselves) {
  Writing w;
  const BufferId x = w.control();
  w.op(2, {}, {x});
  for (const LaneId lane : {kFirst, kFirst, kSecond}) w.op(lane, {x}, {});
  auto board = board_with(w, {}, {kStream, kStream, kStream});
  board.append(w.done());
  EXPECT_FALSE(board.has_next(kFirst));
  EXPECT_FALSE(board.has_next(kSecond));
  const OpRef writer = must_start(board, 2);
  board.issued(writer);
  for (const LaneId lane : {kFirst, kSecond}) {
    EXPECT_THAT(board.stream_waits(must_start(board, lane)), ElementsAre(writer));
  }
}

TEST(Readers, AWriterOnAThirdStreamWaitsForTheLastReaderOfEachOfTheOthers) {
  Writing w;
  const BufferId x = w.control();
  for (const LaneId lane : {kFirst, kSecond, kFirst, kSecond, kFirst}) w.op(lane, {x}, {});
  w.op(2, {}, {x});
  auto board = board_with(w, {}, {kStream, kStream, kStream});
  board.append(w.done());
  const auto issue = [&](LaneId lane) {
    const OpRef op = must_start(board, lane);
    board.issued(op);
    return op;
  };
  const OpRef a = issue(kFirst), b = issue(kSecond), c = issue(kFirst), d = issue(kSecond);
  EXPECT_FALSE(board.has_next(2));
  const OpRef e = issue(kFirst);
  const OpRef writer = must_start(board, 2);
  EXPECT_THAT(board.stream_waits(writer), ElementsAre(d, e));
  for (const OpRef op : {a, c, e, b}) board.completed(op);
  EXPECT_THAT(board.stream_waits(writer), ElementsAre(d));
  board.completed(d);
  EXPECT_TRUE(board.stream_waits(writer).empty());
}

TEST(Readers, AReaderOnAStreamReplacesOneOfAProgramThatIsGone) {
  auto residents = std::make_shared<Residents>();
  const BufferId weight = residents->buffer({});
  residents->seal();
  Scoreboard board(residents, {}, {kStream, kHost});
  const auto append = [&](LaneId lane, std::vector<BufferId> reads, std::vector<BufferId> writes) {
    Writing w(residents);
    w.op(lane, std::move(reads), std::move(writes));
    board.append(w.done());
  };
  for (int i = 0; i < 3; ++i) {
    append(kFirst, {weight}, {});
    const OpRef reader = must_start(board, kFirst);
    board.issued(reader);
    if (i < 2) board.completed(reader);
  }
  append(kSecond, {}, {weight});
  EXPECT_FALSE(board.has_next(kSecond));
  board.completed({2, 0});
  EXPECT_TRUE(board.has_next(kSecond));
}

}  // namespace
}  // namespace sluice::prefetch
