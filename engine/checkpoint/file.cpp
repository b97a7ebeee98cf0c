#include "engine/checkpoint/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "nvme/file.h"
#include "nvme/store.h"

namespace sluice::checkpoint {
namespace {

[[noreturn]] void fail(std::string_view what, const std::filesystem::path& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  throw Error(full ? Errc::kBudget : Errc::kIo,
              fmt::format("{}: {} failed: {}{}", path.string(), what, std::strerror(error),
                          full ? "; free space there, or choose another output_dir" : ""));
}

std::string extent(std::string_view verb, Bytes length, Bytes offset) {
  return fmt::format("{} {} bytes at {}", verb, length, offset);
}

}  // namespace

File::File(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File File::create(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) fail("creating it", path, errno);
  return {path, fd};
}

File File::open(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("opening it", path, errno);
  return {path, fd};
}

Bytes File::size() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) fail("asking its size", path_, errno);
  return static_cast<Bytes>(info.st_size);
}

void File::reserve(Bytes size) {
  if (size == 0) return;
  // Where space cannot be claimed ahead, the size alone is still checked at the end.
  const int failed = nvme::claim_space(fd_, size).failed;
  if (failed != 0) fail(extent("reserving", size, 0), path_, failed);
}

void File::write(Bytes offset, std::span<const std::byte> data) const {
  while (!data.empty()) {
    const ssize_t n = ::pwrite(fd_, data.data(), data.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(extent("writing", data.size(), offset), path_, errno);
    if (n == 0) fail(extent("writing", data.size(), offset), path_, EIO);
    data = data.subspan(static_cast<std::size_t>(n));
    offset += static_cast<Bytes>(n);
  }
}

void File::read(Bytes offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(extent("reading", out.size(), offset), path_, errno);
    SLUICE_CHECK(n > 0, kFormat,
                 fmt::format("{}: ends at byte {}, {} bytes early; it was cut short: copy it again",
                             path_.string(), offset, out.size()));
    out = out.subspan(static_cast<std::size_t>(n));
    offset += static_cast<Bytes>(n);
  }
}

void File::sync() {
  if (::fsync(fd_) != 0) fail("syncing it", path_, errno);
}

std::vector<std::string> paths_of(std::span<const File> files) {
  std::vector<std::string> paths;
  for (const File& file : files) paths.push_back(file.path().string());
  return paths;
}

void sync_folder(const std::filesystem::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail("opening it", folder, errno);
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  if (result != 0) fail("syncing it", folder, error);
}

std::string read_text(const std::filesystem::path& path, Bytes most) {
  const File file = File::open(path);
  const Bytes size = file.size();
  SLUICE_CHECK(size <= most, kFormat,
               fmt::format("{}: {} is too long for what it should hold (at most {})", path.string(),
                           format_bytes(size), format_bytes(most)));
  std::string text(size, '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  File file = File::create(path);
  file.write(0, std::as_bytes(std::span(text.data(), text.size())));
  file.sync();
}

void check_free_space(const std::filesystem::path& folder, Bytes need, std::string_view what) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) fail("asking its free space", folder, errno);
  const Bytes free = static_cast<Bytes>(info.f_bavail) * static_cast<Bytes>(info.f_frsize);
  SLUICE_CHECK(need <= free, kBudget,
               fmt::format("{}: {} needed for {}, {} free; free space there, or choose "
                           "another output_dir",
                           folder.string(), format_bytes(need), what, format_bytes(free)));
}

nvme::Options as_it_works_in(const std::filesystem::path& folder, nvme::Options queue) {
  if (queue.direct == nvme::Direct::kFalse) return queue;
  const nvme::File tried = nvme::open_unnamed(folder.string(), nvme::Direct::kAuto);
  queue.direct =
      tried.caching() == nvme::Caching::kDirect ? nvme::Direct::kAuto : nvme::Direct::kFalse;
  return queue;
}

}  // namespace sluice::checkpoint
