/// What only the overlapped driver does. Every test would wait for ever, not fail, if an op that
/// should run beside another did not; the time limit of the test program sees that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <latch>
#include <map>
#include <string>
#include <thread>

#include "engine/base/error.h"
#include "tests/executor/job_thread.h"
#include "tests/executor/recording_handler.h"

namespace sluice::executor {
namespace {

using prefetch::BufferId;
using prefetch::Issue;
using prefetch::LaneId;
using prefetch::OpRef;
using ::testing::ElementsAre;
using testing::RecordingHandler;

class Overlapped : public ::testing::Test {
 protected:
  static constexpr LaneId kWide = 0, kStream = 1, kOther = 2, kNarrow = 3;

  Overlapped() {
    auto residents = std::make_shared<prefetch::Residents>();
    record_ = residents->buffer({});
    residents->seal();
    resources_.residents = residents;
    resources_.lanes = {{"wide", 2, Issue::kOldestReady},
                        {"stream", 1, Issue::kFifo},
                        {"other stream", 1, Issue::kFifo},
                        {"narrow", 1, Issue::kOldestReady}};
  }

  struct OpLine {
    LaneId lane;
    std::vector<BufferId> reads, writes;
  };
  std::shared_ptr<const prefetch::Program> program(const std::vector<OpLine>& lines) const {
    auto made = std::make_shared<prefetch::Program>("test", resources_.residents);
    for (const OpLine& line : lines) {
      made->op({{1, "work"}, line.lane, {}, line.reads, line.writes, {}});
    }
    made->seal();
    return made;
  }

  Resources resources_;
  BufferId record_;
  RecordingHandler handler_;
};

TEST_F(Overlapped, AWideLaneRunsItsWidthAtOnce) {
  std::latch both(2);
  handler_.on_start = [&](const OpContext&) {
    both.arrive_and_wait();
    return Ticket{};
  };
  const auto run = overlapped(resources_, handler_);
  run->append(program({{kWide, {}, {}}, {kWide, {}, {}}}), 0);
  EXPECT_EQ(run->wait(0).size(), 1U);
}

TEST_F(Overlapped, DifferentLanesRunAtOnceAndTheNextProgramBesideThisOne) {
  std::latch all(3);
  handler_.on_start = [&](const OpContext&) {
    all.arrive_and_wait();
    return Ticket{};
  };
  const auto run = overlapped(resources_, handler_);
  run->append(program({{kWide, {}, {}}, {kStream, {}, {}}}), 0);
  run->append(program({{kNarrow, {}, {}}}), 1);
  EXPECT_EQ(run->wait(0).size(), 2U);
}

TEST_F(Overlapped, AnOpThatQueuesBehindAnotherBeginsWithItsTurn) {
  Trace trace(2);
  resources_.trace = &trace;
  sluice::testing::JobThread link(sluice::testing::JobThread::AfterFailure::kSkip);
  std::latch first_queued(1);
  std::latch second_queued(1);
  Nanos first_ended = 0;
  handler_.on_start = [&](const OpContext& context) {
    if (context.ref.index == 0) {
      Ticket ticket = link.run([&] {
        second_queued.wait();
        first_ended = now_ns();
      });
      first_queued.count_down();
      return ticket;
    }
    first_queued.wait();
    Ticket ticket = link.run([] {});
    second_queued.count_down();
    return ticket;
  };
  const auto run = overlapped(resources_, handler_);
  run->append(program({{kWide, {}, {}}, {kWide, {}, {}}}), 0);
  run->wait(0);
  for (const Span& span : trace.spans()) {
    if (placed(span.where).index == 1) {
      EXPECT_GE(span.begin, first_ended);
    }
  }
}

TEST_F(Overlapped, AStreamIsGivenTheNextOpBeforeTheLastOneIsDone) {
  TicketSource first;
  const Ticket work = first.ticket();
  std::atomic<bool> finished_by_second{false};
  handler_.on_start = [&](const OpContext& context) {
    if (context.ref.index == 0) return work;
    EXPECT_TRUE(context.stream_waits.empty());  // the same stream keeps its own order
    finished_by_second = true;
    first.finish();
    return Ticket{};
  };
  const auto run = overlapped(resources_, handler_);
  run->append(program({{kStream, {}, {record_}}, {kStream, {record_}, {}}}), 0);
  run->wait(0);
  EXPECT_TRUE(finished_by_second);
}

TEST_F(Overlapped, AStreamIsToldWhichOpsOfOtherStreamsToWaitFor) {
  TicketSource first;
  const Ticket work = first.ticket();
  std::vector<OpRef> waits;
  handler_.on_start = [&](const OpContext& context) {
    if (context.ref.index == 0) return work;
    waits.assign(context.stream_waits.begin(), context.stream_waits.end());
    first.finish();
    return Ticket{};
  };
  const auto run = overlapped(resources_, handler_);
  run->append(program({{kStream, {}, {record_}}, {kOther, {record_}, {}}}), 0);
  run->wait(0);
  EXPECT_THAT(waits, ElementsAre(OpRef{0, 0}));
}

TEST_F(Overlapped, AHostLaneWaitsUntilTheStreamHasDoneTheWork) {
  std::atomic<bool> done{false};
  bool seen_done = false;
  std::jthread device;
  handler_.on_start = [&](const OpContext& context) {
    if (context.ref.index == 1) {
      seen_done = done;
      return Ticket{};
    }
    TicketSource source;
    Ticket ticket = source.ticket();
    device = std::jthread([&done, s = std::move(source)]() mutable {
      done = true;
      s.finish();
    });
    return ticket;
  };
  const auto run = overlapped(resources_, handler_);
  run->append(program({{kStream, {}, {record_}}, {kWide, {record_}, {}}}), 0);
  run->wait(0);
  EXPECT_TRUE(seen_done);
}

TEST_F(Overlapped, WaitReturnsWhileNewerProgramsRun) {
  TicketSource second;
  const Ticket work = second.ticket();
  handler_.on_start = [&](const OpContext& context) {
    return context.ref.instance == 1 ? work : Ticket{};
  };
  const auto run = overlapped(resources_, handler_);
  run->append(program({{kWide, {}, {}}}), 10);
  run->append(program({{kWide, {}, {}}}), 11);
  const auto first = run->wait(1);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].tag, 10U);
  second.finish();
  EXPECT_EQ(run->wait(0).size(), 1U);
}

