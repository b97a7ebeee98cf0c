#include "nvme/uring_queue.h"

#include <fmt/format.h>
#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
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

// The submission side may be shorter than the queue is deep: it only holds what one call hands
// over.
constexpr unsigned kMaxSubmission = 64;

int read_disabled() {
  std::ifstream file("/proc/sys/kernel/io_uring_disabled");
  int value = 0;
  return file >> value ? value : 0;
}

Error not_available(int error) {
  return Error(Errc::kEnv, why_no_uring(error, read_disabled()));
}

/// A ring that has proved itself: setup, the operations we need, and one round trip, because some
/// sandboxes allow the first and refuse the last.
class Ring {
 public:
  explicit Ring(unsigned depth) {
    io_uring_params params = {};
    params.flags = IORING_SETUP_CQSIZE;
    params.cq_entries = depth + 1;  // the pieces and the wake-up
    const int made =
        io_uring_queue_init_params(std::min(depth + 1, kMaxSubmission), &ring_, &params);
    if (made < 0) throw not_available(-made);
    const int error = try_out();
    if (error == 0) return;
    io_uring_queue_exit(&ring_);
    throw not_available(error);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() { io_uring_queue_exit(&ring_); }

  io_uring* get() { return &ring_; }

 private:
  int try_out() {
    io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
    if (probe == nullptr) return ENOSYS;
    const bool able = io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                      io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
    io_uring_free_probe(probe);
    if (!able) return ENOSYS;
    io_uring_prep_nop(io_uring_get_sqe(&ring_));
    const int entered = io_uring_submit_and_wait(&ring_, 1);
    if (entered < 0) return -entered;
    io_uring_cqe* answer = nullptr;
    const int seen = io_uring_peek_cqe(&ring_, &answer);
    if (seen < 0) return -seen;
    io_uring_cqe_seen(&ring_, answer);
    return 0;
  }

  io_uring ring_ = {};
};

class EventFd {
 public:
  EventFd() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    SLUICE_CHECK(fd_ >= 0, kEnv,
                 fmt::format("cannot make an eventfd for io_uring: {}; raise `ulimit -n`",
                             std::generic_category().message(errno)));
  }
  EventFd(const EventFd&) = delete;
  EventFd& operator=(const EventFd&) = delete;
  ~EventFd() { ::close(fd_); }

  int get() const { return fd_; }
  // Neither can fail in a way that matters: a full counter wakes too, an empty one was read before.
  void signal() const { [[maybe_unused]] const int done = ::eventfd_write(fd_, 1); }
  void clear() const {
    eventfd_t count = 0;
    [[maybe_unused]] const int done = ::eventfd_read(fd_, &count);
  }

 private:
  int fd_;
};

