#include "engine/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>
#include <utility>

#include "engine/base/cgroup.h"

namespace sluice {
namespace {

std::optional<double> microseconds_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  double value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

/// Without one: version 1 says -1, version 2 says "max".
std::optional<CpuQuota> quota_of(const Cgroup& group) {
  std::optional<double> quota, period;
  const char* const file = group.version == 1 ? "cpu.cfs_quota_us" : "cpu.max";
  if (group.version == 1) {
    quota = microseconds_in(group.folder / file);
    period = microseconds_in(group.folder / "cpu.cfs_period_us");
  } else {
    std::ifstream numbers(group.folder / file);
    double first = 0, second = 0;
    if (numbers >> first >> second) quota = first, period = second;
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return CpuQuota{*quota / *period, group.name, file};
}

unsigned in_affinity_mask() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const bool known = ::sched_getaffinity(0, sizeof mask, &mask) == 0;  // not of over 1024
  return known ? static_cast<unsigned>(CPU_COUNT(&mask))
               : std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace

unsigned Cores::threads() const {
  if (!quota) return usable;
  return std::clamp(static_cast<unsigned>(std::lround(quota->cores)), 1U, usable);
}

Cores cores(const std::filesystem::path& root) {
  Cores found{in_affinity_mask(), {}};
  double least = found.usable;
  for (const Cgroup& group : cgroups("cpu", root)) {
    auto quota = quota_of(group);
    if (!quota || quota->cores >= least) continue;
    least = quota->cores;
    found.quota = std::move(quota);
  }
  return found;
}

unsigned core_count() {
  return cores().threads();
}

}  // namespace sluice
