/// What the arithmetic is asked to do: refused where it makes no sense, and as kernels take it. For
/// the optimizer, and for whoever does its arithmetic elsewhere (gpu/cuda).
///
/// Throws  kLogic, as Optimizer says
#pragma once

#include <cstddef>
#include <span>

#include "cpu_adam/kernel.h"
#include "cpu_adam/optimizer.h"

namespace sluice::cpu_adam {

void check_update(const Hyper& hyper, const State& state, const Gradient& gradient,
                  const Published& published);
void check_update(const Hyper& hyper, const SplitState& state, const Gradient& gradient,
                  std::span<const Bf16> published);
/// Of join() and split(); m and v of `whole` may be empty in the first.
void check_join(const State& whole, const SplitState& split);
void check_split(const SplitState& split, const State& whole);
void check_grain_norms(const Gradient& gradient, std::span<const double> partials);
void check_assign(std::span<const float> sum, const Values& contribution);
void check_add(std::span<const float> out, const Values& a, const Values& b);
void check_publish(const Published& out, std::span<const float> master);

/// The constants of [Note: Adam arithmetic], in the caller's rounding mode.
Factors factors_of(const Hyper& hyper);

std::size_t length_of(const Values& values);
/// From element `first` on.
Source source_at(const Values& values, std::size_t first);
Terms terms_at(const Gradient& gradient, std::size_t first);
Sink sink_at(const Published& published, std::size_t first);

}  // namespace sluice::cpu_adam
