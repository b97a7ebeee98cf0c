#include "nvme/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "nvme/filesystem.h"

namespace sluice::nvme {
namespace {

std::string text_of(int error) {
  return std::generic_category().message(error);
}

int flags_of(Access access) {
  switch (access) {
    case Access::kRead:
      return O_RDONLY;
    case Access::kReadWrite:
      return O_RDWR;
    case Access::kCreateNew:
      return O_RDWR | O_CREAT | O_EXCL;
  }
  return O_RDONLY;
}

std::string hint_of(int error, Caching caching) {
  if (error == EINVAL && caching == Caching::kDirect) {
    return "; this filesystem refuses O_DIRECT: set aio.direct to auto or false";
  }
  if (error == EMFILE) return "; raise `ulimit -n`";
  return "";
}

struct stat stat_of(const File& file) {
  struct stat got = {};
  SLUICE_CHECK(::fstat(file.fd(), &got) == 0, kIo,
               fmt::format("{}: cannot read its size: {}", file.path(), text_of(errno)));
  return got;
}

Error does_not_fit(const File& file, Bytes need) {
  return Error(
      Errc::kBudget,
      fmt::format("{}: needs {}, {} free on its filesystem; free some space or name another folder",
                  file.path(), format_bytes(need), format_bytes(free_bytes(file.path()))));
}

}  // namespace

Claim claim_space(int fd, Bytes n) {
  const auto size = static_cast<off_t>(n);
  const auto error_of = [](int result) { return result == 0 ? 0 : errno; };
  Claim claim;
  do {
    claim.failed = error_of(::fallocate(fd, 0, 0, size));
  } while (claim.failed == EINTR);
  if (claim.failed != EOPNOTSUPP && claim.failed != ENOSYS) return claim;
  return {error_of(::ftruncate(fd, size)), false};
}

File File::open(std::string path, Access access, Caching caching) {
  const int direct = caching == Caching::kDirect ? O_DIRECT : 0;
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags_of(access) | direct | O_CLOEXEC, 0600);
  } while (fd < 0 && errno == EINTR);
  const int error = errno;
  // A filesystem without O_DIRECT may refuse it only after it has made the file.
  const bool ours = access == Access::kCreateNew && direct != 0 && error == EINVAL;
  if (fd < 0 && ours) ::unlink(path.c_str());
  SLUICE_CHECK(fd >= 0, kIo,
               fmt::format("{}: cannot {} it{}: {}{}", path,
                           access == Access::kCreateNew ? "create" : "open",
                           caching == Caching::kDirect ? " with O_DIRECT" : "", text_of(error),
                           hint_of(error, caching)));
  return File(fd, std::move(path), caching);
}

File::File(int fd, std::string path, Caching caching)
    : fd_(fd), path_(std::move(path)), caching_(caching) {}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), caching_(other.caching_) {}

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::move(other.path_);
    caching_ = other.caching_;
  }
  return *this;
}

File::~File() {
  close();
}

void File::close() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void File::preallocate(Bytes n) {
  if (n == 0) return;
  SLUICE_CHECK(n <= static_cast<Bytes>(std::numeric_limits<off_t>::max()), kBudget,
               fmt::format("{}: a file of {} bytes cannot exist", path_, n));
  check_file_size(path_, n);
  // Some filesystems hand out all they have before they say no, so ask first here too.
  const Bytes reserved = static_cast<Bytes>(stat_of(*this).st_blocks) * 512;
  if (n > reserved && n - reserved > free_bytes(path_)) throw does_not_fit(*this, n);
  const auto [failed, claimed] = claim_space(fd_, n);
  if (failed == ENOSPC || failed == EDQUOT) throw does_not_fit(*this, n);
  SLUICE_CHECK(failed != EFBIG, kBudget,
               fmt::format("{}: a file of {} is more than its filesystem allows ({} free); name "
                           "more folders or another filesystem",
                           path_, format_bytes(n), format_bytes(free_bytes(path_))));
  SLUICE_CHECK(failed == 0, kIo,
               fmt::format("{}: cannot reserve {}: {}", path_, format_bytes(n), text_of(failed)));
  if (!claimed) {
    log::warning(fmt::format(
        "{}: this filesystem cannot reserve space; writing may run out of it later", path_));
  }
}

void File::unlink() {
  SLUICE_CHECK(::unlink(path_.c_str()) == 0, kIo,
               fmt::format("{}: cannot remove it: {}", path_, text_of(errno)));
}

Bytes File::size() const {
  return static_cast<Bytes>(stat_of(*this).st_size);
}

}  // namespace sluice::nvme
