#include "nvme/event_fd.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "engine/base/error.h"

namespace sluice::nvme {

EventFd::EventFd() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  SLUICE_CHECK(fd_ >= 0, kEnv,
               fmt::format("cannot make an eventfd for the I/O queue: {}; raise `ulimit -n`",
                           std::generic_category().message(errno)));
}

EventFd::~EventFd() {
  ::close(fd_);
}

// Neither can fail in a way that matters: a full counter wakes too, an empty one was read before.
void EventFd::signal() const {
  [[maybe_unused]] const int done = ::eventfd_write(fd_, 1);
}

void EventFd::clear() const {
  eventfd_t count = 0;
  [[maybe_unused]] const int done = ::eventfd_read(fd_, &count);
}

}  // namespace sluice::nvme
