#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/threads.h"
#include "engine/executor/driver.h"
#include "engine/executor/records.h"

namespace sluice::executor {
namespace {

using prefetch::Issue;
using prefetch::LaneId;
using prefetch::OpRef;

/// One lock around the scoreboard. An oldest-ready lane has `width` workers that take an op, run it
/// and complete it. A fifo lane has one issuing worker, and one completer that waits for the
/// tickets in stream order.
class Overlapped final : public Driver {
 public:
  Overlapped(const Machine& machine, Handler& handler)
      : handler_(handler),
        trace_(machine.trace),
        board_(machine.residents, machine.pools, machine.lanes, machine.derive),
        lanes_(machine.lanes.size()) {
    try {
      for (LaneId lane = 0; lane < lanes_.size(); ++lane) open(lane);
    } catch (...) {
      close();
      throw;
    }
  }
  ~Overlapped() override { close(); }

  void append(std::shared_ptr<const prefetch::Program> program, std::uint64_t tag) override {
    const std::lock_guard lock(mutex_);
    if (stopped_) {
      refused_ = true;
      return;
    }
    const std::uint32_t instance = board_.append(std::move(program));
    records_.append(tag);
    if (board_.finished(instance)) record(instance, now_ns());
    if (board_.stuck()) fail_stuck();
    call_lanes();
  }

  std::vector<Finished> wait(std::size_t in_flight) override {
    std::unique_lock lock(mutex_);
    progress_.wait(lock,
                   [&] { return stopped_ ? board_.idle() : board_.in_flight() <= in_flight; });
    if (error_) std::rethrow_exception(error_);
    SLUICE_CHECK(!stopped_ || (board_.in_flight() == 0 && !refused_), kLogic,
                 "the run was stopped before its last op");
    return records_.take();
  }

  void stop() noexcept override {
    const std::lock_guard lock(mutex_);
    halt();
  }

 private:
  /// An op whose handler has been called.
  struct Started {
    OpRef op;
    Nanos begin;
    Ticket ticket;
    std::exception_ptr error;
    std::exception_ptr wait() const { return error ? error : ticket.wait_error(); }
  };
  struct Lane {
    std::condition_variable work;  // the workers wait here
    bool called = false;           // a worker has been notified, and has not looked since
    BusyTime busy;
    std::condition_variable arrived;  // the completer of a fifo lane waits here
    std::deque<Started> enqueued;
    Nanos last_end = 0;  // of the lane's latest completed op
  };

  void open(LaneId lane) {
    if (board_.lanes()[lane].issue == Issue::kFifo) {
      workers_.emplace_back([this, lane] { issue(lane); });
      completers_.emplace_back([this, lane] { complete_in_order(lane); });
      return;
    }
    for (std::uint32_t i = 0; i < board_.lanes()[lane].width; ++i) {
      workers_.emplace_back([this, lane] { work(lane); });
    }
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      halt();
      closing_ = true;
      for (Lane& lane : lanes_) lane.work.notify_all();
    }
    workers_.clear();
    {
      const std::lock_guard lock(mutex_);
      issuing_ended_ = true;
      for (Lane& lane : lanes_) lane.arrived.notify_all();
    }
    completers_.clear();
  }

  void work(LaneId lane) {
    name_this_thread(board_.lanes()[lane].name);
    std::unique_lock lock(mutex_);
    while (const auto op = take(lane, lock)) {
      const Started started = start(*op, lock);
      std::exception_ptr error = started.wait();
      lock.lock();
      complete(*op, started.begin, std::move(error));
    }
  }

  void issue(LaneId lane) {
    name_this_thread(board_.lanes()[lane].name);
    std::unique_lock lock(mutex_);
    while (const auto op = take(lane, lock)) {
      Started started = start(*op, lock);
      lock.lock();
      if (started.error) fail(started.error);  // before anything may follow it
      board_.issued(*op);
      lanes_[lane].enqueued.push_back(std::move(started));
      lanes_[lane].arrived.notify_one();
    }
  }

