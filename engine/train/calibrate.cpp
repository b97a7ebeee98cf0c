#include "engine/train/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cpu_adam/optimizer.h"
#include "engine/base/cores.h"
#include "engine/base/error.h"
#include "engine/base/host_memory.h"
#include "engine/base/log.h"
#include "engine/base/machine.h"
#include "engine/base/pages.h"
#include "engine/schedule/catalog.h"
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

/// Looks, and notes what would not hold still.
class Look {
 public:
  Look(const schedule::Setup& setup, Bytes bytes) {
    const int largest = largest_segment(setup);
    Bytes weights = 0;
    for (const zero::Chunk& c : chunks_of(setup, largest)) chunk_ = std::max(chunk_, c.elems);
    if (largest >= 0) weights = setup.segment_elems(largest) * size_of(setup.compute);
    elems_ = round_up(std::max<Bytes>(bytes / (kArrays * sizeof(float)), 1), kGrain);
    chunk_ = chunk_ == 0 ? elems_ : std::min<std::size_t>(chunk_, elems_);
    chunk_ = std::max(chunk_, round_up(elems_ / kMostPieces, kGrain));
    copied_ = round_up(std::max<Bytes>(bytes / 2, 1), kAlignment);
    piece_ = weights == 0 ? copied_ : std::min(weights, copied_);
    piece_ = std::max(piece_, round_up(copied_ / kMostPieces, kAlignment));
  }

  std::size_t elems() const { return elems_; }
  Bytes copied() const { return copied_; }
  /// Of the weights in `touch`: what each array is read and written once.
  Bytes touched() const { return (kArrays - 1) * elems_ * sizeof(float); }
  const std::vector<Unsteady>& unsteady() const { return unsteady_; }

  /// Of checksums, by one thread.
  double check() {
    const std::vector<std::byte> bytes(copied_);
    nvme::Sums sums;
    return timed("checksums", [&] { return seconds([&] { sums.note(0, bytes); }); });
  }

  double copy() {
    gpu::DeviceHeap heap(copied_);
    const gpu::DeviceBlock device = heap.allocate(copied_);
    const gpu::PinnedSlab host(copied_);
    std::memset(host.data(), 1, copied_);
    gpu::Stream stream("copy");
    stream.copy(device.data(), host.data(), copied_).ticket().wait();  // its pages are made
    return timed("copies", [&] {
      return seconds([&] {
        Ticket last;
        for (Bytes at = 0; at < copied_; at += piece_) {
          const Bytes n = std::min(piece_, copied_ - at);
          last = stream.copy(device.data() + at, host.data() + at, n).ticket();
        }
        last.wait();
      });
    });
  }

  /// `layer_s`: what a layer takes alone; 0: it is not looked at beside the update. Returns what
  /// updates one chunk each time, the next one; it holds the memory for that, and refers to this
  /// and the optimizer.
  std::function<void()> host(const cpu_adam::Optimizer& optimizer, double layer_s,
                             const std::function<std::function<void()>()>& layer,
                             Timings& timings) {
    const auto arrays = std::make_shared<const Arrays>(optimizer, elems_);
    const cpu_adam::State state = arrays->state();
    timings.touch = timed("memory", [&] {
      return seconds([&] {
        for (const std::span<float> of : {state.master, state.m, state.v}) negate(optimizer, of);
      });
    });
    timings.host = arithmetic("host", optimizer, state, arrays->gradient(), arrays->weights(),
                              [this](const auto& work) { return seconds(work); });
    std::function<void()> updates = [this, &optimizer, arrays, at = std::size_t{0}]() mutable {
      update_chunk(optimizer, arrays->state(), arrays->gradient(), arrays->weights(), at);
      at = at + 2 * chunk_ <= elems_ ? at + chunk_ : 0;
    };
    const auto op = layer_s > 0 ? layer() : nullptr;
    if (!op) return updates;
    const Beside both = beside(op, updates, quota_);
    if (both.spread > kMostSpread) unsteady_.push_back({"a layer beside adam", both.spread});
    const double chunk_s =
        timings.host.update * static_cast<double>(chunk_) / static_cast<double>(elems_);
    timings.paces = Paces{layer_s / both.first, chunk_s / both.second};
    return updates;
  }

  ArithmeticTimings device(const cpu_adam::Optimizer& optimizer) {
    const Bytes bytes = elems_ * sizeof(float);
    gpu::DeviceHeap heap((kArrays + 1) * round_up(bytes, kAlignment));
    std::vector<gpu::DeviceBlock> blocks;
    gpu::Stream stream("arithmetic");
    const gpu::Arithmetic device(optimizer);
    const auto zeros = [&] {
      const std::span of(blocks.emplace_back(heap.allocate(bytes)).data(), bytes);
      stream.run([&device, of] { device.fill(of, std::byte{0}); });
      return of.data();
    };
    const auto values = [&] { return std::span(reinterpret_cast<float*>(zeros()), elems_); };
    const cpu_adam::State state{values(), values(), values()};
    const std::span<const float> gradient = values();
    const std::span weights(reinterpret_cast<Bf16*>(zeros()), elems_);
    return arithmetic("device", device, state, gradient, weights, [&](const auto& work) {
      if (gpu::device().unified) return seconds([&] { stream.run(work).ticket().wait(); });
      // By the device's own clock.
      const gpu::Event begin = stream.record();
      stream.run(work);
      const gpu::Event end = stream.record();
      end.ticket().wait();
      return std::max(gpu::seconds_between(begin, end), 1e-9);
    });
  }

