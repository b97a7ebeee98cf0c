#include "engine/base/cgroup.h"

#include <fstream>

namespace sluice {
namespace {

void add_upwards(std::vector<Cgroup>& all, int version, const std::filesystem::path& mount,
                 const std::string& name) {
  std::filesystem::path at = name;
  while (true) {
    all.push_back({version, mount / at.relative_path(), at.string()});
    if (!at.has_relative_path()) return;
    at = at.parent_path();
  }
}

}  // namespace

std::vector<Cgroup> cgroups(const std::string& controller, const std::filesystem::path& root) {
  const std::filesystem::path mount = root / "sys/fs/cgroup";
  std::vector<Cgroup> all;
  // Lines "4:memory:/a/b" of version 1 and "0::/a/b" of version 2.
  std::ifstream lines(root / "proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string name = line.substr(second + 1);
    if (controllers == ",,") {
      add_upwards(all, 2, mount, name);
    } else if (controllers.find("," + controller + ",") != std::string::npos) {
      add_upwards(all, 1, mount / controller, name);
    }
  }
  return all;
}

}  // namespace sluice
