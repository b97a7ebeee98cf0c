/// What both drivers promise, one handler for all: it writes down what it is given.
#include "engine/executor/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <latch>
#include <mutex>
#include <thread>

#include "tests/executor/recording_handler.h"
#include "tests/support/errors.h"

namespace sluice::executor {
namespace {

using ::testing::ElementsAre;
using testing::RecordingHandler;

using Factory = std::unique_ptr<Driver> (*)(const Resources&, Handler&);

class DriverConformance : public ::testing::TestWithParam<Factory> {
 protected:
  static constexpr prefetch::LaneId kHost = 0, kStream = 1;

  DriverConformance() {
    auto residents = std::make_shared<prefetch::Residents>();
    record_ = residents->buffer({});
    master_ = residents->buffer({0, 4_KiB, prefetch::MemoryTag::kState});
    residents->seal();
    resources_.residents = residents;
    resources_.pools = {{"pool", prefetch::Tier::kCpu, 4_KiB, 3}};
    resources_.lanes = {{"host", 2, prefetch::Issue::kOldestReady},
                        {"stream", 1, prefetch::Issue::kFifo}};
  }

  std::unique_ptr<Driver> driver() { return GetParam()(resources_, handler_); }
  std::shared_ptr<prefetch::Program> program() const {
    return std::make_shared<prefetch::Program>("test", resources_.residents);
  }
  static prefetch::Op op(prefetch::LaneId lane, std::vector<prefetch::BufferId> reads,
                         std::vector<prefetch::BufferId> writes) {
    return {{1, "work"}, lane, {}, std::move(reads), std::move(writes), {}};
  }
  /// Ops that can only run one after the other, by turns on both lanes.
  std::shared_ptr<const prefetch::Program> chain(int ops) const {
    auto made = program();
    for (int i = 0; i < ops; ++i) made->op(op(i % 2 == 0 ? kHost : kStream, {}, {record_}));
    made->seal();
    return made;
  }
  static Errc error_of(Driver& driver) {
    return test::error_of([&] { driver.wait(0); }).code;
  }