 private:
  static constexpr Bytes kArrays = 4;  // master, m, v, gradient; weights are half of one
  static constexpr std::size_t kGrain = 4096;
  static constexpr Bytes kMostPieces = 256;  // so that a round is about bytes

  /// In pages as the pools have them, touched by the threads that work in them.
  class Arrays {
   public:
    Arrays(const cpu_adam::Optimizer& optimizer, std::size_t elems)
        : elems_(elems), pages_(take_pages((kArrays + 1) * bytes_of_one())) {
      for (Bytes array = 0; array <= kArrays; ++array) {
        optimizer.for_grains(elems, [&](std::size_t begin, std::size_t end) {
          std::ranges::fill(values(array).subspan(begin, end - begin), array == 0 ? 1.0F : 0.0F);
        });
      }
    }
    std::span<float> gradient() const { return values(0); }
    cpu_adam::State state() const { return {values(1), values(2), values(3)}; }
    std::span<Bf16> weights() const { return {reinterpret_cast<Bf16*>(at(kArrays)), elems_}; }

   private:
    Bytes bytes_of_one() const { return round_up(elems_ * sizeof(float), kAlignment); }
    std::byte* at(Bytes array) const { return pages_.get() + array * bytes_of_one(); }
    std::span<float> values(Bytes array) const {
      return {reinterpret_cast<float*>(at(array)), elems_};
    }

    std::size_t elems_;
    PageBytes pages_;
  };

  static int largest_segment(const schedule::Setup& setup) {
    int largest = -1;
    for (int i = 0; i < static_cast<int>(setup.layouts.size()); ++i) {
      if (largest < 0 || setup.segment_elems(i) > setup.segment_elems(largest)) largest = i;
    }
    return largest;
  }
  static std::span<const zero::Chunk> chunks_of(const schedule::Setup& setup, int segment) {
    if (segment < 0 || setup.chunks.empty()) return {};
    return setup.chunks[static_cast<std::size_t>(segment)];
  }

  /// Each byte is read and written once, by all threads.
  static void negate(const cpu_adam::Optimizer& optimizer, std::span<float> of) {
    optimizer.for_grains(of.size(), [&](std::size_t begin, std::size_t end) {
      for (float& x : of.subspan(begin, end - begin)) x = -x;
    });
  }

  template <class Arithmetic>
  void update_chunk(const Arithmetic& does, const cpu_adam::State& state,
                    std::span<const float> gradient, std::span<Bf16> weights,
                    std::size_t at) const {
    const std::size_t n = std::min(chunk_, elems_ - at);
    does.update(cpu_adam::Hyper{},
                {state.master.subspan(at, n), state.m.subspan(at, n), state.v.subspan(at, n)},
                gradient.subspan(at, n), weights.subspan(at, n));
  }

  template <class Arithmetic, class Clock>
  ArithmeticTimings arithmetic(const char* whose, const Arithmetic& does,
                               const cpu_adam::State& state, std::span<const float> gradient,
                               std::span<Bf16> weights, const Clock& clock) {
    const auto update = [&] {
      for (std::size_t at = 0; at < elems_; at += chunk_) {
        update_chunk(does, state, gradient, weights, at);
      }
    };
    const auto sum = [&] { does.accumulate(state.m, gradient); };
    ArithmeticTimings timings;
    timings.update = timed(fmt::format("adam of the {}", whose), [&] { return clock(update); });
    timings.sum = timed(fmt::format("sums of the {}", whose), [&] { return clock(sum); });
    return timings;
  }

  double seconds(const std::function<void()>& work) const { return seconds_of(work, quota_); }

  double timed(std::string what, const std::function<double()>& once) {
    const Timing timing = settled(once);
    if (timing.spread > kMostSpread) unsteady_.push_back({std::move(what), timing.spread});
    return timing.seconds;
  }

  const std::optional<CpuQuota> quota_ = cores().quota;
  std::size_t elems_, chunk_ = 0;
  Bytes copied_, piece_;
  std::vector<Unsteady> unsteady_;
};

/// Of its backward, alone; 0: not known, or too long to be run again.
double layer_seconds(const Measured& ops) {
  const auto found = ops.seconds.find(schedule::OpId::kLayerBackward);
  return found == ops.seconds.end() || found->second > kLongestWork ? 0 : found->second;
}