  void complete_in_order(LaneId lane) {
    name_this_thread(fmt::format("{} done", board_.lanes()[lane].name));
    Lane& own = lanes_[lane];
    std::unique_lock lock(mutex_);
    while (true) {
      own.arrived.wait(lock, [&] { return !own.enqueued.empty() || issuing_ended_; });
      if (own.enqueued.empty()) return;
      const Started started = std::move(own.enqueued.front());
      own.enqueued.pop_front();
      lock.unlock();
      std::exception_ptr error = started.wait();
      lock.lock();
      // The stream reached it when it was enqueued, or when the op before it was done.
      const Nanos begin = std::max(started.begin, own.last_end);
      complete(started.op, begin, std::move(error));
      call_lanes();
    }
  }

  /// Waits for the lane's next op; none once the driver closes.
  std::optional<OpRef> take(LaneId lane, std::unique_lock<std::mutex>& lock) {
    Lane& own = lanes_[lane];
    while (true) {
      own.called = false;
      const auto op = board_.next(lane);
      if (op) own.busy.begin(now_ns());
      call_lanes();
      if (op || closing_) return op;
      own.work.wait(lock);
    }
  }

  /// Comes with the lock held, leaves without.
  Started start(OpRef ref, std::unique_lock<std::mutex>& lock) {
    const prefetch::Program& program = board_.program(ref.instance);
    const NamedSlots slots = named_slots(board_, ref);
    const std::vector<OpRef> waits = board_.stream_waits(ref);
    const std::uint64_t tag = records_.tag(ref.instance);
    lock.unlock();
    const Nanos begin = now_ns();
    try {
      return {ref, begin,
              handler_.start({ref, program, program.ops()[ref.index], tag, slots, waits}), nullptr};
    } catch (...) {
      return {ref, begin, {}, std::current_exception()};
    }
  }

  void complete(OpRef ref, Nanos begin, std::exception_ptr error) {
    const Nanos now = now_ns();
    lanes_[board_.op(ref).lane].last_end = now;
    add_span(trace_, board_, ref, begin, now);
    if (error) fail(std::move(error));
    const auto freed = board_.completed(ref);
    lanes_[board_.op(ref).lane].busy.end(now);
    try {
      for (const prefetch::Freed& slot : freed) handler_.freed(slot);
    } catch (...) {
      fail(std::current_exception());
    }
    if (board_.finished(ref.instance)) record(ref.instance, now);
    if (board_.stuck()) fail_stuck();
    if (board_.idle()) progress_.notify_all();
  }

  void record(std::uint32_t instance, Nanos now) {
    std::vector<Nanos> busy;
    for (const Lane& lane : lanes_) busy.push_back(lane.busy.total(now));
    records_.finish(instance, now, std::move(busy));
    progress_.notify_all();
  }

  /// Wakes one worker of each lane that has an op to start; it wakes the next one in take(). Lanes
  /// with nothing to start sleep on: many threads on few cores would only get in each other's way.
  void call_lanes() {
    for (LaneId lane = 0; lane < lanes_.size(); ++lane) {
      if (lanes_[lane].called || !board_.has_next(lane)) continue;
      lanes_[lane].called = true;
      lanes_[lane].work.notify_one();
    }
  }

  void halt() {
    stopped_ = true;
    board_.stop();
    progress_.notify_all();
  }
  void fail(std::exception_ptr error) {
    if (!error_) error_ = std::move(error);
    halt();
  }
  void fail_stuck() {
    fail(std::make_exception_ptr(
        Error(Errc::kLogic,
              "work is left, nothing runs and nothing can start: was every program checked against "
              "these pools and lanes?")));
  }

  Handler& handler_;
  Trace* const trace_;
  std::mutex mutex_;  // guards everything below
  prefetch::Scoreboard board_;
  std::vector<Lane> lanes_;
  Records records_;
  std::condition_variable progress_;  // wait() waits here
  std::exception_ptr error_;          // the first one
  bool stopped_ = false;
  bool refused_ = false;  // a program came after the stop
  bool closing_ = false;
  bool issuing_ended_ = false;
  std::vector<std::jthread> workers_;
  std::vector<std::jthread> completers_;
};

}  // namespace

std::unique_ptr<Driver> overlapped(const Machine& machine, Handler& handler) {
  return std::make_unique<Overlapped>(machine, handler);
}

}  // namespace sluice::executor