  Resources resources_;
  prefetch::BufferId record_, master_;
  RecordingHandler handler_;
};

TEST_P(DriverConformance, RunsEveryOpAndReportsProgramsInOrderWithTheirTags) {
  const auto run = driver();
  run->append(chain(3), 7);
  run->append(chain(2), 8);
  const auto finished = run->wait(0);
  EXPECT_THAT(handler_.started(),
              ElementsAre(prefetch::OpRef{0, 0}, prefetch::OpRef{0, 1}, prefetch::OpRef{0, 2},
                          prefetch::OpRef{1, 0}, prefetch::OpRef{1, 1}));
  EXPECT_THAT(handler_.tags(), ElementsAre(7, 7, 7, 8, 8));
  ASSERT_EQ(finished.size(), 2U);
  EXPECT_EQ(finished[0].instance, 0U);
  EXPECT_EQ(finished[0].tag, 7U);
  EXPECT_EQ(finished[1].tag, 8U);
  EXPECT_LE(finished[0].end, finished[1].end);
  ASSERT_EQ(finished[1].lanes.size(), 2U);
  EXPECT_LE(finished[0].lanes[kStream].busy, finished[1].lanes[kStream].busy);
  EXPECT_TRUE(run->wait(0).empty());
}

TEST_P(DriverConformance, AnOpIsGivenTheSlotsOfWhatItNamesAndNoOthers) {
  auto made = program();
  const auto root = made->buffer({0, 4_KiB, prefetch::MemoryTag::kParam});
  const auto part = made->part_of(root, 0, 1_KiB);
  const auto other = made->buffer({0, 4_KiB, prefetch::MemoryTag::kParam});
  made->op(op(kHost, {}, {other}));
  made->op(op(kStream, {}, {part, root, record_, master_}));
  made->seal();
  handler_.on_start = [&](const OpContext& context) {
    if (context.ref.index == 0) return Ticket{};
    EXPECT_EQ(context.slot(part), context.slot(root));
    EXPECT_NE(context.slot(root), context.slot(master_));
    EXPECT_EQ(context.slot(master_), 0U);
    EXPECT_THROW(context.slot(other), Error);
    EXPECT_THROW(context.slot(99), Error);
    std::vector<prefetch::BufferId> named;
    for (const auto& [id, slot] : context.slots) named.push_back(id);
    EXPECT_THAT(named, ElementsAre(master_, root));
    EXPECT_EQ(&context.program, made.get());
    EXPECT_EQ(&context.op, &made->ops()[1]);
    return Ticket{};
  };
  const auto run = driver();
  run->append(made, 0);
  run->wait(0);
  EXPECT_EQ(handler_.started().size(), 2U);
  EXPECT_EQ(handler_.freed_slots(), 2U);
}

TEST_P(DriverConformance, ABufferWithoutBytesOrdersOpsAndTakesNoSlot) {
  auto made = program();
  const auto control = made->buffer({});
  made->op(op(kHost, {}, {control}));
  made->op(op(kStream, {control}, {record_}));
  made->op(op(kHost, {record_}, {control}));
  made->op(op(kHost, {control, record_}, {record_}));
  made->seal();
  handler_.on_start = [&](const OpContext& context) {
    EXPECT_TRUE(context.slots.empty());
    for (const auto id : {control, record_}) {
      test::expect_error(Errc::kLogic, {"has no bytes"}, [&] { context.slot(id); });
    }
    return Ticket{};
  };
  const auto run = driver();
  run->append(made, 0);
  const auto finished = run->wait(0);
  EXPECT_THAT(handler_.started(), ElementsAre(prefetch::OpRef{0, 0}, prefetch::OpRef{0, 1},
                                              prefetch::OpRef{0, 2}, prefetch::OpRef{0, 3}));
  EXPECT_EQ(handler_.freed_slots(), 0U);
  EXPECT_THAT(finished.at(0).peak_slots, ElementsAre(1U));  // the persistent one with bytes
}

TEST_P(DriverConformance, APredicatedOpIsGivenTheSlotOfItsRecord) {
  auto made = program();
  const auto record = made->buffer({0, 4_KiB, prefetch::MemoryTag::kControl});
  made->op(op(kHost, {}, {record}));
  prefetch::Op predicated = op(kStream, {}, {});
  predicated.predicate = {record, 1};
  made->op(predicated);
  made->seal();
  handler_.on_start = [&](const OpContext& context) {
    EXPECT_EQ(context.slot(record), 1U);  // after the persistent one
    return Ticket{};
  };
  const auto run = driver();
  run->append(made, 0);
  run->wait(0);
  EXPECT_EQ(handler_.started().size(), 2U);
}

TEST_P(DriverConformance, TheFirstErrorEndsTheRunAndEveryWaitRethrowsIt) {
  handler_.on_start = [](const OpContext& context) {
    if (context.ref.index == 1) throw Error(Errc::kIo, "broken");
    return Ticket{};
  };
  const auto run = driver();
  run->append(chain(4), 0);
  EXPECT_EQ(error_of(*run), Errc::kIo);
  EXPECT_EQ(error_of(*run), Errc::kIo);
  run->append(chain(4), 0);
  EXPECT_EQ(error_of(*run), Errc::kIo);
  EXPECT_EQ(handler_.started().size(), 2U);
}

TEST_P(DriverConformance, TheErrorOfATicketEndsTheRun) {
  for (const std::uint32_t failing : {0U, 1U}) {  // on the host lane, on the stream
    handler_.on_start = [failing](const OpContext& context) {
      TicketSource source;
      const Ticket ticket = source.ticket();
      source.fail(context.ref.index == failing
                      ? std::make_exception_ptr(Error(Errc::kDevice, "broken"))
                      : nullptr);
      return ticket;
    };
    const auto run = driver();
    run->append(chain(6), 0);
    EXPECT_EQ(error_of(*run), Errc::kDevice);
  }
}

TEST_P(DriverConformance, StopLeavesWorkAndWaitSaysSo) {
  std::unique_ptr<Driver> run;
  handler_.on_start = [&](const OpContext& context) {
    if (context.ref.index == 1) run->stop();
    return Ticket{};
  };
  run = driver();
  run->append(chain(4), 0);
  EXPECT_EQ(error_of(*run), Errc::kLogic);
  EXPECT_EQ(handler_.started().size(), 2U);
}

TEST_P(DriverConformance, StopWithNothingLeftIsNoErrorUntilAProgramIsRefused) {
  const auto run = driver();
  run->append(chain(2), 5);
  EXPECT_EQ(run->wait(0).size(), 1U);
  run->stop();
  EXPECT_TRUE(run->wait(0).empty());
  run->append(chain(2), 6);
  EXPECT_EQ(error_of(*run), Errc::kLogic);
  EXPECT_EQ(handler_.started().size(), 2U);
}

TEST_P(DriverConformance, AProgramWithoutOpsIsFinishedAtOnce) {
  const auto run = driver();
  run->append(chain(0), 9);
  const auto finished = run->wait(0);
  ASSERT_EQ(finished.size(), 1U);
  EXPECT_EQ(finished[0].tag, 9U);
}

TEST_P(DriverConformance, AProgramThatWasNotCheckedIsAnErrorNotAHang) {
  auto made = program();
  std::vector<prefetch::BufferId> too_many;
  for (int i = 0; i < 3; ++i) {
    too_many.push_back(made->buffer({0, 4_KiB, prefetch::MemoryTag::kParam}));
  }
  made->op(op(kHost, {}, {}));
  made->op(op(kHost, {}, too_many));
  made->seal();
  const auto run = driver();
  run->append(made, 0);
  test::expect_error(Errc::kLogic, {"checked"}, [&] { run->wait(0); });
}

TEST_P(DriverConformance, AnErrorInFreedEndsTheRun) {
  auto made = program();
  made->op(op(kHost, {}, {made->buffer({0, 4_KiB, prefetch::MemoryTag::kParam}), record_}));
  made->op(op(kHost, {record_}, {}));
  made->seal();
  handler_.on_freed = [] { throw Error(Errc::kIo, "broken"); };
  const auto run = driver();
  run->append(made, 0);
  EXPECT_EQ(error_of(*run), Errc::kIo);
  EXPECT_EQ(handler_.started().size(), 1U);
}

TEST_P(DriverConformance, TracesEveryOpOnceOpsThatDependInOrder) {
  Trace trace(100);
  resources_.trace = &trace;
  const auto run = driver();
  run->append(chain(6), 0);
  run->append(chain(6), 0);
  run->wait(0);
  const std::vector<Span> spans = trace.spans();
  ASSERT_EQ(spans.size(), 12U);
  for (std::uint32_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].where, place({i / 6, i % 6}));
    EXPECT_EQ(spans[i].track, i % 2 == 0 ? kHost : kStream);
    EXPECT_LE(spans[i].ready, spans[i].begin);
    EXPECT_LE(spans[i].begin, spans[i].end);
    if (i % 6 > 0) {  // the first of a program may have waited for that to come
      EXPECT_EQ(unpack_cause(spans[i].cause),
                (prefetch::Cause{prefetch::Cause::Kind::kLane, spans[i - 1].track}));
    }
    if (i > 0) {
      EXPECT_GE(spans[i].begin, spans[i - 1].end);
    }
  }
}

