/// How many threads of this process can work at a time.
///
/// Thread  any
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace sluice {

/// Time of the processors, as a cgroup gives it.
struct CpuQuota {
  double cores;       ///< seconds of them in a second
  std::string group;  ///< whose it is: "/jobs/mine"
  std::string file;   ///< that says so: "cpu.max"
};

struct Cores {
  unsigned usable = 1;            ///< the processors of this process's affinity mask
  std::optional<CpuQuota> quota;  ///< the least of those that allow less than that

  /// The quota in whole cores, the nearest number of them, and one at least.
  unsigned threads() const;
};

/// Quotas of every cgroup from this process upwards, versions 1 and 2. `root` holds proc/ and sys/:
/// a test has its own.
Cores cores(const std::filesystem::path& root = "/");

/// What `auto` takes for a number of threads.
unsigned core_count();

}  // namespace sluice
