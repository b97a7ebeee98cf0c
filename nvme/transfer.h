/// What every queue does with a request: cut it, count it, judge what the kernel says. No I/O here.
///
/// Thread  none of its own; each queue guards its jobs
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/ticket.h"
#include "nvme/io_queue.h"

namespace sluice::nvme {

/// What one submit() brought: its requests, how much of them is under way, and the ticket.
class Job {
 public:
  /// Throws  kLogic when a request fails check()
  Job(std::span<const Request> requests, Bytes block_size, std::shared_ptr<void> keep);

  Ticket ticket() const { return source_.ticket(); }

  /// False too once a piece has failed: the rest is not worth writing.
  bool has_next() const { return !error_ && at_ < requests_.size(); }
  /// Cuts the next piece off. It counts as under way until end().
  Request next();

  /// A piece ended, with or without an error; the first error stays. True when the job is over:
  /// then call finish(), outside any lock, because it may run the destructor of `keep`.
  bool end(std::exception_ptr error);
  void finish() noexcept;

  /// Fails the ticket at once although the kernel may still use the memory, which is therefore kept
  /// for ever. For a queue that lost its kernel.
  void abandon(const std::exception_ptr& error) noexcept;

 private:
  std::vector<Request> requests_;  // not yet cut; empty ones are left out
  std::size_t at_ = 0;
  Bytes block_size_;
  unsigned under_way_ = 0;
  std::exception_ptr error_;
  std::shared_ptr<void> keep_;
  TicketSource source_;
};

/// A part of a request that is in flight.
struct Piece {
  std::shared_ptr<Job> job;
  Request rest;         ///< what is still to be transferred
  unsigned stalls = 0;  ///< answers in a row that brought it no further
  std::exception_ptr error;
};

enum class Step : std::uint8_t {
  kDone,
  kAgain,       ///< issue `rest` again
  kAgainLater,  ///< the same, after a breath: the kernel is short of something
  kFailed       ///< `error` says why
};

/// Moves a piece on by what the kernel answered: bytes, or a negative errno.
Step advance(Piece& piece, std::int64_t result);

/// The jobs that still have pieces to issue, first come first served.
class Backlog {
 public:
  void push(std::shared_ptr<Job> job) { jobs_.push_back(std::move(job)); }
  bool empty();
  /// Needs !empty().
  Piece take();

 private:
  std::deque<std::shared_ptr<Job>> jobs_;
};

}  // namespace sluice::nvme
