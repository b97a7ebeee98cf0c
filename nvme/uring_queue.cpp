#include "nvme/uring_queue.h"

#include <fmt/format.h>
#include <liburing.h>
#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/pages.h"
#include "nvme/ring.h"

namespace sluice::nvme {
namespace {

constexpr Bytes kBuffer = 64_MiB;  // few requests lie across two; the kernel takes 16,384 of them

int read_disabled() {
  std::ifstream file("/proc/sys/kernel/io_uring_disabled");
  int value = 0;
  return file >> value ? value : 0;
}

Error no_uring(int error) {
  return Error(Errc::kEnv, why_no_uring(error, read_disabled()));
}

/// How a ring may be set up, the best first; a kernel that does not know one of the flags says so.
struct Mode {
  unsigned flags;
  const char* name;
};
constexpr Mode kModes[] = {
    {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, "deferred task work"},  // 6.1
    {IORING_SETUP_COOP_TASKRUN, "cooperative task work"},                             // 5.19
    {0, ""},
};

/// A ring that has proved itself: setup, the operations we need, and one round trip, because some
/// sandboxes allow the first and refuse the last.
class UringRing final : public Ring {
 public:
  UringRing(unsigned transfers, const EventFd& wake) : wake_(wake) {
    int error = EINVAL;
    for (const Mode& mode : kModes) {
      error = set_up(transfers, mode);
      if (error == 0) mode_ = mode.name;
      if (error != EINVAL) break;
    }
    if (error != 0) throw no_uring(error);
    error = try_out();
    if (error == 0) return;
    io_uring_queue_exit(&ring_);
    throw no_uring(error);
  }
  ~UringRing() override { io_uring_queue_exit(&ring_); }

  void prepare(Piece& piece, Bytes bytes) override {
    const Request& rest = piece.rest;
    const auto file = std::find(files_.begin(), files_.end(), rest.file);
    const bool known = file != files_.end();
    const int fd = known ? static_cast<int>(file - files_.begin()) : rest.file->fd();
    const auto size = static_cast<unsigned>(bytes);
    io_uring_sqe* sqe = free_entry();
    if (const std::optional<int> buffer = pinned(rest.data, bytes)) {
      if (rest.op == Op::kRead) {
        io_uring_prep_read_fixed(sqe, fd, rest.data, size, rest.offset, *buffer);
      } else {
        io_uring_prep_write_fixed(sqe, fd, rest.data, size, rest.offset, *buffer);
      }
    } else if (rest.op == Op::kRead) {
      io_uring_prep_read(sqe, fd, rest.data, size, rest.offset);
    } else {
      io_uring_prep_write(sqe, fd, rest.data, size, rest.offset);
    }
    if (rest.op == Op::kWrite) sqe->rw_flags = write_flags(*rest.file);
    if (known) sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data(sqe, &piece);
  }

  void enter(std::chrono::milliseconds at_most) override {
    arm();
    __kernel_timespec limit = {};
    limit.tv_sec = at_most.count() / 1000;
    limit.tv_nsec = at_most.count() % 1000 * 1'000'000;
    io_uring_cqe* first = nullptr;
    judge(io_uring_submit_and_wait_timeout(&ring_, &first, 1, &limit, nullptr));
  }

  std::optional<Answer> answer() override {
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
      const Answer answer{static_cast<Piece*>(io_uring_cqe_get_data(cqe)), cqe->res};
      io_uring_cqe_seen(&ring_, cqe);
      if (answer.piece != nullptr) return answer;
      wake_.clear();
      armed_ = false;
    }
    return std::nullopt;
  }

  void enrol(const Enrolment& most) override {
    std::vector<int> descriptors;
    for (const File* file : most.files) descriptors.push_back(file->fd());
    const int files = io_uring_register_files(&ring_, descriptors.data(),
                                              static_cast<unsigned>(descriptors.size()));
    if (files == 0) files_ = most.files;

    std::vector<iovec> buffers;
    for (const std::span<std::byte> memory : most.memory) {
      for (const std::span<std::byte> of : buffers_of(memory)) {
        buffers.push_back({of.data(), of.size()});
      }
    }
    std::ranges::sort(buffers, std::less<>(), &iovec::iov_base);
    const int pinned = buffers.empty()
                           ? 0
                           : io_uring_register_buffers(&ring_, buffers.data(),
                                                       static_cast<unsigned>(buffers.size()));
    if (pinned == 0) buffers_ = std::move(buffers);
    enrolled_ = fmt::format(", {}, {}", files == 0 ? "fixed files" : "files looked up each time",
                            pinned == 0 ? "fixed buffers" : why_not_pinned(-pinned));
  }

