#include "engine/app/run_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "engine/base/error.h"
#include "engine/config/load.h"
#include "engine/config/write.h"

namespace sluice::app {

namespace fs = std::filesystem;

namespace {

void write_file(const fs::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  SLUICE_CHECK(!file.fail(), kIo, fmt::format("cannot write {}", path.string()));
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

config::Config given_name(const config::Config& config) {
  config::Config named = config::with_name(config, *config.name);
  SLUICE_CHECK(!fs::exists(named.output_dir), kConfig,
               fmt::format("{} exists, and a new run never writes into an existing folder: "
                           "choose another name, or name: auto",
                           named.output_dir));
  return named;
}

config::Config counted_name(const config::Config& config, const std::string& stem) {
  for (int i = 1;; ++i) {
    config::Config named = config::with_name(config, i == 1 ? stem : fmt::format("{}-{}", stem, i));
    if (!fs::exists(named.output_dir)) return named;
    SLUICE_CHECK(config.output_dir.find("${name}") != std::string::npos, kConfig,
                 fmt::format("{} exists, and output_dir has no ${{name}} to count up: choose "
                             "another output_dir",
                             named.output_dir));
  }
}

}  // namespace

config::Config choose_name(const config::Config& config, const std::string& file) {
  const config::Config named =
      config.name ? given_name(config) : counted_name(config, fs::path(file).stem().string());
  check_can_be_made(named.output_dir);
  return named;
}

Claim claim_run_folder(const config::Config& config, const std::string& machine) {
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
  if (!created) return Claim::kTaken;
  write_file(folder / "config.resolved.yaml", config::to_yaml(config));
  write_file(folder / "env.json", machine);
  return Claim::kOurs;
}

}  // namespace sluice::app
