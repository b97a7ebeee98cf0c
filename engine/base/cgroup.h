/// The control groups that may hold this process back, versions 1 and 2.
///
/// Thread  any
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sluice {

struct Cgroup {
  int version;                   ///< its files have other names in 1 and 2
  std::filesystem::path folder;  ///< where they are
  std::string name;              ///< "/jobs/mine"
};

/// Those in which `controller` ("memory", "cpu") may have a limit: this process's own first, then
/// upwards. In a container the name may be a path of the host's, of which only the mount itself is
/// to be seen: folders that are not there say nothing. `root` holds proc/ and sys/: a test has its
/// own.
std::vector<Cgroup> cgroups(const std::string& controller, const std::filesystem::path& root = "/");

}  // namespace sluice
