#include "cpu_adam/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "cpu_adam/arguments.h"
#include "cpu_adam/store_probe.h"
#include "cpu_adam/workers.h"
#include "engine/base/cores.h"
#include "engine/base/error.h"
#include "engine/base/units.h"

namespace sluice::cpu_adam {
namespace {

unsigned thread_count(const Options& options) {
  const unsigned threads = options.threads.value_or(core_count());
  SLUICE_CHECK(threads >= 1 && threads <= kMaxThreads, kConfig,
               fmt::format("cpu_adam.threads: asked {}, must be 1 to {}; this process has {} cores",
                           threads, kMaxThreads, core_count()));
  return threads;
}

bool has_streaming(Isa isa) {
  return isa == Isa::kAvx512 || isa == Isa::kAvx2 || isa == Isa::kSse2;
}

LowBits* low_at(const SplitState& state, std::size_t first) {
  static_assert(sizeof(LowBits) == sizeof(std::uint16_t));
  return reinterpret_cast<LowBits*>(state.low.data() + first);
}

Halves halves_at(const SplitState& state, std::size_t first) {
  static_assert(sizeof(Bf16Bits) == sizeof(Bf16));
  return {low_at(state, first), reinterpret_cast<const Bf16Bits*>(state.weights.data() + first)};
}

}  // namespace

struct Optimizer::Parts {
  explicit Parts(const Options& options)
      : isa(choose_isa(options.isa)),
        kernels(kernels_of(isa)),
        workers(thread_count(options)),
        stores(options.stores) {
    if (!has_streaming(isa)) {
      stores = Stores::kCached;
    } else if (stores == Stores::kAuto) {
      probed = probe_stores(kernels, workers);
      stores = probed->streaming_ns < probed->cached_ns ? Stores::kStreaming : Stores::kCached;
    }
  }

  Write write() const { return stores == Stores::kStreaming ? Write::kStreaming : Write::kCached; }

  Isa isa;
  const Kernels& kernels;
  Workers workers;
  Stores stores;
  std::optional<StoreTimes> probed;
};

Optimizer::Optimizer(const Options& options) : parts_(std::make_unique<const Parts>(options)) {}
Optimizer::~Optimizer() = default;
Optimizer::Optimizer(Optimizer&&) noexcept = default;
Optimizer& Optimizer::operator=(Optimizer&&) noexcept = default;

void Optimizer::update(const Hyper& hyper, State state, Gradient gradient,
                       Published published) const {
  check_update(hyper, state, gradient, published);
  parts_->workers.for_grains(state.master.size(), [&](std::size_t first, std::size_t last) {
    parts_->kernels.update({.master = state.master.data() + first,
                            .m = state.m.data() + first,
                            .v = state.v.data() + first,
                            .gradient = terms_at(gradient, first),
                            .published = sink_at(published, first),
                            .count = last - first,
                            .factors = factors_of(hyper),  // here, so in the default rounding too
                            .write = parts_->write()});
  });
}

void Optimizer::update(const Hyper& hyper, SplitState state, Gradient gradient,
                       std::span<Bf16> published) const {
  check_update(hyper, state, gradient, published);
  parts_->workers.for_grains(state.low.size(), [&](std::size_t first, std::size_t last) {
    parts_->kernels.update({.halves = halves_at(state, first),
                            .m = state.m.data() + first,
                            .v = state.v.data() + first,
                            .gradient = terms_at(gradient, first),
                            .published = sink_at(published, first),
                            .count = last - first,
                            .factors = factors_of(hyper),
                            .write = parts_->write()});
  });
}

void Optimizer::join(State whole, SplitState split) const {
  check_join(whole, split);
  const bool all = !whole.v.empty();
  parts_->workers.for_grains(whole.master.size(), [&](std::size_t first, std::size_t last) {
    parts_->kernels.join(whole.master.data() + first, all ? whole.v.data() + first : nullptr,
                         halves_at(split, first), split.v.data() + first, last - first);
    if (all) std::memcpy(&whole.m[first], &split.m[first], (last - first) * sizeof(float));
  });
}

void Optimizer::split(SplitState split, State whole) const {
  check_split(split, whole);
  parts_->workers.for_grains(whole.master.size(), [&](std::size_t first, std::size_t last) {
    parts_->kernels.split(low_at(split, first), split.v.data() + first, whole.master.data() + first,
                          whole.v.data() + first, last - first);
    std::memcpy(&split.m[first], &whole.m[first], (last - first) * sizeof(float));
  });
}

void Optimizer::grain_norms(Gradient gradient, std::span<double> partials) const {
  check_grain_norms(gradient, partials);
  const std::size_t count = length_of(gradient.values);
  parts_->workers.for_grains(count, [&](std::size_t first, std::size_t last) {
    for (std::size_t at = first; at < last; at += kGrainElems) {
      partials[at / kGrainElems] =
          parts_->kernels.sum_squares(terms_at(gradient, at), std::min(kGrainElems, last - at));
    }
  });
}

void Optimizer::accumulate(std::span<float> sum, Values contribution) const {
  add(sum, std::span<const float>(sum), contribution);
}

void Optimizer::assign(std::span<float> sum, Values contribution) const {
  check_assign(sum, contribution);
  parts_->workers.for_grains(sum.size(), [&](std::size_t first, std::size_t last) {
    parts_->kernels.convert({sum.data() + first, Elem::kF32}, source_at(contribution, first),
                            last - first);
  });
}

void Optimizer::add(std::span<float> out, Values a, Values b) const {
  check_add(out, a, b);
  parts_->workers.for_grains(out.size(), [&](std::size_t first, std::size_t last) {
    parts_->kernels.add(out.data() + first, source_at(a, first), source_at(b, first), last - first);
  });
}

void Optimizer::publish(Published out, std::span<const float> master) const {
  if (std::holds_alternative<std::monostate>(out)) return;
  check_publish(out, master);
  parts_->workers.for_grains(master.size(), [&](std::size_t first, std::size_t last) {
    parts_->kernels.convert(sink_at(out, first), {master.data() + first, Elem::kF32}, last - first);
  });
}

void Optimizer::for_grains(
    std::size_t count, const std::function<void(std::size_t begin, std::size_t end)>& work) const {
  parts_->workers.for_grains(count, work);
}

Isa Optimizer::isa() const {
  return parts_->isa;
}

unsigned Optimizer::threads() const {
  return parts_->workers.threads();
}

Stores Optimizer::stores() const {
  return parts_->stores;
}

std::string Optimizer::describe() const {
  const bool streaming = parts_->stores == Stores::kStreaming;
  std::string text = fmt::format("{}, {} thread{}, {} stores", name_of(parts_->isa), threads(),
                                 threads() == 1 ? "" : "s", streaming ? "streaming" : "cached");
  if (const auto& times = parts_->probed) {
    const double chosen = streaming ? times->streaming_ns : times->cached_ns;
    const double other = streaming ? times->cached_ns : times->streaming_ns;
    text += fmt::format(" (probe: {:.2f} against {:.2f} ns per parameter)", chosen, other);
  }
  return text;
}

float bias_correction(float beta, std::uint64_t t) {
  double power = 1;
  for (double factor = beta; t != 0; t /= 2, factor *= factor) {
    if (t % 2 == 1) power *= factor;
  }
  return static_cast<float>(1.0 - power);
}

double global_norm(std::span<const std::span<const double>> parts) {
  double sum = 0;
  for (const auto partials : parts) {
    for (const double partial : partials) sum += partial;
  }
  return std::sqrt(sum);
}

}  // namespace sluice::cpu_adam
