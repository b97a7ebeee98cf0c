// Loaded before a program (LD_PRELOAD): counts its calls that change files below a folder named
// checkpoints, and kills it before or after the one that SLUICE_DIE_AT names, from 1. Ends a line
// "calls N" into the file SLUICE_CALLS otherwise.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic<int> calls{0};

int number(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

bool counts(const char* path) {
  return std::strstr(path, "/checkpoints") != nullptr;
}

bool counts(int fd) {
  std::array<char, 4096> path{};
  std::array<char, 64> link{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", fd);
  return ::readlink(link.data(), path.data(), path.size() - 1) > 0 && counts(path.data());
}

/// Twice a call: before and after it.
void step() {
  static const int die_at = number("SLUICE_DIE_AT");
  if (++calls == die_at) ::kill(::getpid(), SIGKILL);
}

template <class Call>
long around(bool counted, Call call) {
  if (counted) step();
  const long result = call();
  if (counted) step();
  return result;
}

struct AtExit {
  ~AtExit() {
    if (const char* path = std::getenv("SLUICE_CALLS")) {
      std::FILE* file = std::fopen(path, "w");
      if (file == nullptr) return;
      std::fprintf(file, "%d", calls.load());
      std::fclose(file);
    }
  }
} at_exit;

}  // namespace

extern "C" {

ssize_t write(int fd, const void* data, size_t n) {
  return around(counts(fd), [&] { return ::syscall(SYS_write, fd, data, n); });
}

ssize_t pwrite(int fd, const void* data, size_t n, off_t offset) {
  return around(counts(fd), [&] { return ::syscall(SYS_pwrite64, fd, data, n, offset); });
}

int fallocate(int fd, int mode, off_t offset, off_t length) {
  return static_cast<int>(
      around(counts(fd), [&] { return ::syscall(SYS_fallocate, fd, mode, offset, length); }));
}

int fsync(int fd) {
  return static_cast<int>(around(counts(fd), [&] { return ::syscall(SYS_fsync, fd); }));
}

int rename(const char* from, const char* to) noexcept {
  return static_cast<int>(around(
      counts(to), [&] { return ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0); }));
}

int mkdir(const char* path, mode_t mode) noexcept {
  return static_cast<int>(
      around(counts(path), [&] { return ::syscall(SYS_mkdirat, AT_FDCWD, path, mode); }));
}

int unlinkat(int fd, const char* path, int flags) noexcept {
  return static_cast<int>(
      around(counts(fd) || counts(path), [&] { return ::syscall(SYS_unlinkat, fd, path, flags); }));
}
}
