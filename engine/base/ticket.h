/// What a host thread waits on: one piece of asynchronous work.
///
/// Owns    a share of whatever the work needs (`keep`): dropping a ticket never frees memory in
///         flight
/// Thread  copies may be waited on by several threads; one TicketSource finishes it, once
/// Throws  wait() rethrows the error of the work, in every waiter
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/base/clock.h"

namespace sluice {

class Ticket {
 public:
  /// An empty ticket is already done, without error.
  Ticket() = default;

  bool done() const noexcept;
  /// Blocks until the work is done, then rethrows its error if it has one.
  void wait() const;
  /// Blocks until the work is done; the error, or null. For those who must go on after a failure.
  std::exception_ptr wait_error() const noexcept;
  /// When the work began, by its own account; 0 until it is done, and when nobody said.
  Nanos began() const noexcept;
  /// When the work ended, likewise; 0 until it is done.
  Nanos ended() const noexcept;

  /// Done when this is and `work` has run after it, on the thread that waits first: somebody must.
  /// It is not run when this fails. Its error is the ticket's.
  Ticket then(std::function<void()> work) const;

  /// Done when all of them are; its error is that of the first of them that has one.
  static Ticket all(std::vector<Ticket> tickets);

 private:
  friend class TicketSource;
  struct State {
    std::atomic<bool> done{false};
    Nanos began = 0;  // written before done, as the end and the error
    Nanos ended = 0;
    std::exception_ptr error;
    std::shared_ptr<void> keep;  // dropped when done
    std::vector<Ticket> all;     // instead of everything above, but for what then() needs:
    std::function<void()> work;  // dropped when it has run
    bool has_work = false;
    std::once_flag run;
  };
  static std::exception_ptr run_work(State& state, std::exception_ptr error) noexcept;
  explicit Ticket(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// The side that does the work. One of finish() and fail() is called, once; a source dropped before
/// that fails its ticket with kLogic, so that nobody waits for ever.
class TicketSource {
 public:
  explicit TicketSource(std::shared_ptr<void> keep = nullptr);
  TicketSource(TicketSource&&) noexcept = default;
  TicketSource& operator=(TicketSource&&) = delete;
  ~TicketSource();

  Ticket ticket() const { return Ticket(state_); }
  /// The work began: for work that waits in a queue first. At most once, before the end. Times are
  /// given by those who hear of it later than it was.
  void begin(Nanos at = now_ns()) noexcept { state_->began = at; }
  void finish(Nanos at = now_ns()) noexcept;
  void fail(std::exception_ptr error, Nanos at = now_ns()) noexcept;

 private:
  std::shared_ptr<Ticket::State> state_;  // null once finished
};

}  // namespace sluice
