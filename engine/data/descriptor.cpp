#include "engine/data/descriptor.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "engine/base/error.h"

namespace sluice::data {
namespace {

std::string because(int error) {
  return std::generic_category().message(error);
}

}  // namespace

Descriptor::Descriptor(std::string path, int flags, mode_t mode)
    : path_(std::move(path)), fd_(::open(path_.c_str(), flags | O_CLOEXEC | O_NONBLOCK, mode)) {
  SLUICE_CHECK(fd_ >= 0, kIo, fmt::format("{}: cannot be opened: {}", path_, because(errno)));
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

void Descriptor::read(std::uint64_t offset, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t got = ::pread(fd_, into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    SLUICE_CHECK(got >= 0, kIo,
                 fmt::format("{}: cannot be read at byte {}: {}", path_, offset, because(errno)));
    SLUICE_CHECK(got > 0, kIo,
                 fmt::format("{}: ends at byte {}, {} bytes before it should: it was cut short "
                             "after the run began; restore it and start again",
                             path_, offset, into.size()));
    offset += static_cast<std::uint64_t>(got);
    into = into.subspan(static_cast<std::size_t>(got));
  }
}

void Descriptor::write(std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    SLUICE_CHECK(put > 0, kIo,
                 fmt::format("{}: cannot be written: {}", path_, because(put == 0 ? EIO : errno)));
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void Descriptor::truncate(std::uint64_t bytes) const {
  SLUICE_CHECK(::ftruncate(fd_, static_cast<off_t>(bytes)) == 0, kIo,
               fmt::format("{}: cannot be cut to {} bytes: {}", path_, bytes, because(errno)));
}

void Descriptor::sync() const {
  SLUICE_CHECK(::fsync(fd_) == 0, kIo,
               fmt::format("{}: cannot be synced: {}", path_, because(errno)));
}

std::uint64_t Descriptor::size() const {
  struct stat info {};
  SLUICE_CHECK(::fstat(fd_, &info) == 0, kIo,
               fmt::format("{}: has no size: {}", path_, because(errno)));
  return static_cast<std::uint64_t>(info.st_size);
}

}  // namespace sluice::data
