// Preloaded into the program: once a run has its folder, no read of a drive's threads comes back.
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <string_view>

namespace {

bool on_a_thread_of_the_drive() {
  std::array<char, 16> name{};
  ::pthread_getname_np(::pthread_self(), name.data(), name.size());
  return std::string_view(name.data()) == "nvme io";
}

ssize_t read_or_hang(int fd, void* data, size_t bytes, off_t offset) {
  const bool begun = ::access("runs/run/metrics.jsonl", F_OK) == 0;
  while (begun && on_a_thread_of_the_drive()) ::pause();
  return ::syscall(SYS_pread64, fd, data, bytes, offset);
}

}  // namespace

extern "C" {
ssize_t pread(int fd, void* data, size_t bytes, off_t offset) {
  return read_or_hang(fd, data, bytes, offset);
}
ssize_t pread64(int fd, void* data, size_t bytes, off_t offset) {
  return read_or_hang(fd, data, bytes, offset);
}
}