TEST_F(Overlapped, AnErrorIsRethrownOnlyWhenEverythingInFlightHasEnded) {
  TicketSource slow;
  const Ticket work = slow.ticket();
  std::atomic<bool> ended{false};
  std::latch slow_has_started(1);
  std::jthread device;
  handler_.on_start = [&](const OpContext& context) -> Ticket {
    if (context.op.lane == kStream) {
      slow_has_started.count_down();
      return work;
    }
    slow_has_started.wait();
    device = std::jthread([&] {
      ended = true;
      slow.finish();
    });
    throw Error(Errc::kIo, "broken");
  };
  const auto run = overlapped(resources_, handler_);
  run->append(program({{kStream, {}, {}}, {kWide, {}, {}}}), 0);
  EXPECT_THROW(run->wait(0), Error);
  EXPECT_TRUE(ended);
}

TEST_F(Overlapped, OfTwoErrorsTheFirstIsTold) {
  TicketSource late;
  const Ticket work = late.ticket();
  std::latch both_have_started(2);
  handler_.on_start = [&](const OpContext& context) -> Ticket {
    both_have_started.arrive_and_wait();
    if (context.op.lane == kNarrow) return work;
    throw Error(Errc::kIo, "the first");
  };
  // Of the op that failed first: its error is known when its slot is freed.
  handler_.on_freed = [&] { late.fail(std::make_exception_ptr(Error(Errc::kIo, "the second"))); };
  resources_.pools = {{"pool", prefetch::Tier::kCpu, 4_KiB, 1}};
  auto made = std::make_shared<prefetch::Program>("test", resources_.residents);
  const BufferId slot = made->buffer({0, 4_KiB, prefetch::MemoryTag::kParam});
  made->op({{1, "work"}, kWide, {}, {}, {slot}, {}});
  made->op({{1, "work"}, kNarrow, {}, {}, {}, {}});
  made->seal();
  const auto run = overlapped(resources_, handler_);
  run->append(made, 0);
  try {
    run->wait(0);
    ADD_FAILURE() << "there was no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                ::testing::StartsWith("the first\n  in the op 'work' of the program"));
  }
}

