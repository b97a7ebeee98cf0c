/// What an op waited for last, and how much of a pool was in use at most.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "prefetch/scoreboard.h"
#include "tests/prefetch/programs.h"
#include "tests/support/conflict.h"
#include "tests/support/random_tape.h"

namespace sluice::prefetch {
namespace {

constexpr Cause kStreamCause{Cause::Kind::kStream, 0};
constexpr Cause by_lane(LaneId lane) {
  return {Cause::Kind::kLane, lane};
}
constexpr Cause by_pool(PoolId pool) {
  return {Cause::Kind::kMemory, pool};
}

/// Completes what is started, with the time of that moment.
void complete(Scoreboard& board, OpRef ref, std::int64_t now) {
  board.stamp(now);
  board.completed(ref);
}

TEST(Cause, AnOpThatLacksNothingWhenItsProgramComesWaitedForTheStream) {
  Writing w;
  w.op(0, {}, {w.buffer()});
  Scoreboard board(w.residents(), {pool_of(1)}, {kHost});
  board.stamp(7);
  board.append(w.done());
  EXPECT_EQ(board.cause({0, 0}), kStreamCause);
  EXPECT_EQ(board.ready_since({0, 0}), 7);
}

TEST(Cause, TheLastDependencyToBeDoneIsTheCause) {
  Writing w;
  const BufferId x = w.control(), y = w.control();
  w.op(0, {}, {x});
  w.op(1, {}, {y});
  w.op(2, {x, y}, {});
  Scoreboard board(w.residents(), {}, {kHost, kHost, kHost});
  board.append(w.done());
  const OpRef first = *board.next(0), second = *board.next(1);
  complete(board, second, 10);
  complete(board, first, 20);
  EXPECT_EQ(board.cause({0, 2}), by_lane(0));
  EXPECT_EQ(board.ready_since({0, 2}), 20);
}

TEST(Cause, ASlotThatCameAfterTheDependenciesIsTheCause) {
  Writing w;
  const BufferId x = w.control(), held = w.buffer(1), wanted = w.buffer(1);
  w.op(0, {}, {held});
  w.op(1, {}, {x});
  w.op(2, {x}, {wanted});
  Scoreboard board(w.residents(), {pool_of(1), pool_of(1)}, {kHost, kHost, kHost});
  board.append(w.done());
  const OpRef holder = *board.next(0), writer = *board.next(1);
  complete(board, writer, 10);
  complete(board, holder, 20);
  EXPECT_EQ(board.cause({0, 2}), by_pool(1));
  EXPECT_EQ(board.ready_since({0, 2}), 20);
}

TEST(Cause, ADependencyThatWasDoneAfterTheSlotCameIsTheCause) {
  Writing w;
  const BufferId x = w.control(), held = w.buffer(), wanted = w.buffer();
  w.op(0, {}, {held});
  w.op(1, {}, {x});
  w.op(2, {x}, {wanted});
  Scoreboard board(w.residents(), {pool_of(1)}, {kHost, kHost, kHost});
  board.append(w.done());
  const OpRef holder = *board.next(0), writer = *board.next(1);
  complete(board, holder, 10);
  complete(board, writer, 20);
  EXPECT_EQ(board.cause({0, 2}), by_lane(1));
}

TEST(Cause, AStreamHasWaitedForAnotherStreamUntilThatOpIsCompleted) {
  for (const bool enqueued_first : {true, false}) {
    Writing w;
    const BufferId x = w.control(), y = w.control();
    w.op(0, {}, {x});
    w.op(2, {}, {y});
    w.op(1, {x, y}, {});
    Scoreboard board(w.residents(), {}, {kStream, kStream, kHost});
    board.append(w.done());
    const OpRef device = *board.next(0), host = *board.next(2);
    board.stamp(10);
    board.issued(device);
    complete(board, host, 20);
    EXPECT_EQ(board.cause({0, 2}), by_lane(2));
    if (enqueued_first) board.issued(*board.next(1));
    complete(board, device, 30);
    EXPECT_EQ(board.cause({0, 2}), by_lane(0));
    EXPECT_EQ(board.ready_since({0, 2}), 30);
  }
}

TEST(Cause, AStreamAppendedAfterTheOpThatItWaitsForWasIssuedToo) {
  auto residents = std::make_shared<Residents>();
  const BufferId x = residents->buffer({});
  residents->seal();
  Writing first(residents), second(residents);
  first.op(0, {}, {x});
  second.op(1, {x}, {});
  Scoreboard board(residents, {}, {kStream, kStream});
  board.append(first.done());
  const OpRef device = *board.next(0);
  board.issued(device);
  board.append(second.done());
  EXPECT_EQ(board.cause({1, 0}), kStreamCause);
  complete(board, device, 30);
  EXPECT_EQ(board.cause({1, 0}), by_lane(0));
}

TEST(PeakSlots, CountPersistentsAndTheMostTransientsAtOnce) {
  auto residents = std::make_shared<Residents>();
  residents->buffer({0, 4_KiB, MemoryTag::kState});
  residents->seal();
  Writing w(residents);
  for (int i = 0; i < 3; ++i) w.op(0, {}, {w.buffer()});
  Scoreboard board(residents, {pool_of(3), pool_of(1)}, {kHost});
  EXPECT_EQ(board.peak_slots(0), 1U);
  board.append(w.done());
  while (const auto op = board.next(0)) board.completed(*op);
  EXPECT_EQ(board.peak_slots(0), 3U);
  EXPECT_EQ(board.free_slots(0), 2U);
  EXPECT_EQ(board.peak_slots(1), 0U);
}

/// Runs a random stream by chance. The stamp counts the calls, so that it names one.
class Steps {
 public:
  Steps(const testing::RandomStream& stream, std::uint64_t seed)
      : stream_(stream), engine_(seed), board_(stream.residents, stream.pools, stream.lanes) {}