class UringQueue final : public IoQueue {
 public:
  UringQueue(const Options& options, std::shared_ptr<KernelSeam> seam)
      : block_size_(options.block_size),
        seam_(std::move(seam)),
        ring_(options.queue_depth),
        slots_(options.queue_depth) {
    for (Piece& slot : slots_) free_.push_back(&slot);
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& error) {
      throw Error(Errc::kEnv, fmt::format("cannot start the io_uring thread: {}", error.what()));
    }
  }
  ~UringQueue() override { close(); }

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
    return fmt::format("io_uring, {} x {} in flight", slots_.size(), format_bytes(block_size_));
  }

 private:
  // Everything below runs on the ring's thread alone.

  void run() {
    name_this_thread("nvme ring");
    try {
      for (;;) {
        const bool closed = take_inbox();
        fill();
        if (closed && backlog_.empty() && free_.size() == slots_.size()) return;
        enter(1);
        reap();
      }
    } catch (...) {
      lose(std::current_exception());
    }
  }

  /// True when nothing will follow.
  bool take_inbox() {
    if (!wake_armed_) {
      io_uring_sqe* sqe = next_sqe();
      io_uring_prep_poll_add(sqe, wake_.get(), POLLIN);
      io_uring_sqe_set_data(sqe, nullptr);
      wake_armed_ = true;
    }
    const std::lock_guard lock(mutex_);
    for (auto& job : inbox_) backlog_.push(std::move(job));
    inbox_.clear();
    return closed_;
  }

  void fill() {
    // next_sqe() may reap and so add to `again_`: take what there is now, the rest comes next time.
    for (Piece* piece : std::exchange(again_, {})) issue(piece);
    while (!free_.empty() && !backlog_.empty()) {
      Piece* slot = free_.back();
      free_.pop_back();
      *slot = backlog_.take();
      issue(slot);
    }
  }

  void issue(Piece* piece) {
    io_uring_sqe* sqe = next_sqe();
    const Request& rest = piece->rest;
    const auto bytes = static_cast<unsigned>(seam_ ? seam_->ask(rest) : rest.bytes);
    if (rest.op == Op::kRead) {
      io_uring_prep_read(sqe, rest.file->fd(), rest.data, bytes, rest.offset);
    } else {
      io_uring_prep_write(sqe, rest.file->fd(), rest.data, bytes, rest.offset);
    }
    io_uring_sqe_set_data(sqe, piece);
  }

  io_uring_sqe* next_sqe() {
    for (;;) {
      if (io_uring_sqe* sqe = io_uring_get_sqe(ring_.get())) return sqe;
      enter(0);
      reap();
    }
  }

  /// Hands over what is prepared and waits for `answers`.
  void enter(unsigned answers) {
    const int entered = io_uring_submit_and_wait(ring_.get(), answers);
    if (entered >= 0 || entered == -EINTR) return;
    if (entered == -EAGAIN || entered == -EBUSY) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    throw Error(Errc::kIo,
                fmt::format("io_uring stopped working: {} (errno {}); set aio.engine: threads",
                            std::generic_category().message(-entered), -entered));
  }

  void reap() {
    bool pause = false;
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(ring_.get(), &cqe) == 0) {
      auto* piece = static_cast<Piece*>(io_uring_cqe_get_data(cqe));
      const std::int64_t result = cqe->res;
      io_uring_cqe_seen(ring_.get(), cqe);
      if (piece == nullptr) {
        wake_.clear();
        wake_armed_ = false;
      } else {
        pause |= answered(piece, result) == Step::kAgainLater;
      }
    }
    if (pause) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  Step answered(Piece* piece, std::int64_t result) {
    const Step step = advance(*piece, seam_ ? seam_->answer(piece->rest, result) : result);
    if (step == Step::kAgain || step == Step::kAgainLater) {
      again_.push_back(piece);
      return step;
    }
    Piece ended = std::exchange(*piece, {});
    free_.push_back(piece);
    if (ended.job->end(std::move(ended.error))) ended.job->finish();
    return step;
  }

  /// The ring is gone: fail everything, and never free what the kernel may still be writing to.
  void lose(const std::exception_ptr& error) {
    {
      const std::lock_guard lock(mutex_);
      lost_ = error;
      for (auto& job : inbox_) backlog_.push(std::move(job));
      inbox_.clear();
    }
    for (Piece& slot : slots_) {
      if (slot.job) slot.job->abandon(error);
    }
    while (!backlog_.empty()) backlog_.take().job->abandon(error);
  }

  const Bytes block_size_;
  const std::shared_ptr<KernelSeam> seam_;
  EventFd wake_;
  Ring ring_;
  std::vector<Piece> slots_;   // what is in flight; a completion's user data points at its slot
  std::vector<Piece*> free_;   // slots without a piece
  std::vector<Piece*> again_;  // slots to issue once more
  Backlog backlog_;
  bool wake_armed_ = false;

  std::mutex mutex_;  // guards the three below
  std::vector<std::shared_ptr<Job>> inbox_;
  bool closed_ = false;
  std::exception_ptr lost_;

  std::once_flag closing_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<IoQueue> make_uring_queue(const Options& options,
                                          std::shared_ptr<KernelSeam> seam) {
  return std::make_unique<UringQueue>(options, std::move(seam));
}

std::string why_no_uring(int error, int disabled) {
  std::string what = fmt::format("io_uring is not available: {} (errno {})",
                                 std::generic_category().message(error), error);
  if (error == EPERM && disabled != 0) {
    return fmt::format(
        "{}: kernel.io_uring_disabled is {}; `sysctl -w kernel.io_uring_disabled=0` "
        "allows it",
        what, disabled);
  }
  if (error == EPERM || error == EACCES) {
    return what +
           ": a sandbox forbids it, as containers do by default; allow the system calls "
           "io_uring_setup, io_uring_enter and io_uring_register in its seccomp profile "
           "(docker run --security-opt seccomp=...)";
  }
  if (error == ENOSYS) return what + ": the kernel has none, or is older than 5.6";
  if (error == ENOMEM) return what + ": no memory may be locked; raise `ulimit -l`";
  return what;
}

}  // namespace sluice::nvme