TEST_F(Overlapped, TheDestructorEndsWhatIsInFlightAndStartsNothing) {
  TicketSource slow;
  const Ticket work = slow.ticket();
  std::latch started(1);
  std::jthread device;
  handler_.on_start = [&](const OpContext&) {
    started.count_down();
    return work;
  };
  {
    const auto run = overlapped(resources_, handler_);
    run->append(program({{kStream, {}, {record_}}, {kWide, {record_}, {}}}), 0);
    started.wait();
    run->stop();
    device = std::jthread([&] { slow.finish(); });
  }
  EXPECT_TRUE(work.done());
  EXPECT_THAT(handler_.started(), ElementsAre(OpRef{0, 0}));
}

TEST_F(Overlapped, OfAllThatRunTheOldestIsSaidFirst) {
  TicketSource narrow, first, second;
  const std::array<Ticket, 3> work = {narrow.ticket(), first.ticket(), second.ticket()};
  std::array<std::latch, 3> started{std::latch(1), std::latch(1), std::latch(1)};
  handler_.on_start = [&](const OpContext& context) {
    const std::uint32_t index = context.ref.index;
    if (index > 0) started[index - 1].wait();
    started[index].count_down();
    return work[index];
  };
  const auto run = overlapped(resources_, handler_);
  run->append(program({{kNarrow, {}, {}}, {kWide, {}, {}}, {kWide, {}, {}}}), 0);
  started[2].wait();
  const auto running = run->running();
  ASSERT_EQ(running.size(), 3U);
  EXPECT_EQ(running[0].since, std::min(running[1].since, running[0].since));
  EXPECT_EQ(running[1].since, std::min(running[1].since, running[2].since));
  std::vector<std::string> lanes;
  for (const Running& op : running) lanes.push_back(op.lane);
  EXPECT_THAT(lanes, ::testing::UnorderedElementsAre("narrow", "wide", "wide"));
  narrow.finish();
  first.finish();
  second.finish();
  run->wait(0);
}

/// What is enqueued behind it waits for its turn, and a stream that waits for another does too.
TEST_F(Overlapped, OfAStreamOnlyTheOpThatItHasComeToRuns) {
  TicketSource first;
  const Ticket work = first.ticket();
  std::latch all(3);
  handler_.on_start = [&](const OpContext&) {
    all.count_down();
    return work;
  };
  const auto run = overlapped(resources_, handler_);
  run->append(
      program({{kStream, {}, {record_}}, {kStream, {record_}, {}}, {kOther, {record_}, {}}}), 0);
  all.wait();
  auto running = run->running();
  while (running.size() != 1) running = run->running();  // on their way from hand to stream
  EXPECT_EQ(running[0].ref, (OpRef{0, 0}));
  first.finish();
  run->wait(0);
}

TEST_F(Overlapped, ThreadsCarryTheNamesOfTheirLanes) {
  std::map<LaneId, std::string> names;
  handler_.on_start = [&](const OpContext& context) {
    std::array<char, 16> name{};
    pthread_getname_np(pthread_self(), name.data(), name.size());
    names[context.op.lane] = name.data();
    return Ticket{};
  };
  const auto run = overlapped(resources_, handler_);
  run->append(program({{kNarrow, {}, {record_}}, {kOther, {record_}, {}}}), 0);
  run->wait(0);
  EXPECT_EQ(names[kNarrow], "narrow");
  EXPECT_EQ(names[kOther], "other stream");
}

}  // namespace
}  // namespace sluice::executor
