#include "nvme/libaio_queue.h"

#include <fmt/format.h>
#include <libaio.h>
#include <poll.h>

#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "nvme/ring.h"

namespace sluice::nvme {
namespace {

Error no_libaio(int error) {
  std::string what = "libaio is not available: " + text_of_errno(error);
  if (error == EAGAIN) what += "; other programs hold all of it: raise the sysctl fs.aio-max-nr";
  if (error == EINVAL) what += "; the kernel is older than 4.18";
  return Error(Errc::kEnv, what);
}

class LibaioRing final : public Ring {
 public:
  LibaioRing(unsigned transfers, const EventFd& wake)
      : wake_(wake), controls_(transfers), events_(transfers + 1) {
    for (iocb& control : controls_) free_.push_back(&control);
    const int made = io_setup(static_cast<int>(transfers + 1), &context_);
    if (made < 0) throw no_libaio(-made);
    arm();
    const int taken = io_submit(context_, 1, &pending_.front());  // the wake-up, as a trial
    if (taken == 1) {
      pending_.clear();
      return;
    }
    io_destroy(context_);
    throw no_libaio(-taken);
  }
  /// io_destroy() waits for all transfers: with one that never ends it is better left to the end of
  /// the process.
  ~LibaioRing() override {
    if (free_.size() == controls_.size()) io_destroy(context_);
  }

  void prepare(Piece& piece, Bytes bytes) override {
    iocb* control = free_.back();
    free_.pop_back();
    const Request& rest = piece.rest;
    const auto offset = static_cast<long long>(rest.offset);
    if (rest.op == Op::kRead) {
      io_prep_pread(control, rest.file->fd(), rest.data, bytes, offset);
    } else {
      io_prep_pwrite(control, rest.file->fd(), rest.data, bytes, offset);
      control->aio_rw_flags = static_cast<unsigned>(write_flags(*rest.file));
    }
    control->data = &piece;
    pending_.push_back(control);
  }

  void enter(std::chrono::milliseconds at_most) override {
    arm();
    submit();
    timespec limit = {};
    limit.tv_sec = at_most.count() / 1000;
    limit.tv_nsec = at_most.count() % 1000 * 1'000'000;
    const bool refused = next_ < answers_.size();
    if (refused) return;
    const int n =
        io_getevents(context_, 1, static_cast<long>(events_.size()), events_.data(), &limit);
    if (n == -EINTR) return;
    if (n < 0) throw stopped(-n);
    for (int i = 0; i < n; ++i) take(events_[static_cast<std::size_t>(i)]);
  }

  std::optional<Answer> answer() override {
    if (next_ < answers_.size()) return answers_[next_++];
    answers_.clear();
    next_ = 0;
    return std::nullopt;
  }

  std::string describe() const override { return "libaio"; }

 private:
  static Error stopped(int error) {
    return Error(Errc::kIo, fmt::format("libaio stopped working: {}; set aio.engine: threads",
                                        text_of_errno(error)));
  }

  void arm() {
    if (std::exchange(armed_, true)) return;
    io_prep_poll(&wake_control_, wake_.get(), POLLIN);
    wake_control_.data = nullptr;
    pending_.push_back(&wake_control_);
  }

  void submit() {
    std::size_t done = 0;
    while (done < pending_.size()) {
      const int n =
          io_submit(context_, static_cast<long>(pending_.size() - done), pending_.data() + done);
      if (n > 0) {
        done += static_cast<std::size_t>(n);
      } else if (n == -EAGAIN) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        break;
      } else if (n != -EINTR && n != 0) {
        if (pending_[done]->data == nullptr) throw stopped(-n);
        answered(pending_[done++], n);  // the kernel refuses this one alone
      }
    }
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(done));
  }

  void take(const io_event& event) {
    if (event.obj == &wake_control_) {
      wake_.clear();
      armed_ = false;
    } else {
      answered(event.obj, static_cast<std::int64_t>(event.res));
    }
  }

  void answered(iocb* control, std::int64_t result) {
    answers_.push_back({static_cast<Piece*>(control->data), result});
    free_.push_back(control);
  }

  const EventFd& wake_;
  io_context_t context_ = nullptr;
  std::vector<iocb> controls_;  // one per transfer that may be in flight
  std::vector<iocb*> free_;
  iocb wake_control_ = {};
  std::vector<iocb*> pending_;  // prepared, not handed over
  std::vector<io_event> events_;
  std::vector<Answer> answers_;  // from next_ on, not asked for yet
  std::size_t next_ = 0;
  bool armed_ = false;
};

}  // namespace

std::unique_ptr<IoQueue> make_libaio_queue(const Options& options,
                                           std::shared_ptr<KernelSeam> seam) {
  return make_ring_queue(options, std::move(seam), [](unsigned transfers, const EventFd& wake) {
    return std::make_unique<LibaioRing>(transfers, wake);
  });
}

}  // namespace sluice::nvme
