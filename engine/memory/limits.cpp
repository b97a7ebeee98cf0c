#include "engine/memory/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "engine/base/error.h"
#include "gpu/device.h"
#include "nvme/filesystem.h"

namespace sluice::memory {
namespace {

/// What the system could give without swapping.
Bytes available_memory() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key, unit;
  Bytes kib = 0;
  while (meminfo >> key >> kib) {
    std::getline(meminfo, unit);
    if (key == "MemAvailable:") return kib << 10;
  }
  throw Error(Errc::kEnv,
              "/proc/meminfo does not say how much memory is available; set "
              "tiers.cpu.limit to a size");
}

Bytes resolve(const Limit& limit, Bytes all) {
  if (const auto* bytes = std::get_if<Bytes>(&limit)) return *bytes;
  return static_cast<Bytes>(std::get<double>(limit) * static_cast<double>(all));
}

Bytes cpu_limit(const CpuTier& tier) {
  const Bytes available = available_memory();
  if (!tier.limit) return available - std::min(available, tier.reserve);
  const Bytes limit = resolve(*tier.limit, available);
  SLUICE_CHECK(limit <= available, kBudget,
               fmt::format("tiers.cpu.limit is {}, this machine has {} available: lower it",
                           format_bytes(limit), format_bytes(available)));
  return limit;
}

}  // namespace

std::array<Bytes, kTiers> resolve_limits(const Options& options) {
  const gpu::Device device = gpu::device();
  const Bytes gpu = resolve(options.gpu.limit, device.memory);
  SLUICE_CHECK(gpu <= device.memory, kBudget,
               fmt::format("tiers.gpu.limit is {}, {} has {}: lower it", format_bytes(gpu),
                           device.name, format_bytes(device.memory)));
  const Bytes nvme = resolve(options.nvme.limit, nvme::free_bytes(options.nvme.paths));
  return {gpu, cpu_limit(options.cpu), nvme};
}

}  // namespace sluice::memory
