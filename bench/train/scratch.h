/// A folder beside the runs, gone afterwards.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <utility>

#include "engine/base/error.h"

namespace sluice {

class Scratch {
 public:
  explicit Scratch(std::string path) : path_(std::move(path)) {
    SLUICE_CHECK(
        std::filesystem::create_directories(path_), kConfig,
        fmt::format("{} exists: another bench runs here, or was killed; remove it", path_));
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace sluice