TEST_P(DriverConformance, EveryMomentOfEveryLaneIsAccountedFor) {
  handler_.on_start = [](const OpContext&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Ticket{};
  };
  const auto run = driver();
  run->append(chain(4), 0);
  const auto first = run->wait(0);
  run->append(chain(4), 0);
  const auto second = run->wait(0);
  const Reasons reasons(resources_.lanes.size(), resources_.pools.size());
  for (const prefetch::LaneId lane : {kHost, kStream}) {
    const LaneTime& from = first[0].lanes[lane];
    const LaneTime& to = second[0].lanes[lane];
    Nanos sum = to.busy - from.busy;
    for (std::size_t i = 0; i < reasons.size(); ++i) sum += to.idle[i] - from.idle[i];
    EXPECT_EQ(sum, second[0].end - first[0].end);
    EXPECT_GT(to.idle[reasons.lane(lane == kHost ? kStream : kHost)],
              from.idle[reasons.lane(lane == kHost ? kStream : kHost)]);
  }
}

TEST_P(DriverConformance, TheMostSlotsInUseAreReported) {
  const auto run = driver();
  auto made = program();
  made->op(op(kHost, {}, {made->buffer({0, 4_KiB, prefetch::MemoryTag::kParam})}));
  made->seal();
  run->append(made, 0);
  const auto finished = run->wait(0);
  EXPECT_THAT(finished[0].peak_slots, ElementsAre(2U));  // with the persistent one
}

