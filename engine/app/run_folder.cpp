#include "engine/app/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "engine/base/error.h"
#include "engine/config/load.h"
#include "engine/config/write.h"

namespace sluice::app {

namespace fs = std::filesystem;

namespace {

/// Under its name it is whole.
void write_file(const fs::path& path, std::string_view text) {
  fs::path beside = path;
  beside += ".partial-0";
  std::ofstream file(beside, std::ios::binary);
  file << text;
  file.close();
  std::error_code error;
  if (!file.fail()) fs::rename(beside, path, error);
  SLUICE_CHECK(!file.fail() && !error, kIo, fmt::format("cannot write {}", path.string()));
}

/// Looks only, so that a dry run sees it too.
void check_can_be_made(const fs::path& folder) {
  std::error_code error;
  fs::path at = fs::absolute(folder, error).parent_path();
  while (!fs::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  const int why = !fs::is_directory(at, error)             ? ENOTDIR
                  : ::access(at.c_str(), W_OK | X_OK) != 0 ? errno
                                                           : 0;
  SLUICE_CHECK(why == 0, kConfig,
               fmt::format("cannot create {}: {}: {}; choose another output_dir", folder.string(),
                           at.string(), std::generic_category().message(why)));
}

bool exists(const std::string& folder) {
  std::error_code error;
  const bool there = fs::exists(folder, error);
  SLUICE_CHECK(
      !error, kConfig,
      fmt::format("cannot look at {}: {}; choose another output_dir", folder, error.message()));
  return there;
}

/// With an output_dir whose last part is the run's folder: "a/b/" and "a/b/." have a/b as parent.
config::Config named_folder(const config::Config& config, const std::string& name) {
  config::Config named = config::with_name(config, name);
  fs::path folder = fs::path(named.output_dir).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  named.output_dir = folder.string();
  return named;
}

config::Config given_name(const config::Config& config) {
  config::Config named = named_folder(config, *config.name);
  SLUICE_CHECK(!exists(named.output_dir), kConfig,
               fmt::format("{} exists, and a new run never writes into an existing folder: "
                           "choose another name, or name: auto",
                           named.output_dir));
  return named;
}

/// The i-th name, from 1.
config::Config numbered(const config::Config& config, const std::string& stem, int i) {
  return named_folder(config, i == 1 ? stem : fmt::format("{}-{}", stem, i));
}

config::Config counted_name(const config::Config& config, const std::string& stem) {
  for (int i = 1;; ++i) {
    config::Config named = numbered(config, stem, i);
    if (!exists(named.output_dir)) return named;
    SLUICE_CHECK(config.output_dir.find("${name}") != std::string::npos, kConfig,
                 fmt::format("{} exists, and output_dir has no ${{name}} to count up: choose "
                             "another output_dir",
                             named.output_dir));
  }
}

/// A run file may have any name, a run may not.
std::string name_after(const std::string& file) {
  constexpr std::size_t kLongest = 100;  // leaves room for a counter
  std::string name = fs::path(file).stem().string().substr(0, kLongest);
  for (char& c : name) {
    if (config::kNameCharacters.find(c) == std::string_view::npos) c = '_';
  }
  if (name.empty() || name == "auto") return "run";  // auto is not a name
  if (name.front() == '.' || name.front() == '-') name.front() = '_';
  return name;
}

}  // namespace

config::Config choose_name(const config::Config& config, const std::string& file) {
  const config::Config named =
      config.name ? given_name(config) : counted_name(config, name_after(file));
  check_can_be_made(named.output_dir);
  return named;
}

config::Config any_name(const config::Config& config, const std::string& file) {
  return named_folder(config, config.name.value_or(name_after(file)));
}

std::vector<config::Config> existing_runs(const config::Config& config, const std::string& file) {
  std::vector<config::Config> runs;
  const auto add = [&](config::Config named) {
    if (exists(named.output_dir)) runs.insert(runs.begin(), std::move(named));
  };
  if (config.name) {
    add(named_folder(config, *config.name));
    return runs;
  }
  // One that was removed leaves a gap.
  constexpr int kLongestGap = 16;
  for (int i = 1, last = 0; i <= last + kLongestGap; ++i) {
    const std::size_t before = runs.size();
    add(numbered(config, name_after(file), i));
    if (runs.size() > before) last = i;
    if (config.output_dir.find("${name}") == std::string::npos) break;
  }
  return runs;
}

std::optional<RunLock> RunLock::take(const std::string& folder) {
  const std::string path = folder + "/" + kLockName;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  SLUICE_CHECK(fd >= 0, kConfig,
               fmt::format("cannot write into {}: {}; make it writable, or choose another name",
                           folder, std::generic_category().message(errno)));
  RunLock lock(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
  SLUICE_CHECK(errno == EWOULDBLOCK, kEnv,
               fmt::format("cannot lock {}: {}; a run's folder needs a file system with flock(): "
                           "mount it so, or choose another output_dir",
                           path, std::generic_category().message(errno)));
  return std::nullopt;
}

RunLock::~RunLock() {
  if (fd_ >= 0) ::close(fd_);
}

Claim claim_run_folder(const config::Config& config) {
  const fs::path folder = config.output_dir;
  std::error_code error;
  if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), error);
  SLUICE_CHECK(!error, kConfig,
               fmt::format("cannot create {}: {}; choose another output_dir",
                           folder.parent_path().string(), error.message()));
  const bool created = fs::create_directory(folder, error);
  SLUICE_CHECK(!error, kConfig,
               fmt::format("cannot create {}: {}; choose another name or output_dir",
                           folder.string(), error.message()));
  return created ? Claim::kOurs : Claim::kTaken;
}

void describe_run(const config::Config& config, const std::string& machine) {
  const fs::path folder = config.output_dir;
  write_file(folder / "config.resolved.yaml", config::to_yaml(config));
  write_file(folder / "env.json", machine);
}

}  // namespace sluice::app
