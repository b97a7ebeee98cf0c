#include "gpu/arithmetic.h"

#include <algorithm>
#include <variant>

#include "gpu/local.h"

namespace sluice::gpu {
namespace {

using cpu_adam::Gradient;
using cpu_adam::Published;
using cpu_adam::Values;

Values here(const Values& values) {
  return std::visit([](auto span) { return Values(local(span)); }, values);
}

Gradient here(const Gradient& gradient) {
  if (!gradient.more) return here(gradient.values);
  return {here(gradient.values), here(*gradient.more)};
}

Published here(const Published& values) {
  return std::visit(
      [](auto span) {
        if constexpr (requires { local(span); }) {
          return Published(local(span));
        } else {
          return Published(span);
        }
      },
      values);
}

}  // namespace

void Arithmetic::update(const cpu_adam::Hyper& hyper, cpu_adam::State state, Gradient gradient,
                        Published published) const {
  host_.update(hyper, {local(state.master), local(state.m), local(state.v)}, here(gradient),
               here(published));
}

void Arithmetic::grain_norms(Gradient gradient, std::span<double> partials) const {
  host_.grain_norms(here(gradient), local(partials));
}

void Arithmetic::accumulate(std::span<float> sum, Values contribution) const {
  host_.accumulate(local(sum), here(contribution));
}

void Arithmetic::assign(std::span<float> sum, Values contribution) const {
  host_.assign(local(sum), here(contribution));
}

void Arithmetic::add(std::span<float> out, Values a, Values b) const {
  host_.add(local(out), here(a), here(b));
}

void Arithmetic::fill(std::span<std::byte> bytes, std::byte value) const {
  std::ranges::fill(local(bytes), value);
}

}  // namespace sluice::gpu
