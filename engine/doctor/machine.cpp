#include "engine/doctor/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

#include "cpu_adam/isa.h"
#include "engine/base/cores.h"
#include "engine/base/error.h"
#include "engine/base/host_memory.h"
#include "engine/base/machine.h"
#include "engine/base/pages.h"
#include "engine/base/units.h"
#include "gpu/device.h"

namespace sluice::doctor {
namespace {

namespace fs = std::filesystem;

// A queue of transfers wants as much of it at the most that is of use: 32 of 1 MiB each way.
constexpr Bytes kLocked = 64_MiB;
// Files of a model in many pieces, of the data, and of the run.
constexpr rlim_t kOpenFiles = 1024;

std::string counted(unsigned n, const char* what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

std::string limit_text(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : fmt::format("{}", limit);
}

}  // namespace

Finding processors(const fs::path& root) {
  const Cores found = cores(root);
  Finding f{
      Verdict::kOk, "processor",
      fmt::format("{}, {}", cpu_model().value_or("of no name"), counted(found.usable, "core")), ""};
  if (!found.quota) return f;
  f.verdict = Verdict::kLess;
  f.found +=
      fmt::format(", of which the cgroup {} allows {:.1f}", found.quota->group, found.quota->cores);
  const bool stops = found.threads() > found.quota->cores;
  f.fix = fmt::format(
      "raise {} of that cgroup (docker run --cpus); left at auto, compute.threads and "
      "cpu_adam.threads are {}: {}",
      found.quota->file, found.threads(),
      stops ? "that is more, the run is stopped for a part of each of its periods"
            : "more would be stopped in the middle of a step");
  return f;
}

Finding threads(const std::string& key, unsigned asked, const fs::path& root) {
  const unsigned have = cores(root).threads();
  Finding f{Verdict::kOk, key,
            fmt::format("{} on {}", counted(asked, "thread"), counted(have, "core")), ""};
  if (asked <= have) return f;
  f.verdict = Verdict::kLess;
  f.fix = fmt::format("threads that take turns on a core wait for each other: {} or auto", have);
  return f;
}

Finding optimizer() {
  const cpu_adam::Isa best = cpu_adam::available_isas().front();
  Finding adam{Verdict::kOk, "optimizer", std::string(cpu_adam::name_of(best)), ""};
  if (best == cpu_adam::Isa::kScalar) {
    adam.verdict = Verdict::kLess;
    adam.fix = "a processor with AVX2, AVX-512 or NEON updates several times as fast";
  }
  return adam;
}

Finding products(DType type, const std::string& lacking, const std::string& remedy) {
  const std::string subject(name_of(type));
  if (lacking.empty()) return {Verdict::kOk, subject, "has instructions of its own", ""};
  return {Verdict::kLess, subject, lacking,
          "its products are computed in fp32, about as fast as with precision.compute: fp32; " +
              remedy};
}

Finding memory(const fs::path& root) {
  const HostMemory host = host_memory(root.string());
  Finding f{Verdict::kOk, "memory", fmt::format("{} available", format_bytes(host.available)), ""};
  f.found += host.limits.empty() ? ", no cgroup limits it"
                                 : fmt::format("; limited by {}", fmt::join(host.limits, ", "));
  if (host.whose == "this machine") return f;
  f.verdict = Verdict::kLess;
  f.fix = fmt::format(
      "{} is what a run gets: raise its limit (docker run --memory, --cpuset-mems), or let "
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
