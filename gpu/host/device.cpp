#include "gpu/device.h"

#include <unistd.h>

#include <fstream>

#include "engine/base/error.h"

namespace sluice::gpu {
namespace {

std::string processor_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "processor";  // not every architecture gives its name there
}

}  // namespace

Device device() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  SLUICE_CHECK(pages > 0 && page > 0, kDevice, "the system does not say how much memory it has");
  return {.name = processor_name(),
          .memory = static_cast<Bytes>(pages) * static_cast<Bytes>(page),
          .unified = true};
}

}  // namespace sluice::gpu
