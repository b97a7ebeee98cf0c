#include "engine/train/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "cpu_adam/optimizer.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/zero/chunk.h"
#include "gpu/device.h"
#include "gpu/memory.h"
#include "gpu/stream.h"
#include "nvme/file.h"
#include "nvme/filesystem.h"
#include "nvme/io_queue.h"
#include "nvme/store.h"

namespace sluice::train {
namespace {

using plan::Throughput;

/// A drive that takes longer than this for one transfer is not asked for several.
constexpr double kSlowDrive = 0.1;
constexpr Throughput kGuess = {0.5e9, 1e9};

template <class Work>
double seconds_of(Work work) {
  const Nanos begin = now_ns();
  work();
  return std::max(to_seconds(now_ns() - begin), 1e-9);
}

/// The first run pays for what only a first run pays.
template <class Work>
double second_time(Work work) {
  work();
  return seconds_of(work);
}

double copy_seconds() {
  gpu::DeviceHeap heap(kCopied);
  const gpu::DeviceBlock device = heap.allocate(kCopied);
  const gpu::PinnedSlab host(kCopied);
  std::memset(host.data(), 1, kCopied);
  gpu::Stream stream("copy");
  return second_time([&] { stream.copy(device.data(), host.data(), kCopied).ticket().wait(); });
}

struct HostTimings {
  double update, sum;
  unsigned threads;
};

HostTimings time_host(const cpu_adam::Options& options) {
  const cpu_adam::Optimizer optimizer(options);
  std::vector<float> master(kUpdated), m(kUpdated), v(kUpdated);
  const std::vector<float> gradient(kUpdated, 1.0F);
  const std::span<const float> contribution(gradient);
  const cpu_adam::Hyper hyper;
  const double update = second_time([&] {
    optimizer.update(hyper, {master, m, v}, contribution, {});
  });
  const double sum = second_time([&] { optimizer.accumulate(m, contribution); });
  return {update, sum, optimizer.threads()};
}
class Drives {
 public:
  Drives(const std::vector<std::string>& paths, const nvme::Options& aio)
      : memory_(kTransfers * kTransfer) {
    std::memset(memory_.data(), 1, memory_.size());
    for (const std::string& path : paths) {
      files_.push_back(nvme::open_unnamed(nvme::nearest_existing(path), aio.direct));
      files_.back().preallocate(kTransfers * kTransfer);
    }
    queue_ = nvme::make_queue(aio, files_.front().caching());
  }

  Timings::Drive time(nvme::Op op) {
    const double one = seconds_of([&] { transfer(op, 1); });
    if (one > kSlowDrive) return {one, 0};
    return {one, seconds_of([&] { transfer(op, kTransfers); })};
  }

 private:
  /// Round the folders in turn, as the run's extents are.
  void transfer(nvme::Op op, std::size_t count) {
    std::vector<Ticket> tickets;
    for (std::size_t i = 0; i < count; ++i) {
      const nvme::File& file = files_[i % files_.size()];
      tickets.push_back(
          queue_->submit({op, &file, i * kTransfer, memory_.data() + i * kTransfer, kTransfer}));
    }
    for (const Ticket& ticket : tickets) ticket.wait();
  }

  gpu::PinnedSlab memory_;
  std::vector<nvme::File> files_;
  std::unique_ptr<nvme::IoQueue> queue_;  // last, so that it drains first
};

/// nullopt: they cannot be measured.
std::optional<std::pair<Timings::Drive, Timings::Drive>> time_drives(const memory::NvmeTier& nvme,
                                                                     const nvme::Options& aio) {
  try {
    Drives drives(nvme.paths, aio);
    drives.time(nvme::Op::kWrite);  // the first pays for space that was only reserved
    const Timings::Drive write = drives.time(nvme::Op::kWrite);
    return std::pair{drives.time(nvme::Op::kRead), write};
  } catch (const Error& error) {
    const bool of_the_drive = error.code == Errc::kIo || error.code == Errc::kBudget;
    if (!of_the_drive) throw;  // the run would be refused for it
    log::warning(fmt::format("the drives were not measured, the plan guesses: {}", error.what()));
    return std::nullopt;
  }
}

Throughput throughput(const Timings::Drive& drive) {
  const auto one = static_cast<double>(kTransfer);
  return {one / drive.one, drive.many > 0 ? kTransfers * one / drive.many : 0};
}

}  // namespace

plan::Rates rates_of(const Timings& timings) {
  plan::Rates rates;
  const auto updated = [](Bytes per_elem) { return static_cast<double>(kUpdated * per_elem); };
  rates.adam = updated(zero::kUpdateBytesPerElem) / timings.update;
  // As ops count it: a sum in fp32, read and written.
  rates.sums = updated(2 * sizeof(float)) / timings.sum;
  if (timings.copy > 0) rates.copy = static_cast<double>(kCopied) / timings.copy;
  if (timings.read) rates.nvme_read = throughput(*timings.read);
  if (timings.write) rates.nvme_write = throughput(*timings.write);
  return rates;
}

plan::Rates calibrate(const schedule::Setup& setup, const Numerics& numerics,
                      const std::map<schedule::OpId, double>& ops,
                      const cpu_adam::Options& cpu_adam, const memory::NvmeTier& nvme,
                      const nvme::Options& aio) {
  const HostTimings host = time_host(cpu_adam);
  Timings timings{.update = host.update, .sum = host.sum};
  if (setup.sharing == schedule::Sharing::kSeparate) timings.copy = copy_seconds();
  const auto drives = setup.uses_nvme() ? time_drives(nvme, aio) : std::nullopt;
  if (drives) std::tie(timings.read, timings.write) = *drives;
  plan::Rates rates = rates_of(timings);
  if (setup.uses_nvme() && !drives) rates.nvme_read = rates.nvme_write = kGuess;
  // Every op of a kind has one shape, so its time is all there is to know.
  for (const auto& [id, seconds] : ops) rates.compute[id] = {0, 0, seconds};
  const double cores = std::max(1U, std::thread::hardware_concurrency());
  rates.cpu_cores = std::min(1.0, host.threads / cores);
  if (gpu::device().unified) {
    rates.compute_cores = std::min(1.0, numerics.threads / cores);
    rates.copy_cores = 1.0 / cores;
  }
  return rates;
}

}  // namespace sluice::train
