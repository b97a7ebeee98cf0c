/// Random streams on real threads, with random delays: what tests/prefetch proves of the scoreboard
/// must survive the threads. Made for ThreadSanitizer: two ops that the driver should have ordered
/// race on the memory of the test.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "engine/executor/driver.h"
#include "tests/executor/job_thread.h"
#include "tests/support/conflict.h"
#include "tests/support/op_memory.h"
#include "tests/support/random_tape.h"

namespace sluice::testing {
namespace {

using executor::Driver;
using executor::Finished;
using executor::OpContext;
using executor::Resources;
using prefetch::OpRef;

enum class Trouble { kNone, kStartThrows, kWorkFails, kStop };

struct Plan {
  std::uint64_t seed = 0;
  Trouble trouble = Trouble::kNone;
  OpRef at{};  ///< the op that is in trouble
};

class WorkHandler final : public executor::Handler {
 public:
  WorkHandler(const RandomStream& stream, const Plan& plan)
      : memory_(stream, stream.pools), stream_(stream), plan_(plan) {
    for (const auto& lane : stream.lanes) {
      const bool fifo = lane.issue == prefetch::Issue::kFifo;
      threads_.push_back(std::make_unique<JobThread>(fifo ? JobThread::AfterFailure::kSkip
                                                          : JobThread::AfterFailure::kGoOn));
    }
  }

  Ticket start(const OpContext& context) override {
    memory_.claim(context.ref, [&](prefetch::BufferId root) { return context.slot(root); });
    if (context.ref == plan_.at) {
      if (plan_.trouble == Trouble::kStartThrows) throw Error(Errc::kIo, "trouble");
      if (plan_.trouble == Trouble::kStop) driver->stop();
    }
    std::vector<Ticket> waits;
    {
      const std::lock_guard lock(mutex_);
      for (const OpRef wait : context.stream_waits) waits.push_back(tickets_.at(wait));
    }
    executor::NamedSlots slots(context.slots.begin(), context.slots.end());
    auto job = [this, ref = context.ref, slots = std::move(slots), waits = std::move(waits)] {
      for (const Ticket& wait : waits) wait.wait();
      work(ref, slots);
    };
    const prefetch::LaneId lane = context.op.lane;
    if (stream_.lanes[lane].issue == prefetch::Issue::kFifo) {
      Ticket ticket = threads_[lane]->run(std::move(job));
      const std::lock_guard lock(mutex_);
      return tickets_[context.ref] = ticket;
    }
    if (luck(context.ref) % 2 == 0) return threads_[lane]->run(std::move(job));
    job();
    return {};
  }

  void freed(const prefetch::Freed& slot) override { memory_.freed(slot); }

  const OpMemory& memory() const { return memory_; }
  Driver* driver = nullptr;

 private:
  std::uint64_t luck(OpRef ref) const { return mix(mix(plan_.seed, ref.instance), ref.index); }

  void work(OpRef ref, const executor::NamedSlots& slots) {
    if (ref == plan_.at && plan_.trouble == Trouble::kWorkFails) throw Error(Errc::kIo, "trouble");
    const auto slot_of = [&](prefetch::BufferId root) {
      for (const auto& [named, slot] : slots) {
        if (named == root) return slot;
      }
      throw Error(Errc::kLogic, "a slot is missing");
    };
    memory_.begin(ref, slot_of);
    const std::uint64_t delay = luck(ref) / 2 % 8;
    if (delay < 2) std::this_thread::yield();
    if (delay == 2) std::this_thread::sleep_for(std::chrono::microseconds(luck(ref) / 16 % 200));
    memory_.end(ref, slot_of);
  }

