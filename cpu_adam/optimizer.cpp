#include "cpu_adam/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "cpu_adam/kernel.h"
#include "cpu_adam/store_probe.h"
#include "cpu_adam/workers.h"
#include "engine/base/error.h"
#include "engine/base/units.h"

namespace sluice::cpu_adam {
namespace {

struct Named {
  std::string_view name;
  std::size_t length;
};

void check_equal(std::string_view operation, Named a, Named b) {
  SLUICE_CHECK(a.length == b.length, kLogic,
               fmt::format("cpu_adam {}: {} has {} elements, {} has {}; they must be equal",
                           operation, a.name, a.length, b.name, b.length));
}

template <class Spans>
std::size_t length_of(const Spans& spans) {
  return std::visit(
      [](const auto& s) -> std::size_t {
        if constexpr (requires { s.size(); }) {
          return s.size();
        } else {
          return 0;
        }
      },
      spans);
}

Source source_at(const Gradient& gradient, std::size_t first) {
  if (const auto* f32 = std::get_if<std::span<const float>>(&gradient)) {
    return {f32->data() + first, Elem::kF32};
  }
  return {std::get<std::span<const Bf16>>(gradient).data() + first, Elem::kBf16};
}

Sink sink_at(const Published& published, std::size_t first) {
  if (const auto* f32 = std::get_if<std::span<float>>(&published)) {
    return {f32->data() + first, Elem::kF32};
  }
  if (const auto* bf16 = std::get_if<std::span<Bf16>>(&published)) {
    return {bf16->data() + first, Elem::kBf16};
  }
  return {};
}

void check_hyper(const Hyper& h) {
  const auto fraction = [](float x) { return x >= 0 && x < 1; };
  const auto correction = [](float x) { return x > 0 && x <= 1; };
  SLUICE_CHECK(
      fraction(h.beta1) && fraction(h.beta2), kLogic,
      fmt::format("cpu_adam update: betas are {} and {}; each must be at least 0 and below 1",
                  h.beta1, h.beta2));
  SLUICE_CHECK(
      correction(h.bias_correction1) && correction(h.bias_correction2), kLogic,
      fmt::format("cpu_adam update: bias corrections are {} and {}; each must be above 0 and at "
                  "most 1: count updates from 1",
                  h.bias_correction1, h.bias_correction2));
  SLUICE_CHECK(h.eps > 0 && std::isfinite(h.eps), kLogic,
               fmt::format("cpu_adam update: eps is {}; it must be above 0", h.eps));
  SLUICE_CHECK(
      std::isfinite(h.lr) && std::isfinite(h.weight_decay) && std::isfinite(h.clip), kLogic,
      fmt::format("cpu_adam update: lr is {}, weight_decay {}, clip {}; all must be finite: skip "
                  "the step whose norm is not",
                  h.lr, h.weight_decay, h.clip));
}

Factors factors_of(const Hyper& h) {
  const double lr = h.lr;
  const double weight_decay = h.weight_decay;
  const bool decoupled = h.mode == Mode::kAdamW;
  return {.clip = h.clip,
          .l2 = decoupled ? 0.0F : h.weight_decay,
          .beta1 = h.beta1,
          .one_minus_beta1 = static_cast<float>(1.0 - double{h.beta1}),
          .beta2 = h.beta2,
          .one_minus_beta2 = static_cast<float>(1.0 - double{h.beta2}),
          .scale2 = static_cast<float>(1.0 / std::sqrt(double{h.bias_correction2})),
          .eps = h.eps,
          .step = static_cast<float>(lr / double{h.bias_correction1}),
          .decay = decoupled ? static_cast<float>(lr * weight_decay) : 0.0F};
}

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
  const Named master{"master", state.master.size()};
  check_equal("update", master, {"m", state.m.size()});
  check_equal("update", master, {"v", state.v.size()});
  check_equal("update", master, {"the gradient", length_of(gradient)});
  if (!std::holds_alternative<std::monostate>(published)) {
    check_equal("update", master, {"the published copy", length_of(published)});
  }
  check_hyper(hyper);
  const Write write = parts_->stores == Stores::kStreaming ? Write::kStreaming : Write::kCached;
  parts_->workers.for_grains(state.master.size(), [&](std::size_t first, std::size_t last) {
    parts_->kernels.update({.master = state.master.data() + first,
                            .m = state.m.data() + first,
                            .v = state.v.data() + first,
                            .gradient = source_at(gradient, first),
                            .published = sink_at(published, first),
                            .count = last - first,
                            .factors = factors_of(hyper),  // here, so in the default rounding too
                            .write = write});
  });
}

void Optimizer::grain_norms(Gradient gradient, std::span<double> partials) const {
  const std::size_t count = length_of(gradient);
  check_equal("grain_norms", {"partials", partials.size()},
              {"the gradient in grains", div_ceil(count, kGrainElems)});
  parts_->workers.for_grains(count, [&](std::size_t first, std::size_t last) {
    for (std::size_t at = first; at < last; at += kGrainElems) {
      partials[at / kGrainElems] =
          parts_->kernels.sum_squares(source_at(gradient, at), std::min(kGrainElems, last - at));
    }
  });
}

void Optimizer::accumulate(std::span<float> sum, Gradient contribution) const {
  add(sum, std::span<const float>(sum), contribution);
}

void Optimizer::assign(std::span<float> sum, Gradient contribution) const {
  check_equal("assign", {"the sum", sum.size()}, {"the contribution", length_of(contribution)});
  parts_->workers.for_grains(sum.size(), [&](std::size_t first, std::size_t last) {
    parts_->kernels.convert({sum.data() + first, Elem::kF32}, source_at(contribution, first),
                            last - first);
  });
}

void Optimizer::add(std::span<float> out, Gradient a, Gradient b) const {
  check_equal("add", {"the sum", out.size()}, {"the first term", length_of(a)});
  check_equal("add", {"the sum", out.size()}, {"the second term", length_of(b)});
  parts_->workers.for_grains(out.size(), [&](std::size_t first, std::size_t last) {
    parts_->kernels.add(out.data() + first, source_at(a, first), source_at(b, first), last - first);
  });
}

void Optimizer::publish(Published out, std::span<const float> master) const {
  if (std::holds_alternative<std::monostate>(out)) return;
  check_equal("publish", {"the copy", length_of(out)}, {"master", master.size()});
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
