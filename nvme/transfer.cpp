#include "nvme/transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "engine/base/error.h"

namespace sluice::nvme {
namespace {

// A piece that gets nowhere this often in a row is given up. The kernel's "try later" comes with
// pauses of a millisecond, so these are seconds; answers that bring nothing repeat at once.
constexpr unsigned kMaxLater = 5000;
constexpr unsigned kMaxEmpty = 16;

std::string hint_of(int error) {
  switch (error) {
    case EIO:
      return "; the drive or its driver failed: see `dmesg`";
    case ENOSPC:
    case EDQUOT:
      return "; the filesystem is full: free some space";
    case EINVAL:
      return "; if this drive needs more than 4 KiB alignment, set aio.direct: false";
    default:
      return "";
  }
}

Step fail(Piece& piece, const std::string& why) {
  const Request& at = piece.rest;
  piece.error = std::make_exception_ptr(
      Error(Errc::kIo, fmt::format("{}: {} of {} bytes at offset {} failed: {}", at.file->path(),
                                   name_of(at.op), at.bytes, at.offset, why)));
  return Step::kFailed;
}

Step fail(Piece& piece, int error) {
  return fail(piece, text_of_errno(error) + hint_of(error));
}

Step stall(Piece& piece, std::int64_t result) {
  if (++piece.stalls < kMaxEmpty) return Step::kAgain;
  return fail(piece,
              fmt::format("the kernel moves {} bytes at a time and gets no further; the file "
                          "may end here",
                          result));
}

}  // namespace

std::string text_of_errno(int error) {
  return fmt::format("{} (errno {})", std::generic_category().message(error), error);
}

Job::Job(std::span<const Request> requests, Bytes block_size, std::shared_ptr<void> keep)
    : block_size_(block_size), keep_(keep), source_(std::move(keep)) {
  for (const Request& request : requests) {
    check(request);
    SLUICE_CHECK(request.op == requests.front().op, kLogic,
                 "the requests of one ticket all read or all write");
    left_ += request.bytes;
    if (request.bytes > 0) requests_.push_back(request);
  }
}

Request Job::next() {
  Request& left = requests_[at_];
  Request piece = left;
  piece.bytes = std::min(left.bytes, block_size_);
  left.offset += piece.bytes;
  left.data += piece.bytes;
  left.bytes -= piece.bytes;
  if (left.bytes == 0) ++at_;
  left_ -= piece.bytes;
  ++under_way_;
  return piece;
}

bool Job::end(std::exception_ptr error) {
  --under_way_;
  if (!error_) error_ = std::move(error);
  return under_way_ == 0 && !has_next();
}

void Job::finish() noexcept {
  keep_.reset();
  source_.fail(error_);  // a copy: has_next() must stay false, the backlog may still hold this job
}

void Job::abandon(const std::exception_ptr& error) noexcept {
  if (keep_) new std::shared_ptr<void>(std::move(keep_));
  source_.fail(error);
}

Step advance(Piece& piece, std::int64_t result) {
  Request& rest = piece.rest;
  if (result == -EINTR) return Step::kAgain;
  if (result == -EAGAIN) {
    return ++piece.stalls < kMaxLater ? Step::kAgainLater : fail(piece, EAGAIN);
  }
  if (result < 0) return fail(piece, static_cast<int>(-result));
  if (result == 0 && rest.op == Op::kRead) return fail(piece, "the file ends here");
  auto moved = static_cast<Bytes>(result);
  if (moved > rest.bytes) {
    return fail(piece, fmt::format("the kernel claims to have moved {} bytes", moved));
  }
  // O_DIRECT can only go on from an aligned offset, so a ragged end is transferred again.
  if (moved < rest.bytes && rest.file->caching() == Caching::kDirect) moved -= moved % kAlignment;
  if (moved == 0) return stall(piece, result);
  rest.offset += moved;
  rest.data += moved;
  rest.bytes -= moved;
  piece.stalls = 0;
  return rest.bytes == 0 ? Step::kDone : Step::kAgain;
}

Error overdue(const Piece& piece, std::chrono::milliseconds timeout, std::size_t in_flight) {
  const Request& at = piece.rest;
  return Error(Errc::kWatchdog,
               fmt::format("{}: {} of {} bytes at offset {} has not come back for {:g} s, of {} in "
                           "flight; the drive or its driver hangs: see `dmesg`, or raise "
                           "aio.timeout",
                           at.file->path(), name_of(at.op), at.bytes, at.offset,
                           std::chrono::duration<double>(timeout).count(), in_flight));
}

void Backlog::push(std::shared_ptr<Job> job) {
  auto& jobs = jobs_[static_cast<std::size_t>(job->op())];
  const auto left = [](const auto& of) { return of->left(); };
  jobs.insert(std::ranges::upper_bound(jobs, job->left(), {}, left), std::move(job));
}

/// One of whose pieces one failed has none left.
bool Backlog::has(Op op) {
  auto& jobs = jobs_[static_cast<std::size_t>(op)];
  while (!jobs.empty() && !jobs.front()->has_next()) jobs.pop_front();
  return !jobs.empty();
}

Piece Backlog::take(Op op) {
  Piece piece;
  piece.job = jobs_[static_cast<std::size_t>(op)].front();
  piece.rest = piece.job->next();
  return piece;
}

void Backlog::abandon(const std::exception_ptr& error) {
  for (auto& jobs : jobs_) {
    for (const auto& job : std::exchange(jobs, {})) job->abandon(error);
  }
}

}  // namespace sluice::nvme
