#include "engine/doctor/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "cpu_adam/isa.h"
#include "engine/base/cgroup.h"
#include "engine/base/error.h"
#include "engine/base/host_memory.h"
#include "engine/base/machine.h"
#include "engine/base/pages.h"
#include "engine/base/units.h"
#include "gpu/device.h"

namespace sluice::doctor {
namespace {

namespace fs = std::filesystem;

// A queue of transfers wants about as much of it: 32 of 1 MiB each way.
constexpr Bytes kLocked = 64_MiB;
// Files of a model in many pieces, of the data, and of the run.
constexpr rlim_t kOpenFiles = 1024;

std::optional<double> number_in(const fs::path& path) {
  std::ifstream file(path);
  double value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

/// Cores' worth of time that a cgroup allows; nullopt: any.
std::optional<double> quota_of(const Cgroup& group) {
  if (group.version == 1) {
    const auto quota = number_in(group.folder / "cpu.cfs_quota_us");
    const auto period = number_in(group.folder / "cpu.cfs_period_us");
    if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
    return *quota / *period;
  }
  std::ifstream file(group.folder / "cpu.max");
  double quota = 0, period = 0;
  if (file >> quota >> period && period > 0) return quota / period;
  return std::nullopt;
}

unsigned allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = ::sched_getaffinity(0, sizeof set, &set) == 0;
  return known ? static_cast<unsigned>(CPU_COUNT(&set)) : std::thread::hardware_concurrency();
}

#if defined(__x86_64__)
bool multiplies_bf16() {
  return __builtin_cpu_supports("avx512bf16") != 0;
}
#else
bool multiplies_bf16() {
  return true;  // not known of others
}
#endif

std::string limit_text(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : fmt::format("{}", limit);
}

}  // namespace

Finding processors(const fs::path& root) {
  const unsigned cores = allowed_cores();
  Finding f{Verdict::kOk, "processor",
            fmt::format("{}, {} core{}", cpu_model().value_or("of no name"), cores,
                        cores == 1 ? "" : "s"),
            ""};
  const Cgroup* least = nullptr;
  double allowed = cores;
  const std::vector<Cgroup> groups = cgroups("cpu", root);
  for (const Cgroup& group : groups) {
    const auto quota = quota_of(group);
    if (!quota || *quota >= allowed) continue;
    least = &group;
    allowed = *quota;
  }
  if (least == nullptr) return f;
  f.verdict = Verdict::kLess;
  f.found += fmt::format(", of which the cgroup {} allows {:.1f}", least->name, allowed);
  const auto whole = std::max(1U, static_cast<unsigned>(allowed));
  f.fix = fmt::format(
      "raise {} of that cgroup (docker run --cpus), or set compute.threads and "
      "cpu_adam.threads to {}: more of them are stopped in the middle of a step",
      least->version == 1 ? "cpu.cfs_quota_us" : "cpu.max", whole);
  return f;
}

std::vector<Finding> instructions() {
  const cpu_adam::Isa best = cpu_adam::available_isas().front();
  Finding adam{Verdict::kOk, "optimizer", std::string(cpu_adam::name_of(best)), ""};
  if (best == cpu_adam::Isa::kScalar) {
    adam.verdict = Verdict::kLess;
    adam.fix = "a processor with AVX2, AVX-512 or NEON updates several times as fast";
  }
  Finding bf16{Verdict::kOk, "bf16", "has instructions of its own", ""};
  if (!multiplies_bf16()) {
    bf16 = {Verdict::kLess, "bf16", "has no instructions of its own here: products take longer",
            "precision.compute: fp32, where there is the memory for it"};
  }
  return {adam, bf16};
}

Finding memory(const fs::path& root) {
  const HostMemory host = host_memory(root.string());
  Finding f{Verdict::kOk, "memory", fmt::format("{} available", format_bytes(host.available)), ""};
  f.found += host.limits.empty() ? ", no cgroup limits it"
                                 : fmt::format("; limited by {}", fmt::join(host.limits, ", "));
  if (host.whose == "this machine") return f;
  f.verdict = Verdict::kLess;
  f.fix = fmt::format(
      "{} is what a run gets: raise its limit (docker run --memory), or let "
      "tiers.cpu.limit be auto",
      host.whose);
  return f;
}

Finding huge_pages(const fs::path& root) {
  const fs::path file = root / "sys/kernel/mm/transparent_hugepage/enabled";
  std::ifstream modes(file);
  std::string mode, each;
  while (modes >> each) {
    if (each.front() == '[') mode = each.substr(1, each.size() - 2);
  }
  if (mode == "always" || mode == "madvise") return {Verdict::kOk, "huge pages", mode, ""};
  return {Verdict::kLess, "huge pages", mode.empty() ? "not known to this kernel" : mode,
          fmt::format("echo madvise >{}: transfers and updates take less of a processor",
                      file.string())};
}

Finding locked_memory() {
  Finding f{Verdict::kOk, "locked memory", "", ""};
  std::byte* const memory = map_pages(kLocked);
  const bool locked = memory != nullptr && ::mlock(memory, kLocked) == 0;
  const int error = errno;
  if (memory != nullptr) unmap_pages(memory, kLocked);
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string allowed =
      limit.rlim_cur == RLIM_INFINITY ? "unlimited" : format_bytes(limit.rlim_cur);
  f.found = fmt::format("{}: {} {}", allowed, format_bytes(kLocked),
                        locked ? "could be locked" : "could not");
  if (locked) return f;
  f.verdict = Verdict::kLess;
  f.found += ": " + std::generic_category().message(error);
  f.fix =
      "ulimit -l unlimited (systemd: LimitMEMLOCK=infinity, docker run --ulimit memlock=-1): "
      "transfers take less of a processor where their memory is pinned once";
  return f;
}

std::vector<Finding> file_limits() {
  rlimit open{}, size{};
  ::getrlimit(RLIMIT_NOFILE, &open);
  ::getrlimit(RLIMIT_FSIZE, &size);
  Finding files{Verdict::kOk, "open files", limit_text(open.rlim_cur), ""};
  if (open.rlim_cur < kOpenFiles) {
    files.verdict = Verdict::kLess;
    files.fix = fmt::format("ulimit -n {}: a model or data of many files needs them", kOpenFiles);
  }
  Finding bytes{Verdict::kOk, "file size", limit_text(size.rlim_cur), ""};
  if (size.rlim_cur != RLIM_INFINITY) {
    bytes.verdict = Verdict::kLess;
    bytes.found = format_bytes(size.rlim_cur);
    bytes.fix = "ulimit -f unlimited: the nvme tier is one file per folder";
  }
  return {files, bytes};
}

Finding device(const std::function<gpu::Device()>& ask) {
  try {
    const gpu::Device d = ask();
    std::string found = fmt::format("{}, {}", d.name, format_bytes(d.memory));
    if (d.unified) found += ": this build computes on the processor, in host memory";
    return {Verdict::kOk, "device", std::move(found), ""};
  } catch (const Error& error) {
    return {Verdict::kMissing, "device", error.what(), "no run of this build starts without it"};
  }
}

}  // namespace sluice::doctor
