#include <fmt/format.h>

#include "engine/config/keys.h"

namespace sluice::config {
namespace {

std::vector<Field> tier_fields() {
  using C = Config;
  using memory::Unified;
  return {
      key("tiers.gpu.limit", size_or_fraction(),
          "How much of the device's memory a run may use, of what is free; less mimics a smaller "
          "card. "
          "Where the device computes in host memory both tiers come from it: a size counts first, "
          "and two tiers without one get what they need and share the rest",
          &C::tiers, &memory::Options::gpu, &memory::GpuTier::limit),
      key("tiers.gpu.device",
          or_auto(named<gpu::Backend>({gpu::Backend::kHost, gpu::Backend::kCuda})),
          "What a run needs to compute on; auto takes what this sluice is built for. Another one "
          "is "
          "refused: a run file for a GPU does not quietly run without",
          &C::tiers, &memory::Options::gpu, &memory::GpuTier::device),
      key("tiers.gpu.unified",
          choice<Unified>({{"auto", Unified::kAuto}, {"false", Unified::kFalse}}),
          "false copies between device and host even where they share their memory, as if they did "
          "not",
          &C::tiers, &memory::Options::gpu, &memory::GpuTier::unified),
      key("tiers.cpu.limit", or_auto(size_or_fraction()),
          "How much of the host's memory a run may use, of what the machine and its cgroup have "
          "available; auto takes all of that but tiers.cpu.reserve",
          &C::tiers, &memory::Options::cpu, &memory::CpuTier::limit),
      key("tiers.cpu.reserve", size(0_B, kMostBytes, 1_B),
          "How much of the host's memory is left to the rest of the machine when tiers.cpu.limit "
          "is auto",
          &C::tiers, &memory::Options::cpu, &memory::CpuTier::reserve),
      key("tiers.cpu.pinned_limit", or_auto(size(0_B, kMostBytes, 1_B)),
          "How much of it is pinned for copies to and from a GPU of its own memory, auto is all: "
          "where the system allows less (WSL, containers), copies from the rest are slower",
          &C::tiers, &memory::Options::cpu, &memory::CpuTier::pinned_limit),
      key("tiers.nvme.paths", paths(),
          "The folders of the nvme tier, one per drive. Without any it is a folder of the run",
          &C::tiers, &memory::Options::nvme, &memory::NvmeTier::paths),
      key("tiers.nvme.limit", size_or_fraction(),
          "How much of the drives' free space a run may use", &C::tiers, &memory::Options::nvme,
          &memory::NvmeTier::limit),
      key("tiers.nvme.allow_ram_path", boolean(),
          "true accepts a folder that lies in memory (tmpfs), which tests the code but not a drive",
          &C::tiers, &memory::Options::nvme, &memory::NvmeTier::allow_ram_path),
      key("tiers.nvme.endurance", or_null(endurance()),
          "What the drives together endure being written, as their data sheets have it (TBW, "
          "powers "
          "of ten): the start and --dry-run say after how many steps and days that is used up",
          &C::tiers, &memory::Options::nvme, &memory::NvmeTier::endurance),
  };
}

std::vector<Field> aio_fields() {
  using C = Config;
  using A = nvme::Options;
  using nvme::Direct;
  using nvme::Engine;
  using nvme::Verify;
  return {
      key("aio.engine",
          choice<Engine>({{"auto", Engine::kAuto},
                          {"io_uring", Engine::kIoUring},
                          {"libaio", Engine::kLibaio},
                          {"threads", Engine::kThreads}}),
          "How requests reach the drives, those of models read and written too: io_uring, the "
          "kernel's older libaio, or threads that "
          "read "
          "and write. auto takes the first of them that the kernel allows, and threads where "
          "requests go through the page cache",
          &C::aio, &A::engine),
      key("aio.direct",
          choice<Direct>(
              {{"auto", Direct::kAuto}, {"true", Direct::kTrue}, {"false", Direct::kFalse}}),
          "Whether requests go past the page cache (O_DIRECT). auto tries it with a write and a "
          "read at the start. A model's files go past it wherever that works: false lets one that "
          "is "
          "there already come from it",
          &C::aio, &A::direct),
      key("aio.block_size",
          auto_is(A{}.block_size, size(kAlignment, nvme::kMaxBlockSize, kAlignment)),
          "Bytes per request to a drive", &C::aio, &A::block_size),
      key("aio.queue_depth", auto_is(A{}.queue_depth, integer<unsigned>(1, nvme::kMaxQueueDepth)),
          "How many reads, and how many writes, a drive has under way at a time", &C::aio,
          &A::queue_depth),
      also(key("aio.threads", or_auto(integer<unsigned>(1, nvme::kMaxThreads)),
               fmt::format("Threads of the engine called threads, as many for writes; auto is {}",
                           nvme::kAutoThreads),
               &C::aio, &A::threads),
           {"aio.intra_op_parallelism", "aio.thread_count"}),
      key("aio.verify",
          choice<Verify>(
              {{"auto", Verify::kAuto}, {"true", Verify::kTrue}, {"false", Verify::kFalse}}),
          "Whether what comes back from a drive is checked against a sum (XXH3) of what was "
          "written. auto does where that costs at most 2% of the simulated step, or the step is "
          "too long to simulate",
          &C::aio, &A::verify),
      key("aio.timeout", duration(std::chrono::seconds(1), std::chrono::hours(24)),
          "A read or write that a drive has not answered for so long ends the run, with what and "
          "where it is",
          &C::aio, &A::timeout),
  };
}

std::vector<Field> limit_fields() {
  return {
      key("limits.max_write_total", or_null(size(1_B, kMostBytes, 1_B)),
          "The most that a run may write to the nvme tier, which wears drives. It ends before "
          "the step that would write more, with its weights; null is no limit. The look at "
          "the drives before the first step, some 4 s of writing on each, up to 11 s on one that "
          "does not hold still, is not counted",
          &Config::limits, &train::LimitOptions::max_write_total)};
}

std::vector<Field> watchdog_fields() {
  return {
      key("watchdog.step", or_auto(duration(std::chrono::seconds(1), std::chrono::hours(168))),
          "An operation that runs for longer ends the run with exit code 7; the log says which "
          "one, where its bytes lie, and where every thread is. auto is twenty times the longest "
          "step so far, at least 10m",
          &Config::watchdog, &train::WatchdogOptions::step)};
}

}  // namespace

std::vector<Field> storage_fields() {
  std::vector<Field> all = tier_fields();
  std::ranges::move(aio_fields(), std::back_inserter(all));
  std::ranges::move(limit_fields(), std::back_inserter(all));
  std::ranges::move(watchdog_fields(), std::back_inserter(all));
  return all;
}

}  // namespace sluice::config
