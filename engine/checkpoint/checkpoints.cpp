#include "engine/checkpoint/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ranges>
#include <regex>
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

void check(const std::error_code& error, const char* what, const fs::path& path) {
  SLUICE_CHECK(!error, kIo, fmt::format("{}: {} failed: {}", path.string(), what, error.message()));
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  fs::directory_iterator at(folder, error);
  if (error == std::errc::no_such_file_or_directory) return entries;
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    entries.push_back(at->path());
  }
  check(error, "listing it", folder);
  return entries;
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

void prune_checkpoints(const fs::path& checkpoints, const std::string& latest, const Keep& keep) {
  const std::vector<Found> all = list_checkpoints(checkpoints);
  auto found = std::ranges::find(all, latest,
                                 [](const Found& one) { return one.folder.filename().string(); });
  std::vector<Found> old;
  for (std::int64_t whole = 0; found != all.end(); ++found) {
    if (!found->complete || keep.damaged.contains(found->folder.filename().string())) continue;
    if (++whole <= keep.newest) continue;
    if (keep.every && found->step % *keep.every == 0) continue;
    old.push_back(*found);
  }
  for (const Found& doomed_one : std::views::reverse(old)) {
    fs::path doomed = doomed_one.folder;
    doomed += fmt::format("{}removed", kPartial);
    // Its name goes first: whatever ends the process then, nobody takes half of it for a
    // checkpoint.
    std::error_code error;
    fs::remove_all(doomed, error);  // of an earlier try
    fs::rename(doomed_one.folder, doomed, error);
    check(error, "renaming it, to remove it,", doomed_one.folder);
    sync_folder(checkpoints);
    fs::remove_all(doomed, error);
    check(error, "removing it", doomed);
  }
}

void remove_leftovers(const fs::path& folder) {
  // As TemporaryFolder, prune_checkpoints() and the app name them; what people put there stays.
  static const std::regex kLeft(
      R"(((step-\d+(\.\d+)?|final)\.partial-(\d+-\d+|removed))|((config\.resolved\.yaml|env\.json)\.partial-0))");
  for (const fs::path& path : entries_of(folder)) {
    if (!std::regex_match(path.filename().string(), kLeft)) continue;
    std::error_code error;
    fs::remove_all(path, error);
    if (error) {
      log::warning(fmt::format("{}: left by a run that was ended, and cannot be removed: {}",
                               path.string(), error.message()));
    } else {
      log::info(fmt::format("{}: left by a run that was ended; removed", path.string()));
    }
  }
}

}  // namespace sluice::checkpoint
