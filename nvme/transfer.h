/// What every queue does with a request: cut it, count it, judge what the kernel says. No I/O here.
///
/// Thread  none of its own; each queue guards its jobs
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/ticket.h"
#include "nvme/io_queue.h"

namespace sluice::nvme {

/// What one submit() brought: its requests, how much of them is under way, and the ticket.
class Job {
 public:
  /// Throws  kLogic when a request fails check(), or some read and others write
  Job(std::span<const Request> requests, Bytes block_size, std::shared_ptr<void> keep);

  Ticket ticket() const { return source_.ticket(); }
  /// Of a job that has_next().
  Op op() const { return requests_[at_].op; }
  /// Not cut off yet.
  Bytes left() const { return left_; }

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
  Bytes left_ = 0;
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
  std::chrono::steady_clock::time_point since = {};  ///< when it was given to the kernel
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

/// "Input/output error (errno 5)".
std::string text_of_errno(int error);

/// How often a queue looks whether a piece is overdue.
inline constexpr std::chrono::milliseconds kLook{100};
/// A thread that the kernel does not keep comes back within so many looks, also after a pause of
/// the whole process (Ctrl-Z, a debugger, a frozen container).
inline constexpr unsigned kMomentLooks = 10;
/// What to say of a piece that the kernel has had for longer than `timeout`, `in_flight` pieces in
/// all.
Error overdue(const Piece& piece, std::chrono::milliseconds timeout, std::size_t in_flight);

/// The jobs that still have pieces to issue. Reads and writes apart; of those of one kind the one
/// with the least left comes first, and of two alike the one that was there before: weights that
/// are waited for overtake state that is read ahead, and jobs as long as each other do not all end
/// late and together. A long one waits for as long as shorter ones come, which of a program ends.
class Backlog {
 public:
  void push(std::shared_ptr<Job> job);
  bool has(Op op);
  bool empty() { return !has(Op::kRead) && !has(Op::kWrite); }
  /// Needs has(op).
  Piece take(Op op);
  void abandon(const std::exception_ptr& error);

 private:
  std::array<std::deque<std::shared_ptr<Job>>, 2> jobs_;  // by Op; the least left first
};

}  // namespace sluice::nvme
