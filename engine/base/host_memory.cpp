#include "engine/base/host_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "engine/base/cgroup.h"
#include "engine/base/error.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

/// The names of one version's files.
struct Version {
  const char* limits[2];  // the second may be null
  const char* usage;
  const char* cached;  // line of memory.stat: pages that go when somebody needs them
};
constexpr Version kV1{
    {"memory.limit_in_bytes", nullptr}, "memory.usage_in_bytes", "total_inactive_file"};
constexpr Version kV2{{"memory.max", "memory.high"}, "memory.current", "inactive_file"};

/// None when there is no such file, or it says "max".
std::optional<Bytes> bytes_in(const fs::path& path) {
  std::ifstream file(path);
  Bytes value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

/// The number after a word at the beginning of a line.
std::optional<Bytes> number_after(const fs::path& path, const std::string& word) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    Bytes value = 0;
    if (words >> key >> value && key == word) return value;
  }
  return std::nullopt;
}

// Version 1 writes "no limit" as a number that no machine has.
constexpr Bytes kMostLimit = 1'000'000'000'000'000'000;

/// Lowers `least` to what one cgroup leaves.
HostMemory lower(HostMemory least, const Cgroup& group) {
  const Version& version = group.version == 1 ? kV1 : kV2;
  const auto used = bytes_in(group.folder / version.usage);
  for (const char* file : version.limits) {
    const auto limit = file != nullptr ? bytes_in(group.folder / file) : std::nullopt;
    if (!limit) continue;
    std::string whose =
        fmt::format("the cgroup {} ({} {})", group.name, file, format_bytes(*limit));
    if (*limit <= kMostLimit) least.limits.push_back(whose);
    if (!used) continue;
    const Bytes cached = number_after(group.folder / "memory.stat", version.cached).value_or(0);
    const Bytes held = *used - std::min(*used, cached);
    const Bytes left = *limit - std::min(*limit, held);
    if (left < least.available) {
      least.available = left;
      least.whose = std::move(whose);
    }
  }
  return least;
}

}  // namespace

HostMemory host_memory(const std::string& root) {
  const fs::path base = root;
  errno = 0;
  const auto kib = number_after(base / "proc/meminfo", "MemAvailable:");
  SLUICE_CHECK(kib, kEnv,
               fmt::format("{} does not say how much memory is available (MemAvailable){}",
                           (base / "proc/meminfo").string(),
                           errno == EMFILE ? ": too many open files, raise `ulimit -n`" : ""));
  HostMemory least{*kib << 10, "this machine"};
  for (const Cgroup& group : cgroups("memory", base)) least = lower(std::move(least), group);
  return least;
}

}  // namespace sluice
