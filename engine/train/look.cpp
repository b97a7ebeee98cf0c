#include "engine/train/look.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include "cpu_adam/workers.h"
#include "engine/base/pages.h"
#include "engine/schedule/catalog.h"
#include "engine/train/arithmetic_ops.h"
#include "engine/zero/chunk.h"
#include "gpu/arithmetic.h"
#include "gpu/device.h"
#include "gpu/memory.h"
#include "gpu/stream.h"
#include "nvme/sums.h"

namespace sluice::train {
namespace {

int largest_segment(const schedule::Setup& setup) {
  int largest = -1;
  for (int i = 0; i < static_cast<int>(setup.layouts.size()); ++i) {
    if (largest < 0 || setup.segment_elems(i) > setup.segment_elems(largest)) largest = i;
  }
  return largest;
}

std::span<const zero::Chunk> chunks_of(const schedule::Setup& setup, int segment) {
  if (segment < 0 || setup.chunks.empty()) return {};
  return setup.chunks[static_cast<std::size_t>(segment)];
}

/// Each byte is read and written once.
void negate(const cpu_adam::Workers& all, std::span<float> of) {
  all.for_grains(of.size(), [&](std::size_t begin, std::size_t end) {
    for (float& x : of.subspan(begin, end - begin)) x = -x;
  });
}

}  // namespace

/// In pages as the pools have them, touched by the threads that work in them.
class Look::Arrays {
 public:
  Arrays(const cpu_adam::Optimizer& optimizer, std::size_t elems)
      : pages_(take_pages((kArrays + 1) * round_up(elems * sizeof(float), kAlignment))),
        norms_(elems / kGrainElems) {
    const Bytes bytes = elems * sizeof(float);
    for (Bytes array = 0; array <= kArrays; ++array) {
      all_.emplace_back(pages_.get() + array * round_up(bytes, kAlignment), bytes);
      const std::span<float> values = OpBytes::as<float>(all_.back());
      optimizer.for_grains(elems, [&](std::size_t begin, std::size_t end) {
        std::ranges::fill(values.subspan(begin, end - begin), array == 0 ? 1.0F : 0.0F);
      });
    }
  }
  Operands operands(const Look& look) {
    return look.operands_in(all_, std::as_writable_bytes(std::span(norms_)));
  }

