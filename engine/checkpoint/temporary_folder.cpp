#include "engine/checkpoint/temporary_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <system_error>

#include "engine/base/error.h"
#include "engine/checkpoint/file.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(std::string_view what, const fs::path& path, const std::error_code& error) {
  throw Error(Errc::kIo, fmt::format("{}: {} failed: {}", path.string(), what, error.message()));
}

/// Absolute, so that a later change of the working folder moves nothing; without a final slash.
fs::path tidy(const fs::path& target) {
  std::error_code error;
  const fs::path absolute = fs::absolute(target, error).lexically_normal();
  if (error) fail("finding it", target, error);
  return absolute.has_filename() ? absolute : absolute.parent_path();
}

fs::path make_beside(const fs::path& target) {
  for (int attempt = 0;; ++attempt) {
    fs::path path = target;
    path += fmt::format(".partial-{}-{}", ::getpid(), attempt);
    std::error_code error;
    if (fs::create_directory(path, error)) return path;
    if (error) fail("making it", path, error);
  }
}

/// Of the same file system, and readable: a folder that a run has just made is both.
bool could_be_new(const fs::path& folder, const fs::path& inside) {
  struct stat a {
  }, b{};
  return ::stat(folder.c_str(), &a) == 0 && ::stat(inside.c_str(), &b) == 0 &&
         a.st_dev == b.st_dev && ::access(folder.c_str(), R_OK) == 0;
}

/// The folders above may be as new as the target.
void sync_folders_above(const fs::path& path) {
  fs::path at = path.parent_path();
  sync_folder(at);
  for (; at.has_relative_path() && could_be_new(at.parent_path(), at); at = at.parent_path()) {
    sync_folder(at.parent_path());
  }
}

}  // namespace

TemporaryFolder::TemporaryFolder(const fs::path& target) : target_(tidy(target)) {
  std::error_code error;
  fs::create_directories(target_.parent_path(), error);
  if (error) fail("making it", target_.parent_path(), error);
  // A rename replaces an empty folder; anything else there stays as it is.
  const bool free = !fs::exists(target_, error) ||
                    (fs::is_directory(target_, error) && fs::is_empty(target_, error));
  SLUICE_CHECK(
      free, kConfig,
      fmt::format("{}: exists already; choose another name, or move it away", target_.string()));
  path_ = make_beside(target_);
}

TemporaryFolder::~TemporaryFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void TemporaryFolder::publish() {
  sync_folder(path_);
  std::error_code error;
  fs::rename(path_, target_, error);
  if (error) fail(fmt::format("renaming {} to it", path_.string()), target_, error);
  path_.clear();
  sync_folders_above(target_);
}

}  // namespace sluice::checkpoint
