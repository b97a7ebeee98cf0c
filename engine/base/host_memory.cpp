#include "engine/base/host_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
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

/// The number after a word.
std::optional<Bytes> number_after(const fs::path& path, const std::string& word) {
  std::ifstream file(path);
  Bytes value = 0;
  for (std::string each; file >> each;) {
    if (each == word && file >> value) return value;
  }
  return std::nullopt;
}

// Version 1 writes "no limit" as a number that no machine has.
constexpr Bytes kMostLimit = 1'000'000'000'000'000'000;

void keep_least(HostMemory& least, Bytes left, std::string whose) {
  if (left >= least.available) return;
  least.available = left;
  least.whose = std::move(whose);
}

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
    keep_least(least, *limit - std::min(*limit, held), std::move(whose));
  }
  return least;
}

/// Lowers `least` to what is free of these nodes, unless the machine has no others.
HostMemory lower(HostMemory least, const std::vector<unsigned>& nodes, const fs::path& all) {
  Bytes free_kib = 0;
  bool others = false;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(all, missing)) {
    const fs::path meminfo = entry.path() / "meminfo";
    const auto has_name = [&](unsigned node) {
      return entry.path().filename() == fmt::format("node{}", node);
    };
    if (number_after(meminfo, "MemTotal:").value_or(0) == 0) continue;  // of processors alone
    if (std::ranges::none_of(nodes, has_name)) {
      others = true;
      continue;
    }
    free_kib += number_after(meminfo, "MemFree:").value_or(0);
    free_kib += number_after(meminfo, "Inactive(file):").value_or(0);
  }
  if (nodes.empty() || !others) return least;
  std::string whose = fmt::format("the memory nodes of this process ({})", fmt::join(nodes, ", "));
  least.limits.push_back(whose);
  keep_least(least, free_kib << 10, std::move(whose));
  return least;
}

}  // namespace

HostMemory host_memory(const std::string& root, const std::vector<unsigned>& nodes) {
  const fs::path base = root;
  errno = 0;
  const auto kib = number_after(base / "proc/meminfo", "MemAvailable:");
  SLUICE_CHECK(kib, kEnv,
               fmt::format("{} does not say how much memory is available (MemAvailable){}",
                           (base / "proc/meminfo").string(),
                           errno == EMFILE ? ": too many open files, raise `ulimit -n`" : ""));
  HostMemory least{*kib << 10, "this machine"};
  for (const Cgroup& group : cgroups("memory", base)) least = lower(std::move(least), group);
  return lower(std::move(least), nodes, base / "sys/devices/system/node");
}

}  // namespace sluice
