#include "engine/train/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "cpu_adam/optimizer.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/zero/chunk.h"
#include "gpu/arithmetic.h"
#include "gpu/device.h"
#include "gpu/memory.h"
#include "gpu/stream.h"
#include "nvme/speed.h"
#include "nvme/sums.h"

namespace sluice::train {
namespace {

using plan::Throughput;

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

ArithmeticTimings time_host(const cpu_adam::Optimizer& optimizer) {
  std::vector<float> master(kUpdated), m(kUpdated), v(kUpdated);
  const std::vector<float> gradient(kUpdated, 1.0F);
  const std::span<const float> contribution(gradient);
  const cpu_adam::Hyper hyper;
  const double update = second_time([&] {
    optimizer.update(hyper, {master, m, v}, contribution, {});
  });
  const double sum = second_time([&] { optimizer.accumulate(m, contribution); });
  return {update, sum};
}

/// Of what it does, by its own clock.
template <class Work>
double second_time(gpu::Stream& stream, Work work) {
  stream.run(work);
  const gpu::Event begin = stream.record();
  stream.run(work);
  const gpu::Event end = stream.record();
  end.ticket().wait();
  return std::max(gpu::seconds_between(begin, end), 1e-9);
}

ArithmeticTimings time_device(const cpu_adam::Optimizer& optimizer) {
  constexpr Bytes kBytes = kUpdated * sizeof(float);
  gpu::DeviceHeap heap(4 * kBytes);
  std::vector<gpu::DeviceBlock> blocks;
  gpu::Stream stream("arithmetic");
  const gpu::Arithmetic device(optimizer);
  const auto zeros = [&] {
    const std::span bytes(blocks.emplace_back(heap.allocate(kBytes)).data(), kBytes);
    stream.run([&device, bytes] { device.fill(bytes, std::byte{0}); });
    return std::span(reinterpret_cast<float*>(bytes.data()), kUpdated);
  };
  const cpu_adam::State state{zeros(), zeros(), zeros()};
  const std::span<const float> gradient = zeros();
  const double update =
      second_time(stream, [&] { device.update(cpu_adam::Hyper{}, state, gradient, {}); });
  const double sum = second_time(stream, [&] { device.accumulate(state.m, gradient); });
  return {update, sum};
}

/// nullopt: they cannot be measured.
std::optional<std::vector<nvme::Speed>> look_at_drives(const memory::NvmeTier& nvme,
                                                       const nvme::Options& aio) {
  try {
    return nvme::look_at(nvme.paths, aio);
  } catch (const Error& error) {
    const bool of_the_drive = error.code == Errc::kIo || error.code == Errc::kBudget;
    if (!of_the_drive) throw;  // the run would be refused for it
    log::warning(fmt::format("the drives were not measured, the plan guesses: {}", error.what()));
    return std::nullopt;
  }
}

Throughput throughput(const nvme::Rate& rate) {
  return {rate.alone, rate.together};
}

}  // namespace

plan::Rates rates_of(const Timings& timings, bool updates_on_device) {
  plan::Rates rates;
  const auto updated = [](Bytes per_elem) { return static_cast<double>(kUpdated * per_elem); };
  const auto& device = timings.device ? *timings.device : timings.host;
  const auto& optimizer = updates_on_device ? device : timings.host;
  if (updates_on_device) rates.updates = schedule::LaneKind::kCompute;
  rates.adam = updated(zero::kUpdateBytesPerElem) / optimizer.update;
  rates.first_values = updated(zero::kUpdateBytesPerElem) / timings.host.update;
  // As ops count it: a sum in fp32, read and written.
  rates.sums = updated(2 * sizeof(float)) / timings.host.sum;
  rates.device_sums = updated(2 * sizeof(float)) / device.sum;
  if (timings.drives) {
    rates.nvme_read = throughput(timings.drives->read);
    rates.nvme_write = throughput(timings.drives->write);
    rates.nvme_overlap = timings.drives->overlap;
  }
  if (timings.copy > 0) rates.copy = static_cast<double>(kCopied) / timings.copy;
  return rates;
}

Calibration calibrate(const schedule::Setup& setup, const Numerics& numerics,
                      const std::map<schedule::OpId, double>& ops,
                      const cpu_adam::Options& cpu_adam, const memory::NvmeTier& nvme,
                      const nvme::Options& aio) {
  const cpu_adam::Optimizer optimizer(cpu_adam);
  Timings timings{.host = time_host(optimizer)};
  const bool sums_there = setup.homes.offload_gradient == schedule::GradientHome::kNone;
  if (setup.updates_on_device() || sums_there) timings.device = time_device(optimizer);
  if (setup.sharing == schedule::Sharing::kSeparate) timings.copy = copy_seconds();
  Calibration found;
  if (setup.uses_nvme()) {
    if (const auto drives = look_at_drives(nvme, aio)) {
      timings.drives = nvme::together(*drives);
      for (const nvme::Speed& drive : *drives) found.speeds.push_back(drive.both());
    }
  }
  found.rates = rates_of(timings, setup.updates_on_device());
  plan::Rates& rates = found.rates;
  if (setup.uses_nvme()) rates.checks = nvme::sum_rate();
  if (setup.uses_nvme() && !timings.drives) rates.nvme_read = rates.nvme_write = kGuess;
  // Every op of a kind has one shape, so its time is all there is to know.
  for (const auto& [id, seconds] : ops) rates.compute[id] = {0, 0, seconds};
  const double cores = std::max(1U, std::thread::hardware_concurrency());
  rates.check_cores = 1.0 / cores;
  rates.cpu_cores = std::min(1.0, optimizer.threads() / cores);
  if (gpu::device().unified) {
    rates.compute_cores = std::min(1.0, numerics.threads / cores);
    rates.copy_cores = 1.0 / cores;
  }
  return found;
}

}  // namespace sluice::train
