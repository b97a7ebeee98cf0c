#include "engine/checkpoint/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ranges>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/checkpoint/file.h"
#include "engine/checkpoint/state_writer.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
// As TemporaryFolder names what it makes.
constexpr std::string_view kPartial = ".partial-";

std::optional<std::int64_t> number(std::string_view digits) {
  std::int64_t n = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (error != std::errc() || end != digits.data() + digits.size() || n < 0) return std::nullopt;
  return n;
}

/// nullopt: no name of a checkpoint.
std::optional<Found> parse(const fs::path& path) {
  const std::string name = path.filename().string();
  std::string_view rest = name;
  if (!rest.starts_with(kPrefix)) return std::nullopt;
  rest.remove_prefix(kPrefix.size());
  const std::size_t dot = rest.find('.');
  const auto step = number(rest.substr(0, dot));
  const auto copy =
      dot == std::string_view::npos ? std::optional<std::int64_t>(1) : number(rest.substr(dot + 1));
  if (!step || !copy) return std::nullopt;
  std::error_code none;
  return Found{path, *step, *copy, fs::is_regular_file(path / kCompleteName, none)};
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) entries.push_back(entry.path());
  return entries;
}

void check(const std::error_code& error, const char* what, const fs::path& path) {
  SLUICE_CHECK(!error, kIo, fmt::format("{}: {} failed: {}", path.string(), what, error.message()));
}

}  // namespace

std::vector<Found> list_checkpoints(const fs::path& checkpoints) {
  std::vector<Found> all;
  for (const fs::path& path : entries_of(checkpoints)) {
    if (auto found = parse(path)) all.push_back(std::move(*found));
  }
  std::ranges::sort(all, [](const Found& a, const Found& b) {
    return std::tie(a.step, a.copy) > std::tie(b.step, b.copy);
  });
  return all;
}

fs::path new_checkpoint(const fs::path& checkpoints, std::int64_t step) {
  std::error_code none;
  fs::path path = checkpoints / fmt::format("{}{}", kPrefix, step);
  for (int copy = 2; fs::exists(fs::symlink_status(path, none)); ++copy) {
    path = checkpoints / fmt::format("{}{}.{}", kPrefix, step, copy);
  }
  return path;
}

void prune_checkpoints(const fs::path& checkpoints, const Keep& keep) {
  std::vector<Found> old;
  std::int64_t complete = 0;
  for (const Found& found : list_checkpoints(checkpoints)) {
    if (!found.complete || ++complete <= keep.newest) continue;
    if (keep.every && found.step % *keep.every == 0) continue;
    old.push_back(found);
  }
  for (const Found& found : std::views::reverse(old)) {
    fs::path doomed = found.folder;
    doomed += fmt::format("{}removed", kPartial);
    // Its name goes first: whatever ends the process then, nobody takes half of it for a
    // checkpoint.
    std::error_code error;
    fs::remove_all(doomed, error);  // of an earlier try
    fs::rename(found.folder, doomed, error);
    check(error, "renaming it, to remove it,", found.folder);
    sync_folder(checkpoints);
    fs::remove_all(doomed, error);
    check(error, "removing it", doomed);
  }
}

void remove_leftovers(const fs::path& folder) {
  for (const fs::path& path : entries_of(folder)) {
    if (path.filename().string().find(kPartial) == std::string::npos) continue;
    log::info(fmt::format("{}: left by a run that was ended; removed", path.string()));
    std::error_code error;
    fs::remove_all(path, error);
    check(error, "removing it", path);
  }
}

}  // namespace sluice::checkpoint
