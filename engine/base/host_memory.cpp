#include "engine/base/host_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "engine/base/error.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

/// The names of one version's files.
struct Version {
  const char* mount;
  const char* limits[2];  // the second may be null
  const char* usage;
  const char* cached;  // line of memory.stat: pages that go when somebody needs them
};
constexpr Version kV1{"sys/fs/cgroup/memory",
                      {"memory.limit_in_bytes", nullptr},
                      "memory.usage_in_bytes",
                      "total_inactive_file"};
constexpr Version kV2{
    "sys/fs/cgroup", {"memory.max", "memory.high"}, "memory.current", "inactive_file"};

/// None when there is no such file, or it says "max".
std::optional<Bytes> number_in(const fs::path& path) {
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

/// Lowers `least` to what one cgroup leaves.
HostMemory lower(HostMemory least, const Version& version, const fs::path& folder,
                 const std::string& name) {
  const auto used = number_in(folder / version.usage);
  for (const char* file : version.limits) {
    const auto limit = file != nullptr ? number_in(folder / file) : std::nullopt;
    if (!limit || !used) continue;
    const Bytes cached = number_after(folder / "memory.stat", version.cached).value_or(0);
    const Bytes held = *used - std::min(*used, cached);
    const Bytes left = *limit - std::min(*limit, held);
    if (left < least.available) {
      least = {left, fmt::format("the cgroup {} ({} {})", name, file, format_bytes(*limit))};
    }
  }
  return least;
}

/// `name` is the cgroup's path below the mount. In a container it may be a path of the host's, of
/// which only the mount itself is to be seen: folders that are not there say nothing.
HostMemory lower_upwards(HostMemory least, const Version& version, const fs::path& root,
                         const std::string& name) {
  const fs::path mount = root / version.mount;
  fs::path at = name;
  while (true) {
    least = lower(std::move(least), version, mount / at.relative_path(), at.string());
    if (!at.has_relative_path()) return least;
    at = at.parent_path();
  }
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
  // Lines "4:memory:/a/b" of version 1 and "0::/a/b" of version 2.
  std::ifstream cgroups(base / "proc/self/cgroup");
  for (std::string line; std::getline(cgroups, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string name = line.substr(second + 1);
    if (controllers == ",,") {
      least = lower_upwards(std::move(least), kV2, base, name);
    } else if (controllers.find(",memory,") != std::string::npos) {
      least = lower_upwards(std::move(least), kV1, base, name);
    }
  }
  return least;
}

}  // namespace sluice