  OpMemory memory_;
  const RandomStream& stream_;
  const Plan plan_;
  std::mutex mutex_;
  std::map<OpRef, Ticket> tickets_;  // of fifo lanes
  std::vector<std::unique_ptr<JobThread>> threads_;
};

using Factory = std::unique_ptr<Driver> (*)(const Resources&, executor::Handler&);

struct Run {
  std::vector<Finished> finished;
  std::vector<Span> spans;
  std::optional<Error> error;
  std::string complaint;
  std::size_t begun = 0, ended = 0;
  Results results;
};

Run run(const RandomStream& stream, Factory factory, const Plan& plan) {
  Run run;
  WorkHandler handler(stream, plan);
  Trace trace(10'000);
  {
    const auto driver =
        factory({stream.residents, stream.pools, stream.lanes, {}, &trace}, handler);
    handler.driver = driver.get();
    try {
      for (std::size_t i = 0; i < stream.programs.size(); ++i) {
        driver->append(stream.programs[i], 100 + i);
        for (auto& f : driver->wait(1)) run.finished.push_back(std::move(f));
      }
      for (auto& f : driver->wait(0)) run.finished.push_back(std::move(f));
    } catch (const Error& error) {
      run.error = error;
      run.begun = handler.memory().begun();
      run.ended = handler.memory().ended();
    }
  }
  run.complaint = handler.memory().complaint();
  if (run.error && handler.memory().begun() != run.begun) run.complaint = "an op began after all";
  run.begun = handler.memory().begun();
  run.results = handler.memory().results();
  run.spans = trace.spans();
  return run;
}

/// Small ones: their threads take longer than their ops, and many say more than large ones.
RandomStream any_stream() {
  return random_stream(*any_tape(4.0));
}

/// One span per op, ready <= begin <= end; the op that it names as its cause had ended by then, on
/// that lane, as everything that it depends on; a stream keeps its own order.
void expect_true_spans(const RandomStream& stream, const std::vector<Span>& spans) {
  std::map<OpRef, Span> by_op;
  for (const Span& span : spans) by_op[executor::placed(span.where)] = span;
  std::size_t ops = 0;
  for (const auto& program : stream.programs) ops += program->ops().size();
  RC_ASSERT(by_op.size() == ops && spans.size() == ops);
  for (const auto& [ref, span] : by_op) {
    RC_ASSERT(span.ready <= span.begin && span.begin <= span.end);
    const prefetch::Cause cause = executor::unpack_cause(span.cause);
    const auto fifo = [&](const Span& s) {
      return stream.lanes[s.track].issue == prefetch::Issue::kFifo;
    };
    bool named = cause.kind != prefetch::Cause::Kind::kLane;
    for (const auto& [other, earlier] : by_op) {
      if (other >= ref) break;
      if (fifo(earlier) && earlier.track == span.track) RC_ASSERT(earlier.end <= span.begin);
      if (!conflict(stream, other, ref)) continue;
      named |= earlier.track == cause.which;
      // The end of a stream's op may be seen after that of a later one on another stream. An op on
      // a stream may be ready before what one before it on the stream has waited for.
      if (!fifo(earlier)) RC_ASSERT(earlier.end <= (fifo(span) ? span.begin : span.ready));
    }
    RC_ASSERT(named);
  }
}

void expect_serial_results(const RandomStream& stream, Factory factory) {
  const Run done = run(stream, factory, {*rc::gen::arbitrary<std::uint64_t>(), {}, {}});
  RC_ASSERT(!done.error.has_value());
  RC_ASSERT(done.complaint == "");
  RC_ASSERT(done.results == expected(stream));
  expect_true_spans(stream, done.spans);
  RC_ASSERT(done.finished.size() == stream.programs.size());
  for (std::size_t i = 0; i < done.finished.size(); ++i) {
    RC_ASSERT(done.finished[i].instance == i);
    RC_ASSERT(done.finished[i].tag == 100 + i);
  }
}

RC_GTEST_PROP(RandomStream, OverlappedEqualsSerialAtTheSerialMinimum, ()) {
  expect_serial_results(any_stream(), &executor::overlapped);
}

RC_GTEST_PROP(RandomStream, OverlappedEqualsSerialWithMoreMemory, ()) {
  RandomStream stream = any_stream();
  for (auto& pool : stream.pools) pool.slots += *rc::gen::inRange(0U, 4U);
  expect_serial_results(stream, &executor::overlapped);
}

RC_GTEST_PROP(RandomStream, TheSerialDriverEqualsTheOracle, ()) {
  expect_serial_results(any_stream(), &executor::serial);
}

/// Every op that must come after `source`, by the definition: shared leaves, one of them a write.
std::set<OpRef> dependents(const RandomStream& stream, OpRef source) {
  std::set<OpRef> found{source};
  for (std::uint32_t i = source.instance; i < stream.programs.size(); ++i) {
    for (std::uint32_t j = 0; j < stream.programs[i]->ops().size(); ++j) {
      const OpRef ref{i, j};
      if (ref <= source) continue;
      if (std::any_of(found.begin(), found.end(),
                      [&](OpRef f) { return conflict(stream, f, ref); })) {
        found.insert(ref);
      }
    }
  }
  found.erase(source);
  return found;
}

void expect_clean_end(Factory factory, Trouble trouble) {
  const RandomStream stream = any_stream();
  std::vector<OpRef> ops;
  for (std::uint32_t i = 0; i < stream.programs.size(); ++i) {
    for (std::uint32_t j = 0; j < stream.programs[i]->ops().size(); ++j) ops.push_back({i, j});
  }
  RC_PRE(!ops.empty());
  const OpRef at = ops[*rc::gen::inRange<std::size_t>(0, ops.size())];
  const Run done = run(stream, factory, {*rc::gen::arbitrary<std::uint64_t>(), trouble, at});
  RC_ASSERT(done.complaint == "");
  if (trouble == Trouble::kStop) {
    RC_ASSERT(done.error.has_value() || done.begun == ops.size());
    if (done.error) RC_ASSERT(done.error->code == Errc::kLogic);
    return;
  }
  RC_ASSERT(done.error.has_value());
  RC_ASSERT(done.error->code == Errc::kIo);
  RC_ASSERT(done.begun == done.ended);
  RC_ASSERT(done.results.ops[at.instance][at.index] == 0U);
  for (const OpRef late : dependents(stream, at)) {
    RC_ASSERT(done.results.ops[late.instance][late.index] == 0U);
  }
}

RC_GTEST_PROP(RandomStream, AStartThatThrowsEndsTheRun, ()) {
  expect_clean_end(&executor::overlapped, Trouble::kStartThrows);
}
RC_GTEST_PROP(RandomStream, ATicketThatFailsEndsTheRun, ()) {
  expect_clean_end(&executor::overlapped, Trouble::kWorkFails);
}
RC_GTEST_PROP(RandomStream, StopEndsTheRun, ()) {
  expect_clean_end(&executor::overlapped, Trouble::kStop);
}
RC_GTEST_PROP(RandomStream, TroubleEndsTheSerialRun, ()) {
  const auto trouble =
      *rc::gen::element(Trouble::kStartThrows, Trouble::kWorkFails, Trouble::kStop);
  expect_clean_end(&executor::serial, trouble);
}

}  // namespace
}  // namespace sluice::testing