  std::string describe() const override {
    return fmt::format("io_uring{}{}{}", *mode_ == 0 ? "" : ", ", mode_, enrolled_);
  }

 private:
  int set_up(unsigned transfers, const Mode& mode) {
    io_uring_params params = {};
    params.flags = IORING_SETUP_CQSIZE | mode.flags;
    // One for each transfer: there is always a free one. The wake-up, and a timer before 5.11.
    const unsigned entries = transfers + 2;
    params.cq_entries = entries;
    ring_ = {};
    return -io_uring_queue_init_params(entries, &ring_, &params);
  }

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

  /// Wakes when the eventfd is signalled.
  void arm() {
    if (std::exchange(armed_, true)) return;
    io_uring_sqe* sqe = free_entry();
    io_uring_prep_poll_add(sqe, wake_.get(), POLLIN);
    io_uring_sqe_set_data(sqe, nullptr);
  }

  /// There is one, but where a kernel before 5.11 takes none again and again.
  io_uring_sqe* free_entry() {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    SLUICE_CHECK(sqe != nullptr, kIo,
                 "io_uring stopped working: the kernel takes nothing; set aio.engine: threads");
    return sqe;
  }

  static void judge(int entered) {
    if (entered >= 0 || entered == -EINTR || entered == -ETIME) return;
    if (entered == -EAGAIN || entered == -EBUSY) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    throw Error(Errc::kIo, fmt::format("io_uring stopped working: {}; set aio.engine: threads",
                                       text_of_errno(-entered)));
  }

  /// The buffer that all of these bytes lie in.
  std::optional<int> pinned(const std::byte* data, Bytes bytes) const {
    const auto above =
        std::ranges::upper_bound(buffers_, static_cast<const void*>(data), std::less<>(),
                                 [](const iovec& b) -> const void* { return b.iov_base; });
    if (above == buffers_.begin()) return std::nullopt;
    const iovec& buffer = *std::prev(above);
    const std::byte* end = static_cast<const std::byte*>(buffer.iov_base) + buffer.iov_len;
    if (data + bytes > end) return std::nullopt;
    return static_cast<int>(above - buffers_.begin()) - 1;
  }

  static std::string why_not_pinned(int error) {
    return fmt::format("buffers not fixed: {}{}", std::generic_category().message(error),
                       error == ENOMEM ? "; raise `ulimit -l`" : "");
  }

  const EventFd& wake_;
  io_uring ring_ = {};
  const char* mode_ = "";
  std::string enrolled_;
  std::vector<const File*> files_;  // by their number in the ring
  std::vector<iovec> buffers_;      // likewise
  bool armed_ = false;
};

}  // namespace

std::unique_ptr<IoQueue> make_uring_queue(const Options& options,
                                          std::shared_ptr<KernelSeam> seam) {
  return make_ring_queue(options, std::move(seam), [](unsigned transfers, const EventFd& wake) {
    return std::make_unique<UringRing>(transfers, wake);
  });
}

std::vector<std::span<std::byte>> buffers_of(std::span<std::byte> memory) {
  std::vector<std::span<std::byte>> buffers;
  while (!memory.empty()) {
    const Bytes in_page = reinterpret_cast<std::uintptr_t>(memory.data()) % kLargePage;
    Bytes n = std::min<Bytes>(memory.size(), in_page == 0 ? kBuffer : kLargePage - in_page);
    if (in_page == 0 && n > kLargePage) n -= n % kLargePage;
    buffers.push_back(memory.first(n));
    memory = memory.subspan(n);
  }
  return buffers;
}

std::string why_no_uring(int error, int disabled) {
  std::string what = "io_uring is not available: " + text_of_errno(error);
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