/// On each lane, and both by its handler that does not return and by its ticket that does not end.
TEST_P(DriverConformance, AnOpThatHangsIsSaidToRunWhereAndSinceWhen) {
  struct Case {
    std::uint32_t op;
    bool in_handler;
  };
  for (const auto& [hangs, in_handler] : {Case{0, true}, {0, false}, {1, true}, {1, false}}) {
    SCOPED_TRACE(::testing::Message() << hangs << (in_handler ? " in its handler" : " behind it"));
    std::latch there(1);
    std::latch let_go(1);
    TicketSource source;
    const Ticket work = source.ticket();
    Nanos before = 0;
    handler_.on_start = [&, hangs = hangs, in_handler = in_handler](const OpContext& context) {
      if (context.ref.index != hangs) return Ticket{};
      before = now_ns();
      there.count_down();
      if (in_handler) let_go.wait();
      return in_handler ? Ticket{} : work;
    };
    const auto run = driver();
    EXPECT_THAT(run->running(), ::testing::IsEmpty());
    auto made = program();
    made->op(op(kHost, {}, {made->buffer({0, 4_KiB, prefetch::MemoryTag::kParam}), record_}));
    made->op(op(kStream, {}, {master_, record_}));
    made->op(op(kHost, {record_}, {}));
    made->seal();
    std::jthread owner([&] {
      run->append(made, 7);
      run->wait(0);
    });
    there.wait();
    auto running = run->running();
    while (running.empty()) running = run->running();  // on its way from hand to stream
    const Nanos after = now_ns();
    ASSERT_EQ(running.size(), 1U);
    EXPECT_EQ(running[0].ref, (prefetch::OpRef{0, hangs}));
    EXPECT_EQ(running[0].program, made.get());
    EXPECT_EQ(running[0].tag, 7U);
    EXPECT_EQ(running[0].lane, hangs == 0 ? "host" : "stream");
    EXPECT_LE(running[0].since, after);
    const OpContext context = running[0].context();
    EXPECT_EQ(&context.op, &made->ops()[hangs]);
    EXPECT_EQ(context.slot(made->ops()[hangs].writes[0]), hangs == 0 ? 1U : 0U);
    if (in_handler) {
      EXPECT_LE(running[0].since, before);
    }
    let_go.count_down();
    source.finish();
    owner.join();
    EXPECT_THAT(run->running(), ::testing::IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Drivers, DriverConformance, ::testing::Values(&overlapped, &serial),
                         [](const auto& factory) {
                           return factory.param == &serial ? "Serial" : "Overlapped";
                         });

}  // namespace
}  // namespace sluice::executor
