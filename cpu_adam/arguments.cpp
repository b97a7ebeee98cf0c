#include "cpu_adam/arguments.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

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

/// Of no published copy: whatever it is compared with.
std::size_t length_of(const Published& published, std::size_t wanted) {
  return std::visit(
      [wanted](const auto& s) -> std::size_t {
        if constexpr (requires { s.size(); }) {
          return s.size();
        } else {
          return wanted;
        }
      },
      published);
}

/// The length of all its terms.
std::size_t check_terms(std::string_view operation, const Gradient& gradient) {
  const Named first{"the gradient", cpu_adam::length_of(gradient.values)};
  if (!gradient.more) return first.length;
  check_equal(operation, first, {"its second term", cpu_adam::length_of(*gradient.more)});
  SLUICE_CHECK(gradient.values.index() == gradient.more->index(), kLogic,
               fmt::format("cpu_adam {}: the terms of the gradient are of two types; they must be "
                           "of one",
                           operation));
  return first.length;
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

}  // namespace

void check_update(const Hyper& hyper, const State& state, const Gradient& gradient,
                  const Published& published) {
  const Named master{"master", state.master.size()};
  check_equal("update", master, {"m", state.m.size()});
  check_equal("update", master, {"v", state.v.size()});
  check_equal("update", master, {"the gradient", check_terms("update", gradient)});
  check_equal("update", master, {"the published copy", length_of(published, master.length)});
  check_hyper(hyper);
}

void check_update(const Hyper& hyper, const SplitState& state, const Gradient& gradient,
                  std::span<const Bf16> published) {
  const Named low{"the lower half", state.low.size()};
  check_equal("update", low, {"the weights", state.weights.size()});
  check_equal("update", low, {"m", state.m.size()});
  check_equal("update", low, {"v", state.v.size()});
  check_equal("update", low, {"the gradient", check_terms("update", gradient)});
  check_equal("update", low, {"the published copy", published.size()});
  check_hyper(hyper);
}

void check_join(const State& whole, const SplitState& split) {
  const Named master{"master", whole.master.size()};
  check_equal("join", master, {"the lower half", split.low.size()});
  check_equal("join", master, {"the weights", split.weights.size()});
  check_equal("join", master, {"the marked v", split.v.size()});
  if (whole.m.empty() && whole.v.empty()) return;
  check_equal("join", master, {"the split m", split.m.size()});
  check_equal("join", master, {"m", whole.m.size()});
  check_equal("join", master, {"v", whole.v.size()});
}

void check_split(const SplitState& split, const State& whole) {
  const Named master{"master", whole.master.size()};
  check_equal("split", master, {"m", whole.m.size()});
  check_equal("split", master, {"v", whole.v.size()});
  check_equal("split", master, {"the lower half", split.low.size()});
  check_equal("split", master, {"the split m", split.m.size()});
  check_equal("split", master, {"the marked v", split.v.size()});
}

void check_grain_norms(const Gradient& gradient, std::span<const double> partials) {
  check_equal(
      "grain_norms", {"partials", partials.size()},
      {"the gradient in grains", div_ceil(check_terms("grain_norms", gradient), kGrainElems)});
}

void check_assign(std::span<const float> sum, const Values& contribution) {
  check_equal("assign", {"the sum", sum.size()}, {"the contribution", length_of(contribution)});
}

void check_add(std::span<const float> out, const Values& a, const Values& b) {
  check_equal("add", {"the sum", out.size()}, {"the first term", length_of(a)});
  check_equal("add", {"the sum", out.size()}, {"the second term", length_of(b)});
}

void check_publish(const Published& out, std::span<const float> master) {
  check_equal("publish", {"the copy", length_of(out, master.size())}, {"master", master.size()});
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

std::size_t length_of(const Values& values) {
  return std::visit([](const auto& s) { return s.size(); }, values);
}

Terms terms_at(const Gradient& gradient, std::size_t first) {
  return {source_at(gradient.values, first),
          gradient.more ? source_at(*gradient.more, first).data : nullptr};
}

Source source_at(const Values& values, std::size_t first) {
  if (const auto* f32 = std::get_if<std::span<const float>>(&values)) {
    return {f32->data() + first, Elem::kF32};
  }
  if (const auto* bf16 = std::get_if<std::span<const Bf16>>(&values)) {
    return {bf16->data() + first, Elem::kBf16};
  }
  return {std::get<std::span<const Fp16>>(values).data() + first, Elem::kF16};
}

Sink sink_at(const Published& published, std::size_t first) {
  if (const auto* f32 = std::get_if<std::span<float>>(&published)) {
    return {f32->data() + first, Elem::kF32};
  }
  if (const auto* bf16 = std::get_if<std::span<Bf16>>(&published)) {
    return {bf16->data() + first, Elem::kBf16};
  }
  if (const auto* fp16 = std::get_if<std::span<Fp16>>(&published)) {
    return {fp16->data() + first, Elem::kF16};
  }
  return {};
}

}  // namespace sluice::cpu_adam
