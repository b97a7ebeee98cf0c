#include "nvme/thread_queue.h"

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

class ThreadQueue final : public IoQueue {
 public:
  ThreadQueue(const Options& options, std::shared_ptr<KernelSeam> seam)
      : block_size_(options.block_size), seam_(std::move(seam)) {
    const unsigned n = std::min(options.threads.value_or(kAutoThreads), options.queue_depth);
    try {
      for (unsigned i = 0; i < n; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      close();
      throw Error(Errc::kEnv, fmt::format("cannot start {} I/O threads: {}; lower aio.threads", n,
                                          error.what()));
    }
  }
  ~ThreadQueue() override { close(); }

  using IoQueue::submit;
  Ticket submit(std::span<const Request> requests, std::shared_ptr<void> keep) override {
    auto job = std::make_shared<Job>(requests, block_size_, std::move(keep));
    Ticket ticket = job->has_next() ? job->ticket() : Ticket();
    {
      const std::lock_guard lock(mutex_);
      SLUICE_CHECK(!closed_, kLogic, "an I/O request came after its queue was closed");
      if (job->has_next()) backlog_.push(std::move(job));
    }
    wake_.notify_all();
    return ticket;
  }

  void close() noexcept override {
    std::call_once(closing_, [this] {
      {
        const std::lock_guard lock(mutex_);
        closed_ = true;
      }
      wake_.notify_all();
      for (std::thread& thread : threads_) thread.join();
    });
  }

  std::string describe() const override {
    return fmt::format("threads, {} x {} in flight", threads_.size(), format_bytes(block_size_));
  }

 private:
  void work() {
    name_this_thread("nvme io");
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return !backlog_.empty() || closed_; });
      if (backlog_.empty()) return;
      Piece piece = backlog_.take();
      lock.unlock();
      transfer(piece);
      lock.lock();
      if (piece.job->end(std::move(piece.error))) {
        lock.unlock();
        piece.job->finish();
        piece.job.reset();
        lock.lock();
      }
    }
  }

  void transfer(Piece& piece) {
    for (;;) {
      const Step step = advance(piece, call_kernel(piece.rest));
      if (step == Step::kDone || step == Step::kFailed) return;
      if (step == Step::kAgainLater) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::int64_t call_kernel(const Request& piece) {
    const Bytes bytes = seam_ ? seam_->ask(piece) : piece.bytes;
    const auto offset = static_cast<off_t>(piece.offset);
    const ssize_t moved = piece.op == Op::kRead
                              ? ::pread(piece.file->fd(), piece.data, bytes, offset)
                              : ::pwrite(piece.file->fd(), piece.data, bytes, offset);
    const std::int64_t result = moved >= 0 ? moved : -errno;
    return seam_ ? seam_->answer(piece, result) : result;
  }

  const Bytes block_size_;
  const std::shared_ptr<KernelSeam> seam_;
  std::mutex mutex_;  // guards the backlog, the jobs in it or in flight, and closed_
  std::condition_variable wake_;
  Backlog backlog_;
  bool closed_ = false;
  std::once_flag closing_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<IoQueue> make_thread_queue(const Options& options,
                                           std::shared_ptr<KernelSeam> seam) {
  return std::make_unique<ThreadQueue>(options, std::move(seam));
}

}  // namespace sluice::nvme
