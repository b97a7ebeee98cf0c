#include "engine/bench/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <system_error>
#include <utility>

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

/// What new files are not allowed here. It cannot be read without being set.
mode_t mask() {
  const mode_t now = ::umask(0077);
  ::umask(now);
  return now;
}

/// Whether a new file takes its name; else it is written where it is: a terminal, a pipe.
bool is_published(const fs::file_status& status) {
  return fs::is_regular_file(status) || !fs::exists(status);
}

/// In place of the file that there is, with its mode and owner, or as a new one.
void publish(const fs::path& file, std::string_view text) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(file, error);  // of a link: where it leads
  errno = error.value();
  check(!error, file, "finding it");
  struct stat info {};
  const bool there = ::stat(real.c_str(), &info) == 0;
  check(there || errno == ENOENT, file, "looking at it");
  Temporary temporary(real);
  write_all(temporary.fd(), text, file);
  const mode_t usual = 0666 & ~mask();
  check(::fchmod(temporary.fd(), there ? info.st_mode & 07777 : usual) == 0, file,
        "giving the new file its mode");
  // Nobody else may give files away; what others replace becomes theirs.
  if (there && ::geteuid() == 0) {
    check(::fchown(temporary.fd(), info.st_uid, info.st_gid) == 0, file,
          "giving the new file its owner");
  }
  check(::fsync(temporary.fd()) == 0, file, "syncing the new file");
  temporary.rename_to(real);
  sync_folder(real.parent_path());
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
  check(::access(file.c_str(), W_OK) == 0, file, "writing it");
  publish(file, text);
}

void require_writable(std::string_view option, const std::string& file) {
  if (file.empty()) return;
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  bool may = !fs::is_directory(status);
  if (fs::exists(status)) may = may && ::access(file.c_str(), W_OK) == 0;
  // A file is replaced by one that is made beside it.
  if (is_published(status)) {
    const fs::path folder = fs::weakly_canonical(fs::absolute(file, error), error).parent_path();
    may = may && ::access(folder.c_str(), W_OK | X_OK) == 0;
  }
  SLUICE_CHECK(may, kIo,
               fmt::format("{} {}: cannot be written, or its folder cannot; name another file",
                           option, file));
}

void require_different(const std::vector<Named>& outputs) {
  std::vector<fs::path> seen;
  for (const Named& output : outputs) {
    if (output.file.empty()) continue;
    std::error_code error;
    fs::path real = fs::weakly_canonical(output.file, error);
    SLUICE_CHECK(std::ranges::find(seen, real) == seen.end(), kConfig,
                 fmt::format("{} {}: another option writes that file; name another", output.option,
                             output.file));
    seen.push_back(std::move(real));
  }
}

void write_result(std::string_view option, const std::string& file, std::string_view text) {
  const auto what_failed = [&](const std::string& why) {
    return Error(Errc::kIo, fmt::format("{} {}: cannot be written: {}", option, file, why));
  };
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (is_published(status)) {
    try {
      publish(file, text);
    } catch (const Error& e) {
      throw what_failed(e.what());
    }
    return;
  }
  std::ofstream stream(file, std::ios::binary);
  stream << text << std::flush;
  if (!stream.good()) throw what_failed(std::generic_category().message(errno));
}

}  // namespace sluice::bench