 private:
  PageBytes pages_;
  std::vector<std::span<std::byte>> all_;
  std::vector<double> norms_;
};

Look::Look(const schedule::Setup& setup, Bytes bytes)
    : weights_(setup.compute), gradient_(updates_read(setup)), splits_(setup.splits_masters()) {
  const int largest = largest_segment(setup);
  Bytes weights = 0;
  for (const zero::Chunk& c : chunks_of(setup, largest)) chunk_ = std::max(chunk_, c.elems);
  if (largest >= 0) weights = setup.segment_elems(largest) * size_of(setup.compute);
  elems_ = round_up(std::max<Bytes>(bytes / (kArrays * sizeof(float)), 1), kGrainElems);
  chunk_ = chunk_ == 0 ? elems_ : std::min<std::size_t>(chunk_, elems_);
  chunk_ = std::max(chunk_, round_up(elems_ / kMostPieces, kGrainElems));
  // There are four of these, of which two may lie on a device: as much as all arrays.
  copied_ = round_up(std::max<Bytes>(bytes / 16 * 5, 1), kAlignment);
  piece_ = weights == 0 ? copied_ : std::min(weights, copied_);
  piece_ = std::max(piece_, round_up(copied_ / kMostPieces, kAlignment));
}

double Look::check() {
  const std::vector<std::byte> bytes(copied_);
  nvme::Sums sums;
  return timed("checksums", [&] { return seconds([&] { sums.note(0, bytes); }); });
}

CopyTimings Look::copies() {
  gpu::DeviceHeap heap(2 * copied_);
  const gpu::DeviceBlock to = heap.allocate(copied_), from = heap.allocate(copied_);
  const gpu::PinnedSlab host_from(copied_), host_to(copied_);
  std::memset(host_from.data(), 1, copied_);
  gpu::Stream up("copy"), down("copy back");
  const auto copy = [this](gpu::Stream& stream, std::byte* target, const std::byte* source) {
    Ticket last;
    for (Bytes at = 0; at < copied_; at += piece_) {
      last = stream.copy(target + at, source + at, std::min(piece_, copied_ - at)).ticket();
    }
    return last;
  };
  const auto there = [&] { return copy(up, to.data(), host_from.data()); };
  const auto back = [&] { return copy(down, host_to.data(), from.data()); };
  copy(up, from.data(), host_from.data()).wait();  // pages that nobody wrote are all the same one
  CopyTimings timings;
  timings.there = timed("copies", [&] { return seconds([&] { there().wait(); }); });
  timings.back = timed("copies back", [&] { return seconds([&] { back().wait(); }); });
  timings.both = timed("copies both ways", [&] {
    return seconds([&] {
      const Ticket first = there(), second = back();
      first.wait();
      second.wait();
    });
  });
  return timings;
}

std::function<void()> Look::host(const cpu_adam::Optimizer& optimizer, bool computes,
                                 Timings& timings) {
  const auto arrays = std::make_shared<Arrays>(optimizer, elems_);
  const Operands operands = arrays->operands(*this);
  const cpu_adam::Workers all(core_count());
  timings.touch = timed("memory", [&] {
    return seconds([&] {
      const cpu_adam::State& state = operands.state;
      for (const std::span<float> of : {state.master, state.m, state.v}) negate(all, of);
    });
  });
  // A sign of v is a mark where masters are split.
  if (splits_) {
    all.for_grains(elems_, [&](std::size_t begin, std::size_t end) {
      std::ranges::fill(operands.state.v.subspan(begin, end - begin), 0.0F);
    });
  }
  const auto clear = [&] { negate(all, operands.state.master); };
  const auto clock = [this](const auto& work) { return seconds(work); };
  if (computes) timings.host = arithmetic("host", optimizer, operands, clear, clock);
  return [this, &optimizer, arrays, operands, at = std::size_t{0}]() mutable {
    update_chunk(optimizer, operands, at);
    at = at + 2 * chunk_ <= elems_ ? at + chunk_ : 0;
  };
}

Paces Look::paces(const std::function<void()>& layer, double layer_s,
                  const std::function<void()>& updates, double update_s) {
  const Beside both = beside(layer, updates, quota_);
  if (both.spread > kMostSpread) unsteady_.push_back({"a layer beside adam", both.spread});
  const double chunk_s = update_s * static_cast<double>(chunk_) / static_cast<double>(elems_);
  return {layer_s / both.first, chunk_s / both.second};
}

ArithmeticTimings Look::device(const cpu_adam::Optimizer& optimizer) {
  const Bytes bytes = elems_ * sizeof(float);
  const Bytes norms = schedule::norm_bytes(elems_);
  gpu::DeviceHeap heap((kArrays + 1) * round_up(bytes, kAlignment) + round_up(norms, kAlignment));
  std::vector<gpu::DeviceBlock> blocks;
  gpu::Stream stream("arithmetic");
  const gpu::Arithmetic device(optimizer);
  const auto zeros = [&](Bytes size) {
    const std::span of(blocks.emplace_back(heap.allocate(size)).data(), size);
    stream.run([&device, of] { device.fill(of, std::byte{0}); });
    return of;
  };
  std::vector<std::span<std::byte>> arrays;
  for (Bytes array = 0; array <= kArrays; ++array) arrays.push_back(zeros(bytes));
  const Operands operands = operands_in(arrays, zeros(norms));
  const auto clear = [&] {
    stream.run([&] { device.fill(arrays[1], std::byte{0}); }).ticket().wait();
  };
  return arithmetic("device", device, operands, clear, [&](const auto& work) {
    if (gpu::device().unified) return seconds([&] { stream.run(work).ticket().wait(); });
    // By the device's own clock.
    const gpu::Event begin = stream.record();
    stream.run(work);
    const gpu::Event end = stream.record();
    end.ticket().wait();
    return std::max(gpu::seconds_between(begin, end), 1e-9);
  });
}

Look::Operands Look::operands_in(const std::vector<std::span<std::byte>>& arrays,
                                 std::span<std::byte> norms) const {
  const auto values = [&](std::size_t array) { return OpBytes::as<float>(arrays[array]); };
  std::optional<cpu_adam::SplitState> split;
  if (splits_) {
    // In the other half of the weights' array: numbers that nothing negates.
    const auto low = OpBytes::as<std::uint16_t>(arrays[kArrays]).last(elems_);
    const auto weights = OpBytes::as<const Bf16>(arrays[kArrays]).first(elems_);
    split = {low, weights, values(2), values(3)};
  }
  return {{values(1), values(2), values(3)},
          split,
          as_gradient(arrays[0].first(elems_ * size_of(gradient_)), gradient_),
          as_gradient(arrays[0].first(elems_ * size_of(weights_)), weights_),
          as_weights(arrays[kArrays].first(elems_ * size_of(weights_)), weights_),
          OpBytes::as<double>(norms)};
}

template <class Arithmetic>
void Look::update_chunk(const Arithmetic& does, const Operands& of, std::size_t at) const {
  const std::size_t n = std::min(chunk_, elems_ - at);
  const cpu_adam::Hyper hyper;
  const cpu_adam::Gradient gradient = part(of.gradient, at, n);
  if constexpr (std::is_same_v<Arithmetic, cpu_adam::Optimizer>) {
    if (const auto& split = of.split) {
      const auto weights = std::get<std::span<Bf16>>(of.weights);
      return does.update(hyper, part(*split, at, n), gradient, weights.subspan(at, n));
    }
  }
  does.update(hyper, part(of.state, at, n), gradient, part(of.weights, at, n));
}

template <class Arithmetic, class Clock>
ArithmeticTimings Look::arithmetic(const char* whose, const Arithmetic& does, const Operands& of,
                                   const std::function<void()>& clear, const Clock& clock) {
  const auto update = [&] {
    for (std::size_t at = 0; at < elems_; at += chunk_) update_chunk(does, of, at);
  };
  const auto sum = [&] { does.accumulate(of.state.m, of.contribution); };
  const auto norm = [&] { does.grain_norms(of.gradient, of.norms); };
  const auto cleared = [&](const auto& work) {
    clear();
    return clock(work);
  };
  ArithmeticTimings timings;
  timings.update = timed(fmt::format("adam of the {}", whose), [&] { return clock(update); });
  timings.sum = timed(fmt::format("sums of the {}", whose), [&] { return cleared(sum); });
  timings.norm = timed(fmt::format("norms of the {}", whose), [&] { return cleared(norm); });
  return timings;
}

double Look::timed(std::string what, const std::function<double()>& once) {
  const Timing timing = settled(once);
  if (timing.spread > kMostSpread) unsteady_.push_back({std::move(what), timing.spread});
  return timing.seconds;
}

}  // namespace sluice::train