/// Weights, a gradient and state, wherever they are.
Bytes memory_of(const schedule::Setup& setup) {
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

Bytes looked_at(Bytes last_cache, Bytes of_run, Bytes available) {
  constexpr Bytes kLeast = 16_MiB, kMost = 2_GiB, kTimes = 8;
  const Bytes beyond = kTimes * cache_or_usual(last_cache);
  return std::min(std::clamp(std::min(beyond, of_run), kLeast, kMost), available / kShares);
}

Bytes cleared_by(Bytes last_cache, Bytes of_run, Bytes available) {
  constexpr Bytes kMost = 1_GiB, kTimes = 2;
  return std::min({kTimes * cache_or_usual(last_cache), of_run, kMost, available / kShares});
}

std::optional<double> shared_cores(const Paces& paces, double first_share, double second_share) {
  constexpr double kLeast = 0.5, kMost = 2;
  const double given = paces.first * first_share + paces.second * second_share;
  if (first_share + second_share <= 1 || given < kLeast || given > kMost) return std::nullopt;
  return given;
}

Bytes stored_of(const schedule::Setup& setup) {
  Bytes per_elem = 0;
  if (setup.homes.offload_optimizer == schedule::OptimizerHome::kNvme) {
    per_elem += zero::kStateBytesPerElem;
  }
  if (setup.homes.offload_param == schedule::ParamHome::kNvme) per_elem += size_of(setup.compute);
  Bytes elems = 0;
  for (const zero::Layout& layout : setup.layouts) elems += layout.elems;
  Bytes stored = per_elem * elems;
  if (setup.homes.offload_activation == schedule::ActivationHome::kNvme) {
    const auto inputs = setup.model->blocks.size() * static_cast<std::size_t>(setup.sweep);
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

plan::Rates rates_of(const Timings& timings, bool updates_on_device) {
  plan::Rates rates;
  const auto updated = [&](Bytes per_elem) {
    return static_cast<double>(timings.elems * per_elem);
  };
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
  if (timings.check > 0) rates.checks = static_cast<double>(timings.copied) / timings.check;
  if (timings.copy > 0) rates.copy = static_cast<double>(timings.copied) / timings.copy;
  if (timings.touch > 0) rates.dram = 2 * static_cast<double>(timings.touched) / timings.touch;
  return rates;
}

Calibration calibrate(const schedule::Setup& setup, const Numerics& numerics, const Measured& ops,
                      Compute& compute, gpu::Stream& stream, const cpu_adam::Options& cpu_adam,
                      const memory::NvmeTier& nvme, const nvme::Options& aio) {
  const cpu_adam::Optimizer optimizer(cpu_adam);
  const Bytes free = std::min(host_memory().available, gpu::free_memory());
  Look look(setup, looked_at(last_cache(), memory_of(setup), free));
  Timings timings{.copied = look.copied(), .elems = look.elems(), .touched = look.touched()};
  std::function<void()> updates = look.host(
      optimizer, setup.updates_on_device() ? 0 : layer_seconds(ops),
      [&] { return compute.example(stream); }, timings);
  if (setup.updates_on_device()) updates = nullptr;
  Calibration found;
  if (setup.uses_nvme()) {
    if (const auto drives = look_at_drives(nvme, aio, stored_of(setup), updates)) {
      timings.drives = nvme::together(*drives);
      for (const nvme::Speed& drive : *drives) found.speeds.push_back(drive.both());
      found.unsteady = unsteady_drives(nvme.paths, *drives);
    }
  }
  updates = nullptr;  // its memory is free for what follows
  const bool sums_there = setup.homes.offload_gradient == schedule::GradientHome::kNone;
  if (setup.updates_on_device() || sums_there) timings.device = look.device(optimizer);
  if (setup.sharing == schedule::Sharing::kSeparate) timings.copy = look.copy();
  if (setup.uses_nvme()) timings.check = look.check();
  found.rates = rates_of(timings, setup.updates_on_device());
  plan::Rates& rates = found.rates;
  if (setup.uses_nvme() && !timings.drives) rates.nvme_read = rates.nvme_write = kGuess;
  rates.nvme_in_flight = static_cast<double>(nvme.paths.size() * nvme::in_flight(aio));
  // Every op of a kind has one shape, so its time is all there is to know.
  for (const auto& [id, seconds] : ops.seconds) rates.compute[id] = {0, 0, seconds};
  const double cores = core_count();
  rates.check_cores = 1.0 / cores;
  rates.cpu_cores = std::min(1.0, optimizer.threads() / cores);
  if (gpu::device().unified) {
    rates.compute_cores = std::min(1.0, numerics.threads / cores);
    rates.copy_cores = 1.0 / cores;
    rates.copy_ends = 2;
    if (timings.paces) {
      rates.shared_cores = shared_cores(*timings.paces, rates.compute_cores, rates.cpu_cores)
                               .value_or(rates.shared_cores);
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
