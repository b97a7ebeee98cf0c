#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
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
  Overlapped(const Resources& resources, Handler& handler)
      : handler_(handler),
        trace_(resources.trace),
        board_(resources.residents, resources.pools, resources.lanes, resources.derive),
        reasons_(resources.lanes.size(), resources.pools.size()) {
    const Nanos now = now_ns();
    for (const prefetch::Lane& lane : resources.lanes)
      lanes_.emplace_back(now, reasons_.size(), lane.width);
    try {
      for (LaneId lane = 0; lane < lanes_.size(); ++lane) open(lane);
    } catch (const std::system_error& e) {
      close();
      throw Error(Errc::kEnv,
                  fmt::format("no threads for the lanes: {}; raise `ulimit -u`", e.what()));
    } catch (...) {
      close();  // else the threads that there are would wait for ever
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
    board_.stamp(now_ns());
    const std::uint32_t instance = board_.append(std::move(program));
    records_.append(tag);
    if (board_.finished(instance)) record(instance, now_ns());
    if (board_.stuck()) fail_stuck();
    call_lanes();
  }

  std::vector<Finished> wait(std::size_t in_flight) override {
    std::unique_lock lock(mutex_);
    progress_.wait(lock,
                   [&] { return stopped_ ? running_ == 0 : board_.in_flight() <= in_flight; });
    if (error_) std::rethrow_exception(error_);
    SLUICE_CHECK(!stopped_ || (board_.in_flight() == 0 && !refused_), kLogic,
                 "the run was stopped before its last op");
    return records_.take();
  }

  void stop() noexcept override {
    const std::lock_guard lock(mutex_);
    halt();
  }

  std::vector<Running> running() const override {
    std::vector<Running> all;
    const std::lock_guard lock(mutex_);
    for (const Lane& lane : lanes_) {
      for (const Taken& taken : lane.taken) all.push_back(as_running(taken));
      if (at_oldest(lane)) all.push_back(as_running({lane.enqueued.front().op, reached(lane)}));
    }
    std::ranges::sort(all, {}, &Running::since);
    return all;
  }

 private:
  /// An op that a worker has in its hands.
  struct Taken {
    OpRef op;
    Nanos begin;
  };
  /// An op whose handler has been called.
  struct Started {
    OpRef op;
    Nanos begin;  // no earlier than this
    Ticket ticket;
    std::exception_ptr error;
    bool reached = false;  // the stream has come to it, and it is in the lane's account
    std::exception_ptr wait() const { return error ? error : ticket.wait_error(); }
    /// Once waited for: it may have queued behind others after its handler returned.
    Nanos began() const { return std::max(begin, ticket.began()); }
  };
  struct Lane {
    Lane(Nanos now, std::size_t reasons, std::size_t workers) : account(now, reasons) {
      taken.reserve(workers);
    }
    std::condition_variable work;  // the workers wait here
    bool called = false;           // a worker has been notified, and has not looked since
    std::vector<Taken> taken;      // one per worker at most: it never allocates
    LaneAccount account;
    std::condition_variable arrived;  // the completer of a fifo lane waits here
    std::deque<Started> enqueued;
    Nanos last_end = 0;  // of the lane's latest completed op
  };

  using Loop = void (Overlapped::*)(LaneId);
  std::jthread thread(const std::string& name, Loop loop, LaneId lane) {
    return std::jthread([this, name, loop, lane] {
      name_this_thread(name);
      (this->*loop)(lane);
    });
  }

  void open(LaneId lane) {
    const auto& [name, width, issue] = board_.lanes()[lane];
    if (issue == Issue::kFifo) {
      workers_.push_back(thread(name, &Overlapped::issue, lane));
      completers_.push_back(thread(name + " done", &Overlapped::complete_in_order, lane));
      return;
    }
    for (std::uint32_t i = 0; i < width; ++i) {
      workers_.push_back(thread(name, &Overlapped::work, lane));
    }
  }

  /// What goes wrong in here ends the run; the thread goes on, for what is in flight. Locked.
  template <class Step>
  void guarded(Step step) noexcept {
    try {
      step();
    } catch (...) {
      fail(std::current_exception());
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
    std::unique_lock lock(mutex_);
    while (const auto taken = take(lane, lock)) {
      guarded([&] { add_to_account(taken->op, taken->begin); });
      const Started started = start(*taken, lock);
      std::exception_ptr error = started.wait();
      lock.lock();
      let_go(lane, taken->op);
      complete(taken->op, started.began(), std::move(error));
    }
  }

  void issue(LaneId lane) {
    Lane& own = lanes_[lane];
    std::unique_lock lock(mutex_);
    while (const auto taken = take(lane, lock)) {
      Started started = start(*taken, lock);
      lock.lock();
      if (started.error) fail(started.error);  // before anything may follow it
      try {
        board_.stamp(now_ns());
        board_.issued(taken->op);
        own.enqueued.push_back(std::move(started));
        own.arrived.notify_one();
      } catch (...) {
        fail(std::current_exception());
        lock.unlock();
        started.wait();  // the completer will not
        lock.lock();
        ended();
      }
      let_go(lane, taken->op);
    }
  }

  void complete_in_order(LaneId lane) {
    Lane& own = lanes_[lane];
    std::unique_lock lock(mutex_);
    while (true) {
      own.arrived.wait(lock, [&] { return !own.enqueued.empty() || issuing_ended_; });
      if (own.enqueued.empty()) return;
      const Started& oldest = own.enqueued.front();  // stays in place while others come
      lock.unlock();
      std::exception_ptr error = oldest.wait();
      lock.lock();
      guarded([&] { reach_oldest(own); });
      const Started done = std::move(own.enqueued.front());
      own.enqueued.pop_front();
      complete(done.op, done.began(), std::move(error));
      guarded([&] { call_lanes(); });
    }
  }

  /// Whether the lane's stream has come to its oldest op, or will at once.
  bool at_oldest(const Lane& lane) const {
    return !lane.enqueued.empty() && board_.stream_waits(lane.enqueued.front().op).empty();
  }

  /// The stream came to its oldest op when that was enqueued, when the one before it was done,
  /// when the last op of another stream that it waits for was, or when the op's ticket says.
  Nanos reached(const Lane& lane) const {
    const Started& oldest = lane.enqueued.front();
    if (oldest.reached) return oldest.begin;
    return std::max({oldest.began(), lane.last_end, Nanos{board_.ready_since(oldest.op)}});
  }

  void reach_oldest(Lane& lane) {
    Started& oldest = lane.enqueued.front();
    if (oldest.reached) return;
    oldest.begin = reached(lane);
    oldest.reached = true;
    add_to_account(oldest.op, oldest.begin);
  }

  void add_to_account(OpRef ref, Nanos begin) {
    lanes_[board_.op(ref).lane].account.begin(begin, board_.ready_since(ref),
                                              reasons_.of(board_.cause(ref)));
  }

  /// Waits for the lane's next op; none once the driver closes.
  std::optional<Taken> take(LaneId lane, std::unique_lock<std::mutex>& lock) {
    Lane& own = lanes_[lane];
    while (true) {
      own.called = false;
      std::optional<OpRef> op;
      guarded([&] {
        op = board_.next(lane);
        call_lanes();
      });
      if (op) {
        ++running_;
        own.taken.push_back({*op, now_ns()});
        return own.taken.back();
      }
      if (closing_) return std::nullopt;
      own.work.wait(lock);
    }
  }

  /// It is done, or in the lane's stream.
  void let_go(LaneId lane, OpRef op) {
    std::erase_if(lanes_[lane].taken, [&](const Taken& taken) { return taken.op == op; });
  }

  Running as_running(const Taken& taken) const {
    const auto& [ref, begin] = taken;
    return {ref,
            &board_.program(ref.instance),
            records_.tag(ref.instance),
            named_slots(board_, ref),
            board_.lanes()[board_.op(ref).lane].name,
            begin};
  }

  /// Comes with the lock held, leaves without.
  Started start(const Taken& taken, std::unique_lock<std::mutex>& lock) {
    const auto [ref, begin] = taken;
    try {
      const prefetch::Program& program = board_.program(ref.instance);
      const NamedSlots slots = named_slots(board_, ref);
      const std::vector<OpRef> waits = board_.stream_waits(ref);
      const std::uint64_t tag = records_.tag(ref.instance);
      lock.unlock();
      return {ref, begin,
              handler_.start({ref, program, program.ops()[ref.index], tag, slots, waits}), nullptr};
    } catch (...) {
      if (lock.owns_lock()) lock.unlock();
      return {ref, begin, {}, std::current_exception()};
    }
  }

  void complete(OpRef ref, Nanos begin, std::exception_ptr error) {
    if (error) fail(in_op(std::move(error), board_, ref));
    guarded([&] {
      const Nanos now = now_ns();
      Lane& lane = lanes_[board_.op(ref).lane];
      lane.last_end = now;
      lane.account.end(now);
      add_span(trace_, board_, ref, begin, now);
      board_.stamp(now);
      for (const prefetch::Freed& slot : board_.completed(ref)) handler_.freed(slot);
      if (board_.finished(ref.instance)) record(ref.instance, now);
      if (board_.stuck()) fail_stuck();
    });
    ended();
  }

  /// An op that was taken: wait() may return, although the scoreboard has failed over it.
  void ended() {
    if (--running_ == 0 && stopped_) progress_.notify_all();
  }

  void record(std::uint32_t instance, Nanos now) {
    Finished finished{instance, 0, now, {}, peak_slots(board_)};
    for (Lane& lane : lanes_) {
      if (at_oldest(lane)) reach_oldest(lane);
      finished.lanes.push_back(lane.account.look(now));
    }
    records_.finish(std::move(finished));
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

  void halt() noexcept {
    stopped_ = true;
    board_.stop();
    progress_.notify_all();
  }
  void fail(std::exception_ptr error) noexcept {
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
  mutable std::mutex mutex_;  // guards everything below
  prefetch::Scoreboard board_;
  const Reasons reasons_;
  std::deque<Lane> lanes_;  // a lane stays where it is
  Records records_;
  std::condition_variable progress_;  // wait() waits here
  std::exception_ptr error_;          // the first one
  std::size_t running_ = 0;           // ops that were taken and have not ended
  bool stopped_ = false;
  bool refused_ = false;  // a program came after the stop
  bool closing_ = false;
  bool issuing_ended_ = false;
  std::vector<std::jthread> workers_;
  std::vector<std::jthread> completers_;
};

}  // namespace

std::unique_ptr<Driver> overlapped(const Resources& resources, Handler& handler) {
  return std::make_unique<Overlapped>(resources, handler);
}

}  // namespace sluice::executor
