#include "engine/train/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "cpu_adam/optimizer.h"
#include "engine/base/cores.h"
#include "engine/base/error.h"
#include "engine/base/host_memory.h"
#include "engine/base/log.h"
#include "engine/base/machine.h"
#include "engine/schedule/catalog.h"
#include "engine/schedule/gradient_route.h"
#include "engine/train/look.h"
#include "engine/zero/chunk.h"
#include "gpu/device.h"
#include "gpu/stream.h"
#include "nvme/filesystem.h"
#include "nvme/speed.h"

namespace sluice::train {
namespace {

using plan::Throughput;

constexpr Throughput kGuess = {0.5e9, 1e9};

/// Of its backward, alone; 0: not known, or too long to be run over and over, which is said.
double layer_seconds(const Measured& ops) {
  const auto found = ops.seconds.find(schedule::OpId::kLayerBackward);
  if (found == ops.seconds.end()) return 0;
  if (found->second <= kLongestBeside) return found->second;
  log::info(
      fmt::format("calibration: a layer takes {:.0f} s, too long to be looked at beside "
                  "other work: how they share cores is a guess",
                  found->second));
  return 0;
}

/// Weights, a gradient and state, wherever they are.
Bytes model_of(const schedule::Setup& setup) {
  return setup.model->parameters() * (zero::kStateBytesPerElem + 2 * size_of(setup.compute));
}

constexpr Bytes kShares = 8;  // of what can be taken, one is

Bytes cache_or_usual(Bytes last_cache) {
  constexpr Bytes kUsual = 32_MiB;
  return last_cache > 0 ? last_cache : kUsual;
}

/// nullopt: they cannot be measured.
std::optional<std::vector<nvme::Speed>> look_at_drives(const memory::NvmeTier& nvme,
                                                       const nvme::Options& aio, Bytes stored,
                                                       const std::function<void()>& beside) {
  try {
    return nvme::look_at(nvme.paths, aio, stored, beside);
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

Bytes looked_at(Bytes last_cache, const RunBytes& of_run, Bytes available) {
  constexpr Bytes kLeast = 4_MiB, kMost = 2_GiB, kTimes = 8;
  const Bytes beyond = kTimes * cache_or_usual(last_cache);
  const Bytes wanted = std::min({beyond, of_run.model, of_run.memory / 5 * 3});
  return std::min(std::clamp(wanted, kLeast, kMost), available / kShares);
}

Bytes cleared_by(Bytes last_cache, Bytes of_run, Bytes available) {
  constexpr Bytes kMost = 1_GiB, kTimes = 2;
  return std::min({kTimes * cache_or_usual(last_cache), of_run, kMost, available / kShares});
}

std::optional<SharedCores> shared_cores(const Paces& paces, double first_share,
                                        double second_share) {
  constexpr double kLeast = 0.5, kMost = 2, kMostWeight = 16;
  if (first_share + second_share <= 1) return SharedCores{1, second_share, 1};  // room for both
  const double first = paces.first * first_share;
  const double given = first + paces.second * second_share;
  if (given < kLeast || given > kMost) return std::nullopt;
  const double weight = std::clamp(paces.second / paces.first, 1 / kMostWeight, kMostWeight);
  if (given <= 1) return SharedCores{given, second_share, weight};
  // Its threads wait, for memory or each other, and leave cores to others meanwhile.
  return SharedCores{1, std::max(0.0, 1 - first) / paces.second, weight};
}

DType updates_read(const schedule::Setup& setup) {
  std::uint64_t all = 0, wide = 0;
  for (int s = 0; s < static_cast<int>(setup.layouts.size()); ++s) {
    const std::uint64_t elems = setup.segment_elems(s);
    all += elems;
    if (schedule::gradient_route(setup, s).dtype == DType::kF32) wide += elems;
  }
  return 2 * wide > all ? DType::kF32 : setup.compute;
}

Bytes stored_of(const schedule::Setup& setup) {
  Bytes per_elem = 0;
  if (setup.homes.offload_optimizer == schedule::OptimizerHome::kNvme) {
    per_elem += setup.state_bytes_per_elem();
  }
  if (setup.homes.offload_param == schedule::ParamHome::kNvme) per_elem += size_of(setup.compute);
  Bytes elems = 0;
  for (const zero::Layout& layout : setup.layouts) elems += layout.elems;
  Bytes stored = per_elem * elems;
  if (setup.homes.offload_activation == schedule::ActivationHome::kNvme) {
    // Of the layers: neither the embedding nor the head has one that waits.
    const std::size_t layers = std::max<std::size_t>(setup.model->blocks.size(), 2) - 2;
    const auto inputs = layers * static_cast<std::size_t>(setup.sweep);
    stored += inputs * schedule::sizes_of(setup).activation;
  }
  return stored;
}

std::vector<Unsteady> unsteady_drives(const std::vector<std::string>& paths,
                                      const std::vector<nvme::Speed>& speeds) {
  std::vector<Unsteady> unsteady;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const double spread = speeds[i].spread;
    // Paths of one drive had one look.
    const bool told = std::ranges::find(unsteady, spread, &Unsteady::spread) != unsteady.end();
    if (spread <= nvme::kSteady || told) continue;
    unsteady.push_back({"the drive of " + paths[i], spread});
  }
  return unsteady;
}

plan::Rates rates_of(const Timings& timings, const OnDevice& on_device) {
  plan::Rates rates;
  const auto updated = [&](Bytes per_elem) {
    return static_cast<double>(timings.elems * per_elem);
  };
  const auto& device = timings.device ? *timings.device : timings.host.value();
  const auto& host = timings.host ? *timings.host : device;
  const auto& optimizer = on_device.updates ? device : host;
  const auto& reader = on_device.gradients ? device : host;
  if (on_device.updates) rates.updates = schedule::LaneKind::kCompute;
  if (on_device.gradients) rates.gradients = schedule::LaneKind::kCompute;
  rates.adam = updated(zero::kUpdateBytesPerElem) / optimizer.update;
  rates.first_values = updated(zero::kUpdateBytesPerElem) / host.update;
  // As ops count it: a sum in fp32, read and written.
  rates.sums = updated(2 * sizeof(float)) / host.sum;
  rates.device_sums = updated(2 * sizeof(float)) / device.sum;
  rates.norms = updated(size_of(timings.gradient)) / reader.norm;
  if (timings.drives) {
    rates.nvme_read = throughput(timings.drives->read);
    rates.nvme_write = throughput(timings.drives->write);
    rates.nvme_overlap = timings.drives->overlap;
  }
  if (timings.check > 0) rates.checks = static_cast<double>(timings.copied) / timings.check;
  if (timings.touch > 0) rates.dram = 2 * static_cast<double>(timings.touched) / timings.touch;
  if (timings.copies) {
    const auto& [there, back, both] = *timings.copies;
    const double both_ways = 2 * static_cast<double>(timings.copied);
    rates.copy = both_ways / (there + back);
    rates.copy_overlap = std::clamp((there + back) / both, 1.0, 2.0);
    // What a device takes and brings by itself can be more than cores walk through.
    if (rates.dram > 0) rates.dram = std::max(rates.dram, both_ways / both);
  }
  return rates;
}

Calibration calibrate(const schedule::Setup& setup, const Numerics& numerics, Bytes memory,
                      const Measured& ops, Compute& compute, gpu::Stream& stream,
                      const cpu_adam::Options& cpu_adam, const memory::NvmeTier& nvme,
                      const nvme::Options& aio) {
  const cpu_adam::Optimizer optimizer(cpu_adam);
  const Bytes free = std::min(host_memory().available, gpu::free_memory());
  Look look(setup, looked_at(last_cache(), {model_of(setup), memory}, free));
  Timings timings{.copied = look.copied(),
                  .elems = look.elems(),
                  .touched = look.touched(),
                  .gradient = look.gradient()};
  const bool sums_there = setup.homes.offload_gradient == schedule::GradientHome::kNone;
  const bool host_computes = !setup.updates_on_device() || !sums_there;
  std::function<void()> updates = look.host(optimizer, host_computes, timings), layer;
  if (setup.updates_on_device()) updates = nullptr;
  const double layer_s = layer_seconds(ops);
  if (layer_s > 0 && (updates || setup.uses_nvme())) layer = compute.example(stream);
  if (layer && updates) {
    timings.paces = look.paces(layer, layer_s, updates, timings.host->update);
  } else if (layer) {
    layer();  // what it throws is thrown here, and not on a thread of the drives' look
  }
  Calibration found;
  found.stores = optimizer.stores();
  if (!setup.updates_on_device()) log::info(fmt::format("adam: {}", optimizer.describe()));
  if (setup.uses_nvme()) {
    const auto& beside = layer ? layer : updates;
    if (const auto drives = look_at_drives(nvme, aio, stored_of(setup), beside)) {
      timings.drives = nvme::together(*drives);
      for (const nvme::Speed& drive : *drives) found.speeds.push_back(drive.both());
      found.unsteady = unsteady_drives(nvme.paths, *drives);
    }
  }
  updates = layer = nullptr;  // their memory is free for what follows
  if (setup.updates_on_device() || sums_there) timings.device = look.device(optimizer);
  if (setup.sharing == schedule::Sharing::kSeparate) timings.copies = look.copies();
  if (setup.uses_nvme()) timings.check = look.check();
  found.rates = rates_of(timings, {setup.updates_on_device(), sums_there});
  plan::Rates& rates = found.rates;
  if (setup.uses_nvme() && !timings.drives) rates.nvme_read = rates.nvme_write = kGuess;
  if (setup.uses_nvme()) {
    // Paths of one filesystem share a drive, and its queue.
    const std::size_t drives = nvme::filesystems_of(nvme.paths).size();
    rates.nvme_in_flight = static_cast<double>(drives * nvme::in_flight(aio));
  }
  // Every op of a kind has one shape, so its time is all there is to know.
  for (const auto& [id, seconds] : ops.seconds) rates.compute[id] = {0, 0, seconds};
  const double cores = core_count();
  rates.check_cores = 1.0 / cores;
  rates.cpu_cores = std::min(1.0, optimizer.threads() / cores);
  if (gpu::device().unified) {
    rates.compute_cores = std::min(1.0, numerics.threads / cores);
    rates.copy_cores = 1.0 / cores;
    rates.copy_ends = 2;
    const auto shared = timings.paces
                            ? shared_cores(*timings.paces, rates.compute_cores, rates.cpu_cores)
                            : std::nullopt;
    if (shared) {
      rates.shared_cores = shared->given;
      rates.cpu_cores = shared->second;
      rates.cpu_weight = shared->weight;
    }
    for (const auto& [id, bytes] : ops.bytes) {
      const double seconds = ops.seconds.at(id);
      if (seconds > 0) rates.traffic[id] = static_cast<double>(bytes) / seconds;
    }
  }
  for (const auto& others : {ops.unsteady, look.unsteady()}) {
    std::ranges::copy(others, std::back_inserter(found.unsteady));
  }
  if (const auto text = describe(found.unsteady); !text.empty()) log::warning(text);
  return found;
}

}  // namespace sluice::train
