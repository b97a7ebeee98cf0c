#include "engine/app/run_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string_view>

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

}  // namespace

config::Config choose_name(const config::Config& config, const std::string& file) {
  if (config.name) {
    config::Config named = config::with_name(config, *config.name);
    SLUICE_CHECK(!fs::exists(named.output_dir), kConfig,
                 fmt::format("{} exists, and a new run never writes into an existing folder: "
                             "choose another name, or name: auto",
                             named.output_dir));
    return named;
  }
  const std::string stem = fs::path(file).stem().string();
  for (int i = 1;; ++i) {
    config::Config named = config::with_name(config, i == 1 ? stem : fmt::format("{}-{}", stem, i));
    if (!fs::exists(named.output_dir)) return named;
    SLUICE_CHECK(config.output_dir.find("${name}") != std::string::npos, kConfig,
                 fmt::format("{} exists, and output_dir has no ${{name}} to count up: choose "
                             "another output_dir",
                             named.output_dir));
  }
}

void create_run_folder(const config::Config& config, const std::string& machine) {
  const fs::path folder = config.output_dir;
  std::error_code error;
  if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), error);
  SLUICE_CHECK(!error, kConfig,
               fmt::format("cannot create {}: {}; choose another output_dir",
                           folder.parent_path().string(), error.message()));
  const bool created = fs::create_directory(folder, error);
  SLUICE_CHECK(created, kConfig,
               fmt::format("cannot create {}: {}; choose another name or output_dir",
                           folder.string(), error ? error.message() : "it exists"));
  write_file(folder / "config.resolved.yaml", config::to_yaml(config));
  write_file(folder / "env.json", machine);
}

}  // namespace sluice::app
