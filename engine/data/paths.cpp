#include "engine/data/paths.h"

#include <fmt/core.h>

#include <algorithm>

#include "engine/base/error.h"

namespace sluice::data {

namespace fs = std::filesystem;

std::string ending_of(const fs::path& path) {
  std::string ending = path.extension().string();
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  std::ranges::transform(ending, ending.begin(), lower);
  return ending;
}

fs::file_status status_of(const fs::path& path) {
  std::error_code failed;
  const fs::file_status status = fs::status(path, failed);
  SLUICE_CHECK(status.type() != fs::file_type::none, kIo,
               fmt::format("{}: cannot be looked at: {}", path.string(), failed.message()));
  return status;
}

}  // namespace sluice::data