  void run() {
    while (true) {
      std::vector<LaneId> lanes;
      for (LaneId lane = 0; lane < stream_.lanes.size(); ++lane) {
        if (board_.has_next(lane)) lanes.push_back(lane);
      }
      std::vector<std::size_t> ends;
      for (std::size_t i = 0; i < running_.size(); ++i) {
        if (may_end(i)) ends.push_back(i);
      }
      const bool more = appended_ < stream_.programs.size() && board_.in_flight() < 2;
      const std::size_t choices = lanes.size() + ends.size() + (more ? 1 : 0);
      if (choices == 0) break;
      const std::size_t choice = engine_() % choices;
      if (choice < lanes.size()) {
        start(lanes[choice]);
      } else if (choice < lanes.size() + ends.size()) {
        end(ends[choice - lanes.size()]);
      } else {
        calls_.push_back({{static_cast<std::uint32_t>(appended_), 0}, {}});
        board_.stamp(++now_);
        board_.append(stream_.programs[appended_++]);
      }
    }
    RC_ASSERT(board_.idle());
  }

 private:
  struct Call {
    OpRef op;
    std::vector<PoolId> freed;
  };

  bool fifo(OpRef ref) const { return stream_.lanes[lane(ref)].issue == Issue::kFifo; }
  LaneId lane(OpRef ref) const { return stream_.programs[ref.instance]->ops()[ref.index].lane; }
  /// A stream does its ops in order, each after what it waits for on other streams.
  bool may_end(std::size_t i) const {
    if (!fifo(running_[i])) return true;
    for (std::size_t j = 0; j < i; ++j) {
      if (lane(running_[j]) == lane(running_[i])) return false;
    }
    return board_.stream_waits(running_[i]).empty();
  }

  void start(LaneId lane) {
    const OpRef ref = *board_.next(lane);
    if (fifo(ref)) {
      calls_.push_back({ref, {}});
      board_.stamp(++now_);
      board_.issued(ref);
    }
    running_.push_back(ref);
  }

  void end(std::size_t i) {
    const OpRef ref = running_[i];
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    look_at_cause(ref);
    done_[ref] = ++now_;
    board_.stamp(now_);
    calls_.push_back({ref, {}});
    for (const Freed& f : board_.completed(ref)) {
      calls_.back().freed.push_back(f.pool);
      freed_[{f.pool, f.slot}] = now_;
    }
  }

  /// A stream has nothing to wait for after an op of its own, nor after what that op waited for.
  bool in_order_on_its_stream(OpRef other, OpRef ref) const {
    if (!fifo(ref)) return false;
    if (lane(other) == lane(ref)) return true;
    return std::ranges::any_of(done_, [&](const auto& entry) {
      const OpRef between = entry.first;
      return other < between && between < ref && lane(between) == lane(ref) &&
             conflict(stream_, other, between);
    });
  }

  void look_at_cause(OpRef ref) {
    const std::int64_t ready = board_.ready_since(ref);
    RC_ASSERT(ready > 0 && ready <= now_);
    const Call& call = calls_[static_cast<std::size_t>(ready) - 1];
    const Cause cause = board_.cause(ref);
    if (cause.kind == Cause::Kind::kStream) RC_ASSERT(call.op == (OpRef{ref.instance, 0}));
    if (cause.kind == Cause::Kind::kMemory) {
      RC_ASSERT(std::ranges::count(call.freed, cause.which) > 0);
    }
    if (cause.kind == Cause::Kind::kLane) {
      RC_ASSERT(lane(call.op) == cause.which);
      RC_ASSERT(call.op < ref && conflict(stream_, call.op, ref));
    }
    // Nothing that it needs came later.
    for (const auto& [other, when] : done_) {
      if (other > ref || !conflict(stream_, other, ref)) continue;
      if (!in_order_on_its_stream(other, ref)) RC_ASSERT(when <= ready);
    }
    const Program& program = *stream_.programs[ref.instance];
    for (const BufferId root : program.accesses(ref.index).roots) {
      const PoolId pool = program.info(root).pool;
      if (pool == kNoPool) continue;
      const auto last = freed_.find({pool, board_.slot(ref, root)});
      if (last != freed_.end()) RC_ASSERT(last->second <= ready);
    }
  }

  const testing::RandomStream& stream_;
  std::mt19937_64 engine_;
  Scoreboard board_;
  std::size_t appended_ = 0;
  std::int64_t now_ = 0;
  std::vector<OpRef> running_;
  std::vector<Call> calls_;  // by stamp - 1
  std::map<OpRef, std::int64_t> done_;
  std::map<std::pair<PoolId, std::uint32_t>, std::int64_t> freed_;
};

RC_GTEST_PROP(Cause, OfAnyOpIsWhatCameLast, ()) {
  const testing::RandomStream stream = testing::random_stream(*testing::any_tape());
  Steps(stream, *rc::gen::arbitrary<std::uint64_t>()).run();
}

}  // namespace
}  // namespace sluice::prefetch
