#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/threads.h"
#include "nvme/ring.h"

namespace sluice::nvme {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kIdle = std::chrono::hours(1);

class RingQueue final : public IoQueue {
 public:
  RingQueue(const Options& options, std::shared_ptr<KernelSeam> seam, const MakeRing& make_ring)
      : depth_(options.queue_depth),
        block_size_(options.block_size),
        timeout_(options.timeout),
        seam_(std::move(seam)),
        slots_(kOps * std::size_t{depth_}) {
    for (std::size_t i = 0; i < slots_.size(); ++i) free_[i % kOps].push_back(&slots_[i]);
    std::promise<std::string> made;
    std::future<std::string> described = made.get_future();
    try {
      thread_ = std::thread(
          [this, make_ring, made = std::move(made)]() mutable { run(make_ring, made); });
    } catch (const std::system_error& error) {
      throw Error(Errc::kEnv, fmt::format("cannot start the I/O thread: {}", error.what()));
    }
    try {
      described_ = described.get();
    } catch (...) {
      thread_.join();
      throw;
    }
  }
  ~RingQueue() override { close(); }

  using IoQueue::submit;
  Ticket submit(std::span<const Request> requests, std::shared_ptr<void> keep) override {
    auto job = std::make_shared<Job>(requests, block_size_, std::move(keep));
    Ticket ticket = job->has_next() ? job->ticket() : Ticket();
    {
      const std::lock_guard lock(mutex_);
      SLUICE_CHECK(!closed_, kLogic, "an I/O request came after its queue was closed");
      if (lost_) std::rethrow_exception(lost_);
      if (job->has_next()) inbox_.push_back(std::move(job));
    }
    wake_.signal();
    return ticket;
  }

  void enrol(const Enrolment& most) override {
    std::future<void> done;
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || lost_) return;
      enrolment_ = most;
      enrolled_ = {};
      done = enrolled_.get_future();
    }
    wake_.signal();
    done.get();
  }

  void close() noexcept override {
    std::call_once(closing_, [this] {
      {
        const std::lock_guard lock(mutex_);
        closed_ = true;
      }
      wake_.signal();
      thread_.join();
    });
  }

  std::string describe() const override {
    const std::lock_guard lock(mutex_);
    return fmt::format("{}, {} x {} in flight each way", described_, depth_,
                       format_bytes(block_size_));
  }

 private:
  // Everything below runs on the queue's thread alone.

  void run(const MakeRing& make_ring, std::promise<std::string>& made) {
    name_this_thread("nvme ring");
    std::unique_ptr<Ring> ring;
    try {
      ring = make_ring(static_cast<unsigned>(slots_.size()), wake_);
      made.set_value(ring->describe());
    } catch (...) {
      made.set_exception(std::current_exception());
      return;
    }
    ring_ = ring.get();
    try {
      serve();
    } catch (...) {
      lose(std::current_exception());
    }
  }

  void serve() {
    for (;;) {
      const bool closed = take_inbox();
      fill();
      if (closed && backlog_.empty() && in_flight() == 0) return;
      ring_->enter(in_flight() > 0 ? kLook : kIdle);
      reap();
      look_for_overdue();
    }
  }

  /// True when nothing will follow.
  bool take_inbox() {
    const std::lock_guard lock(mutex_);
    for (auto& job : inbox_) backlog_.push(std::move(job));
    inbox_.clear();
    if (enrolment_) {
      ring_->enrol(*enrolment_);
      described_ = ring_->describe();
      enrolment_.reset();
      enrolled_.set_value();
    }
    return closed_;
  }

  void fill() {
    for (Piece* piece : std::exchange(again_, {})) issue(*piece);
    for (const Op op : {Op::kRead, Op::kWrite}) {
      auto& free = free_[static_cast<std::size_t>(op)];
      while (!free.empty() && backlog_.has(op)) {
        Piece* slot = free.back();
        free.pop_back();
        *slot = backlog_.take(op);
        issue(*slot);
      }
    }
  }

  void issue(Piece& piece) {
    piece.since = Clock::now();
    ring_->prepare(piece, seam_ ? seam_->ask(piece.rest) : piece.rest.bytes);
  }

  void reap() {
    bool pause = false;
    while (const std::optional<Answer> answer = ring_->answer()) {
      pause |= answered(*answer->piece, answer->result) == Step::kAgainLater;
    }
    if (pause) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  Step answered(Piece& piece, std::int64_t result) {
    if (seam_) result = seam_->answer(piece.rest, result);
    if (result == KernelSeam::kNever) return Step::kAgain;
    const Step step = advance(piece, result);
    if (step == Step::kAgain || step == Step::kAgainLater) {
      again_.push_back(&piece);
      return step;
    }
    free_[static_cast<std::size_t>(piece.rest.op)].push_back(&piece);
    Piece ended = std::exchange(piece, {});
    if (ended.job->end(std::move(ended.error))) ended.job->finish();
    return step;
  }

  std::size_t in_flight() const { return slots_.size() - free_[0].size() - free_[1].size(); }

  void look_for_overdue() {
    const Clock::time_point now = Clock::now();
    if (now - looked_ < kLook) return;
    looked_ = now;
    for (const Piece& piece : slots_) {
      if (piece.job && now - piece.since > timeout_) throw overdue(piece, timeout_, in_flight());
    }
  }

  /// Nothing comes back any more: fail everything, and never free what the kernel may still be
  /// writing to.
  void lose(const std::exception_ptr& error) {
    {
      const std::lock_guard lock(mutex_);
      lost_ = error;
      for (auto& job : inbox_) backlog_.push(std::move(job));
      inbox_.clear();
      if (enrolment_) enrolled_.set_value();
    }
    for (Piece& slot : slots_) {
      if (slot.job) slot.job->abandon(error);
    }
    backlog_.abandon(error);
  }

  static constexpr std::size_t kOps = 2;
  const unsigned depth_;
  const Bytes block_size_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<KernelSeam> seam_;
  const EventFd wake_;
  Ring* ring_ = nullptr;
  std::vector<Piece> slots_;                    // what is in flight
  std::array<std::vector<Piece*>, kOps> free_;  // slots without a piece, by Op
  std::vector<Piece*> again_;                   // slots to issue once more
  Backlog backlog_;
  Clock::time_point looked_ = Clock::now();

  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::shared_ptr<Job>> inbox_;
  std::optional<Enrolment> enrolment_;
  std::promise<void> enrolled_;
  std::string described_;
  bool closed_ = false;
  std::exception_ptr lost_;

  std::once_flag closing_;
  std::thread thread_;
};

}  // namespace

int write_flags(const File& file) {
  return file.caching() == Caching::kPageCache ? RWF_DSYNC : 0;
}

std::unique_ptr<IoQueue> make_ring_queue(const Options& options, std::shared_ptr<KernelSeam> seam,
                                         const MakeRing& make_ring) {
  return std::make_unique<RingQueue>(options, std::move(seam), make_ring);
}

}  // namespace sluice::nvme
