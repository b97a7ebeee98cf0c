/// The learning rate of every step.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/data/options.h"

namespace sluice::data {

/// The share of all steps over which `wsd` (warm-up, stable, decay) decays.
inline constexpr double kWsdDecayShare = 0.2;

/// The count, or the fraction of `total` to the nearest step. `key`: what asks, for messages.
///
/// Throws  kConfig for a negative count and a fraction outside 0 to 1
std::int64_t steps_of(const StepsOrShare& steps, std::int64_t total, std::string_view key);

/// How many steps warm up. Throws as steps_of().
std::int64_t warmup_steps(const SchedulerOptions& options, std::int64_t total);

/// The learning rate of step `step` (the first is 0) of `total`.
///
/// Warm-up over W steps is linear: base / W at step 0, base at step W - 1. Then
///   constant  base;
///   linear    a straight line from base at step W to the floor at step `total`;
///   cosine    half a cosine between the same two points;
///   wsd       base, and a straight line to the floor over the last fifth of all steps.
/// The floor is base * min_lr_ratio. Step `total` is one past the last, so no step is wasted on a
/// floor of zero; from there on the rate stays at the floor. A warm-up as long as the run is all
/// there is of it.
///
/// Throws  kConfig for min_lr_ratio outside 0 to 1, and as warmup_steps; kLogic for step < 0
double lr_at(const SchedulerOptions& options, double base, std::int64_t step, std::int64_t total);

}  // namespace sluice::data
