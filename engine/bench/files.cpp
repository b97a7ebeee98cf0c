#include "engine/bench/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <system_error>

#include "engine/base/error.h"
#include "engine/base/file_kind.h"

namespace sluice::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargest = std::size_t{1} << 20;

void check(bool good, const fs::path& file, std::string_view what) {
  const int error = errno;
  SLUICE_CHECK(good, kIo,
               fmt::format("{}: {} failed: {}; it is as it was", file.string(), what,
                           std::generic_category().message(error)));
}

/// Closed, and its name gone unless it was kept, when dropped.
class Temporary {
 public:
  explicit Temporary(const fs::path& beside)
      : path_((beside.parent_path() / ("." + beside.filename().string() + ".XXXXXX")).string()),
        fd_(::mkostemp(path_.data(), O_CLOEXEC)) {
    check(fd_ >= 0, beside, "making a new file beside it");
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    ::close(fd_);
    if (!kept_) ::unlink(path_.c_str());
  }

  int fd() const { return fd_; }
  void rename_to(const fs::path& file) {
    check(::rename(path_.c_str(), file.c_str()) == 0, file, "renaming the new file");
    kept_ = true;
  }

 private:
  std::string path_;
  int fd_;
  bool kept_ = false;
};

void write_all(int fd, std::string_view text, const fs::path& file) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    check(n > 0, file, "writing the new file");
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

/// Makes the rename last. The text is there already, so a folder that cannot be synced is no error.
void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

std::string read_small_file(const fs::path& file) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  SLUICE_CHECK(
      fs::is_regular_file(status), kConfig,
      fmt::format("{}: {}; name a run file that is there", file.string(), kind_of(status)));
  std::ifstream in(file, std::ios::binary);
  std::string text(kLargest + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  SLUICE_CHECK(in.is_open() && !in.bad(), kIo, fmt::format("{}: cannot be read", file.string()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  SLUICE_CHECK(text.size() <= kLargest, kConfig,
               fmt::format("{}: larger than 1MiB; is this a run file?", file.string()));
  return text;
}

void replace_file(const fs::path& file, std::string_view text) {
  std::error_code error;
  const fs::path real = fs::canonical(file, error);
  errno = error.value();
  check(!error, file, "finding it");
  check(::access(real.c_str(), W_OK) == 0, file, "writing it");
  struct stat info {};
  check(::stat(real.c_str(), &info) == 0, file, "looking at it");
  Temporary temporary(real);
  write_all(temporary.fd(), text, file);
  check(::fchmod(temporary.fd(), info.st_mode & 07777) == 0, file, "giving the new file its mode");
  // Nobody else may give files away; what others replace becomes theirs.
  if (::geteuid() == 0) {
    check(::fchown(temporary.fd(), info.st_uid, info.st_gid) == 0, file,
          "giving the new file its owner");
  }
  check(::fsync(temporary.fd()) == 0, file, "syncing the new file");
  temporary.rename_to(real);
  sync_folder(real.parent_path());
}

void require_writable(std::string_view option, const std::string& file) {
  if (file.empty()) return;
  SLUICE_CHECK(std::ofstream(file, std::ios::app).good(), kIo,
               fmt::format("{} {}: cannot be written; name another file", option, file));
}

void write_result(std::string_view option, const std::string& file, std::string_view text) {
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  stream << text << std::flush;
  SLUICE_CHECK(stream.good(), kIo, fmt::format("{} {}: cannot be written", option, file));
}

}  // namespace sluice::bench
