#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
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

/// The two threads of a queue and what they share: one serves the ring, the other watches that what
/// the ring was given comes back, because the first may itself be held by the kernel. It outlives
/// the queue then.
class Loop {
 public:
  Loop(const Options& options, std::shared_ptr<KernelSeam> seam)
      : timeout_(options.timeout),
        seam_(std::move(seam)),
        slots_(kOps * std::size_t{options.queue_depth}) {
    for (std::size_t i = 0; i < slots_.size(); ++i) free_[i % kOps].push_back(&slots_[i]);
  }

  void push(std::shared_ptr<Job> job) {
    {
      const std::lock_guard lock(mutex_);
      SLUICE_CHECK(!closed_, kLogic, "an I/O request came after its queue was closed");
      if (lost_) std::rethrow_exception(lost_);
      if (job) inbox_.push_back(std::move(job));
    }
    wake_.signal();
  }

  void enrol(const Enrolment& most) {
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

  /// Returns when everything taken is done and the ring is gone: true; or when that may never be:
  /// false.
  bool close() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    wake_.signal();
    changed_.wait(lock, [this] { return ended_ || lost_; });
    changed_.wait_for(lock, kMomentLooks * kLook, [this] { return ended_; });
    return ended_;
  }

  std::string describe() const {
    const std::lock_guard lock(mutex_);
    return described_;
  }

