#include "engine/data/learning_rate.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/base/error.h"

namespace sluice::data {
namespace {

/// How much of the way from `from` to `to` is done at `step`, 0 to 1.
double progress(std::int64_t step, std::int64_t from, std::int64_t to) {
  if (step >= to) return 1.0;
  if (step <= from) return 0.0;
  return static_cast<double>(step - from) / static_cast<double>(to - from);
}

/// What is left of the way from base down to the floor, 1 to 0.
double remaining(SchedulerType type, std::int64_t step, std::int64_t warmup, std::int64_t total) {
  switch (type) {
    case SchedulerType::kConstant:
      return 1.0;
    case SchedulerType::kLinear:
      return 1.0 - progress(step, warmup, total);
    case SchedulerType::kCosine:
      return 0.5 * (1.0 + std::cos(std::numbers::pi * progress(step, warmup, total)));
    case SchedulerType::kWsd: {
      const auto decay = std::llround(kWsdDecayShare * static_cast<double>(total));
      return 1.0 - progress(step, std::max<std::int64_t>(total - decay, warmup), total);
    }
  }
  throw Error(Errc::kLogic, "a scheduler type without a learning rate");
}

}  // namespace

std::int64_t steps_of(const StepsOrShare& steps, std::int64_t total, std::string_view key) {
  if (const auto* count = std::get_if<std::int64_t>(&steps)) {
    SLUICE_CHECK(*count >= 0, kConfig, fmt::format("{}: {} steps; 0 or more", key, *count));
    return *count;
  }
  const double share = std::get<double>(steps);
  SLUICE_CHECK(share >= 0.0 && share <= 1.0, kConfig,
               fmt::format("{}: {} is no fraction of all steps (0 to 1)", key, share));
  return std::llround(share * static_cast<double>(total));
}

std::int64_t warmup_steps(const SchedulerOptions& options, std::int64_t total) {
  return steps_of(options.warmup_steps, total, "scheduler.warmup_steps");
}

double lr_at(const SchedulerOptions& options, double base, std::int64_t step, std::int64_t total) {
  SLUICE_CHECK(step >= 0, kLogic, fmt::format("the learning rate of step {}", step));
  const double ratio = options.min_lr_ratio;
  SLUICE_CHECK(ratio >= 0.0 && ratio <= 1.0, kConfig,
               fmt::format("scheduler.min_lr_ratio: {} is not within 0 to 1", ratio));
  const std::int64_t warmup = warmup_steps(options, total);
  if (step < warmup) {
    return base * (static_cast<double>(step + 1) / static_cast<double>(warmup));
  }
  return base * std::lerp(ratio, 1.0, remaining(options.type, step, warmup, total));
}

}  // namespace sluice::data
