#include "nvme/thread_queue.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/threads.h"
#include "nvme/transfer.h"

namespace sluice::nvme {
namespace {

using Clock = std::chrono::steady_clock;

/// Waits until the drive has what was written into the page cache: of an error that came later
/// nobody would know. `n`, or -errno.
std::int64_t settle(int fd, off_t offset, ssize_t n) {
  constexpr unsigned kWhole =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  if (::sync_file_range(fd, offset, n, kWhole) == 0) return n;
  const bool unknown = errno == ENOSYS || errno == EINVAL || errno == ESPIPE;
  if (!unknown) return -errno;
  return ::fdatasync(fd) == 0 ? n : -errno;
}

/// What the threads of a queue share. It outlives the queue when one of them hangs in the kernel.
class Workers {
 public:
  Workers(const Options& options, std::shared_ptr<KernelSeam> seam)
      : timeout_(options.timeout), seam_(std::move(seam)) {}

  void push(std::shared_ptr<Job> job) {
    {
      const std::lock_guard lock(mutex_);
      SLUICE_CHECK(!closed_, kLogic, "an I/O request came after its queue was closed");
      if (lost_) std::rethrow_exception(lost_);
      if (job) backlog_.push(std::move(job));
    }
    changed_.notify_all();
  }

  /// Returns when everything taken is done: true; or when it never will be: false.
  bool close() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return lost_ || over(); });
    return lost_ == nullptr;
  }

  void work(Op op) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return lost_ || closed_ || backlog_.has(op); });
      if (lost_ || !backlog_.has(op)) return;
      Piece piece = backlog_.take(op);
      in_flight_.push_back(&piece);
      transfer(piece, lock);
      if (lost_) return;
      std::erase(in_flight_, &piece);
      const bool last = piece.job->end(std::move(piece.error));
      if (closed_) changed_.notify_all();
      if (!last) continue;
      lock.unlock();
      piece.job->finish();
      piece.job.reset();
      lock.lock();
    }
  }

  /// Until the queue is closed: fails everything once a transfer is overdue.
  void watch() {
    std::unique_lock lock(mutex_);
    Clock::time_point looked = Clock::now(), suspect = {};
    unsigned looks = 0;
    while (!lost_ && !(closed_ && over())) {
      changed_.wait_for(lock, kLook);
      if (Clock::now() - looked < kLook) continue;
      looked = Clock::now();
      const auto late = std::ranges::find_if(
          in_flight_, [&](const Piece* piece) { return Clock::now() - piece->since > timeout_; });
      // After a pause of the whole process all wake late: who is back soon was not overdue.
      const Clock::time_point since = late == in_flight_.end() ? suspect : (*late)->since;
      looks = late != in_flight_.end() && since == suspect ? looks + 1 : 0;
      suspect = since;
      if (looks < kMomentLooks) continue;
      lost_ = std::make_exception_ptr(overdue(**late, timeout_, in_flight_.size()));
      for (const Piece* piece : in_flight_) piece->job->abandon(lost_);
      backlog_.abandon(lost_);
    }
    changed_.notify_all();
  }

 private:
  bool over() { return backlog_.empty() && in_flight_.empty(); }

  /// The lock is held but while the kernel works. Once the queue is lost, files and memory of the
  /// piece may be gone.
  void transfer(Piece& piece, std::unique_lock<std::mutex>& lock) {
    for (Step step = Step::kAgain; step == Step::kAgain || step == Step::kAgainLater;) {
      piece.since = Clock::now();
      const Request rest = piece.rest;
      const int fd = rest.file->fd();
      const Caching caching = rest.file->caching();
      lock.unlock();
      if (step == Step::kAgainLater) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::int64_t result = call_kernel(rest, fd, caching);
      lock.lock();
      if (result == KernelSeam::kNever) changed_.wait(lock, [this] { return lost_ != nullptr; });
      if (lost_) return;
      step = advance(piece, result);
    }
  }

  std::int64_t call_kernel(const Request& piece, int fd, Caching caching) const {
    const Bytes bytes = seam_ ? seam_->ask(piece) : piece.bytes;
    const auto offset = static_cast<off_t>(piece.offset);
    const ssize_t moved = piece.op == Op::kRead ? ::pread(fd, piece.data, bytes, offset)
                                                : ::pwrite(fd, piece.data, bytes, offset);
    std::int64_t result = moved >= 0 ? moved : -errno;
    if (result > 0 && piece.op == Op::kWrite && caching == Caching::kPageCache) {
      result = settle(fd, offset, moved);
    }
    return seam_ ? seam_->answer(piece, result) : result;
  }

  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<KernelSeam> seam_;
  std::mutex mutex_;  // guards what follows, and the jobs
  std::condition_variable changed_;
  Backlog backlog_;
  std::vector<Piece*> in_flight_;  // on the stacks of their threads
  bool closed_ = false;
  std::exception_ptr lost_;
};

class ThreadQueue final : public IoQueue {
 public:
  ThreadQueue(const Options& options, std::shared_ptr<KernelSeam> seam)
      : block_size_(options.block_size),
        each_way_(threads_each_way(options)),
        workers_(std::make_shared<Workers>(options, std::move(seam))) {
    try {
      threads_.emplace_back([workers = workers_] {
        name_this_thread("nvme watch");
        workers->watch();
      });
      for (unsigned i = 0; i < 2 * each_way_; ++i) {
        threads_.emplace_back([workers = workers_, op = i % 2 == 0 ? Op::kRead : Op::kWrite] {
          name_this_thread("nvme io");
          workers->work(op);
        });
      }
    } catch (const std::system_error& error) {
      close();
      throw Error(Errc::kEnv, fmt::format("cannot start {} I/O threads: {}; lower aio.threads",
                                          2 * each_way_ + 1, error.what()));
    }
  }
  ~ThreadQueue() override { close(); }

  using IoQueue::submit;
  Ticket submit(std::span<const Request> requests, std::shared_ptr<void> keep) override {
    auto job = std::make_shared<Job>(requests, block_size_, std::move(keep));
    if (!job->has_next()) job.reset();
    Ticket ticket = job ? job->ticket() : Ticket();
    workers_->push(std::move(job));
    return ticket;
  }

  void close() noexcept override {
    std::call_once(closing_, [this] {
      const bool whole = workers_->close();
      for (std::thread& thread : threads_) {
        if (whole) {
          thread.join();
        } else {
          thread.detach();
        }
      }
    });
  }

  std::string describe() const override {
    return fmt::format("threads, {} x {} in flight each way", each_way_, format_bytes(block_size_));
  }

 private:
  const Bytes block_size_;
  const unsigned each_way_;
  const std::shared_ptr<Workers> workers_;
  std::once_flag closing_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<IoQueue> make_thread_queue(const Options& options,
                                           std::shared_ptr<KernelSeam> seam) {
  return std::make_unique<ThreadQueue>(options, std::move(seam));
}

}  // namespace sluice::nvme
