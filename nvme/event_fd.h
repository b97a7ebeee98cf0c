/// Wakes a thread that sleeps in the kernel.
#pragma once

namespace sluice::nvme {

/// Owns    the descriptor
/// Thread  signal() from any; clear() from the one that sleeps
/// Throws  kEnv when the process has no descriptor left
class EventFd {
 public:
  EventFd();
  EventFd(const EventFd&) = delete;
  EventFd& operator=(const EventFd&) = delete;
  ~EventFd();

  int get() const { return fd_; }
  void signal() const;
  void clear() const;

 private:
  int fd_;
};

}  // namespace sluice::nvme
