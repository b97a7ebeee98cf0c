#include "engine/memory/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "engine/base/error.h"
#include "nvme/filesystem.h"

namespace sluice::memory {
namespace {

constexpr std::size_t kGpu = index(prefetch::Tier::kGpu);
constexpr std::size_t kCpu = index(prefetch::Tier::kCpu);
constexpr std::size_t kNvme = index(prefetch::Tier::kNvme);

Bytes part(double fraction, Bytes all) {
  return static_cast<Bytes>(fraction * static_cast<double>(all));
}

Bytes minus(Bytes a, Bytes b) {
  return a - std::min(a, b);
}

std::string has(const HostMemory& host) {
  return fmt::format("{} has {} available", host.whose, format_bytes(host.available));
}

Bytes gpu_limit(const Options& options, const Machine& machine) {
  const auto& [device, host, device_free] = machine;
  const auto* size = std::get_if<Bytes>(&options.gpu.limit);
  const bool of_host = device.unified && host.available < device.memory;
  const Bytes all = of_host ? host.available : std::min(device.memory, device_free);
  if (size == nullptr) return part(std::get<double>(options.gpu.limit), all);
  std::string there = fmt::format("{} has {}", device.name, format_bytes(device.memory));
  if (all < device.memory) {
    there += fmt::format(", {} free: other processes hold the rest", format_bytes(all));
  }
  SLUICE_CHECK(*size <= all, kBudget,
               fmt::format("tiers.gpu.limit is {}, {}: lower it", format_bytes(*size),
                           of_host ? has(host) : there));
  return *size;
}

Bytes cpu_limit(const CpuTier& tier, const HostMemory& host) {
  if (!tier.limit) {
    SLUICE_CHECK(tier.reserve < host.available, kBudget,
                 fmt::format("tiers.cpu.limit is auto and tiers.cpu.reserve {}, {}: lower the "
                             "reserve, or set a limit",
                             format_bytes(tier.reserve), has(host)));
    return host.available - tier.reserve;
  }
  const auto* size = std::get_if<Bytes>(&*tier.limit);
  if (size == nullptr) return part(std::get<double>(*tier.limit), host.available);
  SLUICE_CHECK(*size <= host.available, kBudget,
               fmt::format("tiers.cpu.limit is {}, {}: lower it", format_bytes(*size), has(host)));
  return *size;
}

bool in_memory(const std::string& path) {
  return nvme::filesystem_of(path).medium == nvme::Medium::kRam;
}

Bytes nvme_limit(const NvmeTier& tier) {
  if (!tier.allow_ram_path && std::ranges::any_of(tier.paths, in_memory)) return 0;
  const Bytes free = nvme::free_bytes(tier.paths);
  const auto* size = std::get_if<Bytes>(&tier.limit);
  if (size == nullptr) return part(std::get<double>(tier.limit), free);
  SLUICE_CHECK(tier.paths.empty() || *size <= free, kBudget,
               fmt::format("tiers.nvme.limit is {}, {} free in tiers.nvme.paths ({}): lower it, "
                           "free some space or name more folders",
                           format_bytes(*size), format_bytes(free), fmt::join(tier.paths, ", ")));
  return *size;
}

void check_device(const GpuTier& tier, const gpu::Device& device) {
  if (!tier.device || *tier.device == device.backend) return;
  const std::string_view asked = name_of(*tier.device);
  const std::string build = *tier.device == gpu::Backend::kCuda
                                ? "scripts/install.sh cuda; cmake --preset cuda; cmake --build "
                                  "--preset cuda makes build/cuda/engine/app/sluice"
                                : "./sluice build makes it";
  throw Error(Errc::kDevice,
              fmt::format("tiers.gpu.device is {}, and this sluice is built for {} ({}): {}; or "
                          "write tiers.gpu.device: auto",
                          asked, name_of(device.backend), device.name, build));
}

}  // namespace

Machine this_machine() {
  const gpu::Device device = gpu::device();
  Machine machine{device, host_memory()};
  if (!device.unified) machine.device_free = gpu::free_memory();
  return machine;
}

Limits resolve_limits(const Options& options, const Machine& machine) {
  check_device(options.gpu, machine.device);
  Limits limits;
  limits[kGpu] = gpu_limit(options, machine);
  limits[kCpu] = cpu_limit(options.cpu, machine.host);
  limits[kNvme] = nvme_limit(options.nvme);
  if (!machine.device.unified) return limits;

  const HostMemory& host = machine.host;
  const bool gpu_size = std::holds_alternative<Bytes>(options.gpu.limit);
  const bool cpu_size = options.cpu.limit && std::holds_alternative<Bytes>(*options.cpu.limit);
  SLUICE_CHECK(
      !gpu_size || !cpu_size || limits[kCpu] <= host.available - limits[kGpu], kBudget,
      fmt::format("tiers.gpu.limit is {} and tiers.cpu.limit is {}; the device computes in "
                  "host memory, so both are taken from it, and {}: lower one",
                  format_bytes(limits[kGpu]), format_bytes(limits[kCpu]), has(host)));
  if (gpu_size && !cpu_size) {
    const Bytes reserve = options.cpu.limit ? 0 : options.cpu.reserve;
    limits[kCpu] = std::min(limits[kCpu], minus(host.available - limits[kGpu], reserve));
  }
  if (cpu_size && !gpu_size) limits[kGpu] = std::min(limits[kGpu], host.available - limits[kCpu]);
  return limits;
}

Bytes host_limit(const Options& options, const Machine& machine) {
  if (!machine.device.unified) return std::numeric_limits<Bytes>::max();
  return minus(machine.host.available, options.cpu.limit ? 0 : options.cpu.reserve);
}

Limits share_host_memory(const Limits& limits, const Limits& minimum, const Options& options,
                         const Machine& machine) {
  const Bytes all = host_limit(options, machine);
  if (!machine.device.unified || limits[kGpu] + limits[kCpu] <= all) return limits;
  const bool gpu_size = std::holds_alternative<Bytes>(options.gpu.limit);
  const bool cpu_size = options.cpu.limit && std::holds_alternative<Bytes>(*options.cpu.limit);
  if (gpu_size || cpu_size) return limits;  // done by resolve_limits()

  const Bytes need = minimum[kGpu] + minimum[kCpu];
  Limits shared = limits;
  shared[kGpu] = std::min(limits[kGpu], minimum[kGpu] + minus(all, need) / 2);
  shared[kCpu] = std::min(limits[kCpu], all - shared[kGpu]);
  return shared;
}

Bytes taken_since(const Machine& machine) {
  if (machine.device.unified) return 0;
  return minus(machine.device_free, gpu::free_memory());
}

Bytes host_bytes(const prefetch::BytesByTier& tiers) {
  const Bytes of_device = gpu::device().unified ? tiers[index(Tier::kGpu)] : 0;
  return tiers[index(Tier::kCpu)] + of_device;
}

void check_available(Bytes bytes, const HostMemory& host) {
  SLUICE_CHECK(bytes <= host.available, kBudget,
               fmt::format("the run takes {} of host memory, {}: lower tiers.cpu.limit or "
                           "tiers.gpu.limit, or end what else uses it",
                           format_bytes(bytes), has(host)));
}

}  // namespace sluice::memory
