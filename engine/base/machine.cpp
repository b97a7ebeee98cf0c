#include "engine/base/machine.h"

#include <sys/resource.h>

#include <fstream>
#include <map>
#include <system_error>

namespace sluice {

std::optional<std::string> cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return std::nullopt;
}

// Not by sysconf, which on some virtual machines tells of the host's.
Bytes last_cache(const std::filesystem::path& root) {
  std::map<std::string, Bytes> caches;  // by the processors that share one
  std::error_code missing;
  for (const auto& cpu :
       std::filesystem::directory_iterator(root / "sys/devices/system/cpu", missing)) {
    const std::filesystem::path cache = cpu.path() / "cache/index3";
    std::ifstream size(cache / "size"), sharers(cache / "shared_cpu_list");
    Bytes kib = 0;
    std::string shared_by;
    if (size >> kib && sharers >> shared_by) caches[shared_by] = kib * 1_KiB;
  }
  Bytes all = 0;
  for (const auto& [shared_by, bytes] : caches) all += bytes;
  return all;
}

double processor_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

}  // namespace sluice