  /// What the first thread does.
  void run(const MakeRing& make_ring) {
    std::exception_ptr error;
    try {
      const std::unique_ptr<Ring> ring = make_ring(static_cast<unsigned>(slots_.size()), wake_);
      say_made(*ring);
      serve(*ring);
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    if (error && !lost_) lose(error);
    ended_ = true;
    changed_.notify_all();
  }

  /// Returns when there is a ring; throws why there will be none.
  void wait_until_made() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return made_ || ended_; });
    if (!made_) std::rethrow_exception(lost_);
  }

  /// What the second thread does, until the first has ended: that one looks for what is overdue
  /// itself, but where one stay in the kernel has no end. After a pause of the whole process both
  /// wake late, and the first needs a moment to see what has come back.
  void watch() {
    std::unique_lock lock(mutex_);
    Clock::time_point looked = Clock::now();
    std::uint64_t stay = 0;
    unsigned looks = 0;
    while (!ended_ && !lost_) {
      changed_.wait_for(lock, kLook);
      if (ended_ || lost_) return;
      if (Clock::now() - looked < kLook) continue;
      looked = Clock::now();
      const Piece* const late = in_kernel_ ? find_overdue() : nullptr;
      looks = late != nullptr && stay == stays_ ? looks + 1 : 0;
      stay = stays_;
      if (looks < kMomentLooks) continue;
      lose(std::make_exception_ptr(overdue(*late, timeout_, in_flight())));
    }
  }

 private:
  void say_made(const Ring& ring) {
    const std::lock_guard lock(mutex_);
    described_ = ring.describe();
    made_ = true;
    changed_.notify_all();
  }

  void serve(Ring& ring) {
    for (;;) {
      const bool closed = take_inbox(ring);
      fill(ring);
      if (closed && backlog_.empty() && in_flight() == 0) return;
      if (!enter(ring)) return;
      reap(ring);
      look_for_overdue();
    }
  }

  /// True when nothing will follow.
  bool take_inbox(Ring& ring) {
    const std::lock_guard lock(mutex_);
    for (auto& job : inbox_) backlog_.push(std::move(job));
    inbox_.clear();
    if (enrolment_) {
      ring.enrol(*enrolment_);
      described_ = ring.describe();
      enrolment_.reset();
      enrolled_.set_value();
    }
    return closed_;
  }

  void fill(Ring& ring) {
    for (Piece* piece : std::exchange(again_, {})) issue(ring, *piece);
    for (const Op op : {Op::kRead, Op::kWrite}) {
      auto& free = free_[static_cast<std::size_t>(op)];
      while (!free.empty() && backlog_.has(op)) {
        Piece* slot = free.back();
        free.pop_back();
        *slot = backlog_.take(op);
        issue(ring, *slot);
      }
    }
  }

  void issue(Ring& ring, Piece& piece) {
    piece.since = Clock::now();
    ring.prepare(piece, seam_ ? seam_->ask(piece.rest) : piece.rest.bytes);
  }

  /// False when everything was given up meanwhile.
  bool enter(Ring& ring) {
    const std::chrono::milliseconds at_most = in_flight() > 0 ? kLook : kIdle;
    set_in_kernel(true);
    ring.enter(at_most);
    return set_in_kernel(false);
  }
  bool set_in_kernel(bool now) {
    const std::lock_guard lock(mutex_);
    in_kernel_ = now;
    stays_ += now ? 1 : 0;
    return !lost_;
  }

  void reap(Ring& ring) {
    bool pause = false;
    while (const std::optional<Answer> answer = ring.answer()) {
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

  const Piece* find_overdue() const {
    const Clock::time_point now = Clock::now();
    const auto late = std::ranges::find_if(
        slots_, [&](const Piece& piece) { return piece.job && now - piece.since > timeout_; });
    return late == slots_.end() ? nullptr : &*late;
  }

  void look_for_overdue() {
    const Clock::time_point now = Clock::now();
    if (now - looked_ < kLook) return;
    looked_ = now;
    if (const Piece* late = find_overdue()) throw overdue(*late, timeout_, in_flight());
  }

  std::size_t in_flight() const { return slots_.size() - free_[0].size() - free_[1].size(); }

  /// Nothing comes back any more: fail everything, and never free what the kernel may still be
  /// writing to. The lock is held.
  void lose(const std::exception_ptr& error) {
    lost_ = error;
    for (auto& job : inbox_) backlog_.push(std::move(job));
    inbox_.clear();
    if (std::exchange(enrolment_, std::nullopt)) enrolled_.set_value();
    for (Piece& slot : slots_) {
      if (slot.job) slot.job->abandon(error);
    }
    backlog_.abandon(error);
    changed_.notify_all();
  }

  static constexpr std::size_t kOps = 2;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<KernelSeam> seam_;
  const EventFd wake_;

  // Of the thread that serves; while that is in the kernel, of whoever holds the lock.
  std::vector<Piece> slots_;                    // what is in flight
  std::array<std::vector<Piece*>, kOps> free_;  // slots without a piece, by Op
  std::vector<Piece*> again_;                   // slots to issue once more
  Backlog backlog_;
  Clock::time_point looked_ = Clock::now();

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Job>> inbox_;
  std::optional<Enrolment> enrolment_;
  std::promise<void> enrolled_;
  std::string described_;
  bool made_ = false;
  bool in_kernel_ = false;
  std::uint64_t stays_ = 0;  // in the kernel, so far
  bool closed_ = false;
  bool ended_ = false;
  std::exception_ptr lost_;
};

class RingQueue final : public IoQueue {
 public:
  RingQueue(const Options& options, std::shared_ptr<KernelSeam> seam, const MakeRing& make_ring)
      : depth_(options.queue_depth),
        block_size_(options.block_size),
        loop_(std::make_shared<Loop>(options, std::move(seam))) {
    try {
      ring_ = std::thread([loop = loop_, make_ring] {
        name_this_thread("nvme ring");
        loop->run(make_ring);
      });
      watch_ = std::thread([loop = loop_] {
        name_this_thread("nvme watch");
        loop->watch();
      });
      loop_->wait_until_made();
    } catch (const std::system_error& error) {
      close();
      throw Error(Errc::kEnv, fmt::format("cannot start the I/O threads: {}", error.what()));
    } catch (...) {
      close();
      throw;
    }
  }
  ~RingQueue() override { close(); }

  using IoQueue::submit;
  Ticket submit(std::span<const Request> requests, std::shared_ptr<void> keep) override {
    auto job = std::make_shared<Job>(requests, block_size_, std::move(keep));
    if (!job->has_next()) job.reset();
    Ticket ticket = job ? job->ticket() : Ticket();
    loop_->push(std::move(job));
    return ticket;
  }

  void enrol(const Enrolment& most) override { loop_->enrol(most); }

  void close() noexcept override {
    std::call_once(closing_, [this] {
      if (!ring_.joinable()) return;
      if (loop_->close()) {
        ring_.join();
      } else {
        ring_.detach();
      }
      if (watch_.joinable()) watch_.join();
    });
  }

  std::string describe() const override {
    return fmt::format("{}, {} x {} in flight each way", loop_->describe(), depth_,
                       format_bytes(block_size_));
  }

 private:
  const unsigned depth_;
  const Bytes block_size_;
  const std::shared_ptr<Loop> loop_;
  std::once_flag closing_;
  std::thread ring_;
  std::thread watch_;
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
