#include "engine/data/glob.h"

#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <span>

#include "engine/base/error.h"
#include "engine/base/file_kind.h"
#include "engine/data/paths.h"

namespace sluice::data {
namespace {

namespace fs = std::filesystem;
using Parts = std::span<const std::string>;
using Found = std::set<std::string>;

constexpr std::string_view kAnyDepth = "**";

bool is_pattern(const std::string& part) {
  return part.find_first_of("*?[") != std::string::npos;
}

std::vector<std::string> parts_of(const fs::path& glob) {
  std::vector<std::string> parts;
  for (const fs::path& part : glob.relative_path()) {
    const bool repeats = part == kAnyDepth && !parts.empty() && parts.back() == kAnyDepth;
    if (!part.empty() && !repeats) parts.push_back(part.string());
  }
  return parts;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  const fs::path where = folder.empty() ? "." : folder;
  if (!fs::is_directory(status_of(where))) return {};
  std::vector<fs::path> entries;
  std::error_code failed;
  for (fs::directory_iterator it(where, failed), end; !failed && it != end; it.increment(failed)) {
    entries.push_back(folder / it->path().filename());
  }
  SLUICE_CHECK(!failed, kIo,
               fmt::format("{}: cannot be listed: {}", where.string(), failed.message()));
  return entries;
}

/// Whatever has this name; what is no file is sorted out at the end.
Found take(const fs::path& path) {
  SLUICE_CHECK(fs::exists(status_of(path)), kIo,
               fmt::format("{}: is a link to a file that is not there", path.string()));
  return {path.lexically_normal().string()};
}

Found walk(const fs::path& at, Parts parts);

/// `**`: the rest of the pattern here, and `**` again in every folder below.
Found walk_any_depth(const fs::path& at, Parts parts) {
  const Parts rest = parts.subspan(1);
  Found found;
  if (!rest.empty()) found = walk(at, rest);
  for (const fs::path& entry : entries_of(at)) {
    if (entry.filename().string().starts_with('.')) continue;
    if (fs::is_directory(fs::symlink_status(entry))) {
      found.merge(walk_any_depth(entry, parts));
    } else if (rest.empty()) {
      found.merge(take(entry));
    }
  }
  return found;
}

Found walk(const fs::path& at, Parts parts) {
  if (parts.empty()) return take(at);
  const std::string& part = parts.front();
  const Parts rest = parts.subspan(1);
  if (part == kAnyDepth) return walk_any_depth(at, parts);
  if (!is_pattern(part)) {
    std::error_code none;
    return fs::exists(fs::symlink_status(at / part, none)) ? walk(at / part, rest) : Found{};
  }
  Found found;
  for (const fs::path& entry : entries_of(at)) {
    if (::fnmatch(part.c_str(), entry.filename().c_str(), FNM_PERIOD) == 0) {
      found.merge(walk(entry, rest));
    }
  }
  return found;
}

/// `all`: what the pattern matches, none of it a file.
[[noreturn]] void refuse(const std::string& glob, const Found& all) {
  std::error_code none;
  if (all.empty()) {
    throw Error(Errc::kConfig, fmt::format("'{}' matches no file (working directory {})", glob,
                                           fs::current_path(none).string()));
  }
  const fs::file_status status = status_of(*all.begin());
  throw Error(Errc::kConfig,
              fmt::format("'{}' matches no file: {} is {}; {}", glob, *all.begin(), kind_of(status),
                          fs::is_directory(status) ? "add /* or /** for the files in it"
                                                   : "data is read from files only"));
}

Found expand(const std::string& glob) {
  std::error_code none;
  if (fs::is_regular_file(glob, none)) return take(glob);
  const std::vector<std::string> parts = parts_of(glob);
  const Found all = parts.empty() ? Found{} : walk(fs::path(glob).root_path(), parts);
  Found files;
  std::ranges::copy_if(all, std::inserter(files, files.end()), [](const std::string& path) {
    return fs::is_regular_file(status_of(path));
  });
  if (files.empty()) refuse(glob, all);
  return files;
}

}  // namespace

std::vector<std::string> expand_globs(const std::vector<std::string>& globs) {
  SLUICE_CHECK(!globs.empty(), kConfig, "no files are named; name one as data.train");
  Found found;
  for (const std::string& glob : globs) found.merge(expand(glob));
  return {found.begin(), found.end()};
}

}  // namespace sluice::data
