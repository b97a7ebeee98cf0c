#include "tests/support/file_calls.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

namespace sluice::test {
namespace {

using Kind = FileCall::Kind;

std::mutex mutex;
std::optional<std::vector<FileCall>> seen;  // while a FileCalls lives

/// What befalls the writes of other threads.
struct Disturbance {
  std::thread::id but_of;
  std::chrono::milliseconds longer;
  int whole;
  int seen = 0;
};
std::optional<Disturbance> disturbance;

/// Waits, and says whether the write is to fail.
bool fails() {
  std::unique_lock lock(mutex);
  if (!disturbance || disturbance->but_of == std::this_thread::get_id()) return false;
  const bool whole = disturbance->seen++ < disturbance->whole;
  const auto longer = disturbance->longer;
  lock.unlock();
  std::this_thread::sleep_for(longer);
  return !whole;
}

/// Passes on what a call returned, and notes that it succeeded.
long note(long result, FileCall call) {
  const std::lock_guard lock(mutex);
  if (result >= 0 && seen) seen->push_back(std::move(call));
  return result;
}

long note(long result, Kind kind, int fd) {
  std::error_code ignored;
  auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), ignored);
  return note(result, {kind, std::move(path), {}});
}

}  // namespace

FileCalls::FileCalls() {
  const std::lock_guard lock(mutex);
  seen.emplace();
}

FileCalls::~FileCalls() {
  const std::lock_guard lock(mutex);
  seen.reset();
  disturbance.reset();
}

std::vector<FileCall> FileCalls::calls() const {
  const std::lock_guard lock(mutex);
  return *seen;
}

void FileCalls::disturb(std::chrono::milliseconds longer, int whole) {
  const std::lock_guard lock(mutex);
  disturbance = {std::this_thread::get_id(), longer, whole};
}

int FileCalls::disturbed() const {
  const std::lock_guard lock(mutex);
  return disturbance ? disturbance->seen : 0;
}

}  // namespace sluice::test

// Taken by the linker before the C library's.
extern "C" {

using sluice::test::note;
using Kind = sluice::test::FileCall::Kind;

ssize_t write(int fd, const void* data, size_t n) {
  return note(::syscall(SYS_write, fd, data, n), Kind::kChange, fd);
}

ssize_t pwrite(int fd, const void* data, size_t n, off_t offset) {
  if (sluice::test::fails()) {
    errno = EIO;
    return -1;
  }
  return note(::syscall(SYS_pwrite64, fd, data, n, offset), Kind::kChange, fd);
}

int ftruncate(int fd, off_t length) noexcept {
  return static_cast<int>(note(::syscall(SYS_ftruncate, fd, length), Kind::kChange, fd));
}

int fallocate(int fd, int mode, off_t offset, off_t length) {
  return static_cast<int>(
      note(::syscall(SYS_fallocate, fd, mode, offset, length), Kind::kChange, fd));
}

int fsync(int fd) {
  return static_cast<int>(note(::syscall(SYS_fsync, fd), Kind::kSync, fd));
}

int fdatasync(int fd) {
  return static_cast<int>(note(::syscall(SYS_fdatasync, fd), Kind::kSync, fd));
}

int rename(const char* from, const char* to) noexcept {
  return static_cast<int>(
      note(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0), {Kind::kRename, from, to}));
}
}
